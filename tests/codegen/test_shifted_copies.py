"""Chunks of rows that start anywhere: the snippets themselves, compiled for this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from selector.gpu.cuda.preamble import preamble

HEAD = r"""
#include <cstdio>
#include <cstring>
#define __device__
#define __forceinline__ inline
struct alignas(16) uint4 { unsigned x, y, z, w; };
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return (unsigned)((((unsigned long long)high << 32) | low) >> by);
}
"""
MAIN = r"""
int main() {
  alignas(16) unsigned char memory[64], to[16], expected[16];
  int wrong = 0;
  for (int i = 0; i < 64; ++i) memory[i] = (unsigned char)(i * 7 + 1);
  for (int start = 0; start < 32; ++start)
    for (int valid = -20; valid <= 16; ++valid) {
      memset(to, 0xee, 16);
      memset(expected, 0, 16);
      if (valid > 0) memcpy(expected, memory + start, valid);
      store_shifted(load_shifted(to, memory + start, valid));
      wrong += memcmp(to, expected, 16) != 0;
    }
  printf("%d\n", wrong);
}
"""


# The vectors that are loaded end with the last one that holds a byte.
ANYWHERE = r"""
template <int bytes> int wrong() {
  alignas(16) unsigned char memory[96], to[64];
  const int per = bytes > 8 ? 16 : 4;
  int found = 0;
  for (int start = 0; start < 32; ++start) {
    const int end = (start + bytes + per - 1) / per * per;
    unsigned char* const own = new (std::align_val_t(16)) unsigned char[end];
    for (int i = 0; i < end; ++i) own[i] = (unsigned char)(i * 7 + start);
    load_anywhere<bytes>(to, own + start);
    found += memcmp(to, own + start, bytes) != 0;
    ::operator delete[](own, std::align_val_t(16));
  }
  return found;
}
int main() {
  printf("%d\n", wrong<1>() + wrong<2>() + wrong<4>() + wrong<7>() + wrong<8>() + wrong<11>()
    + wrong<16>() + wrong<18>() + wrong<31>() + wrong<33>() + wrong<50>() + wrong<64>());
}
"""


def printed(text: str, folder: Path, *flags: str) -> str:
    source, program = folder / "shift.cpp", folder / "shift"
    source.write_text(text)
    options = ["-std=c++17", "-O2", "-fno-strict-aliasing", "-w", *flags]
    subprocess.run(["g++", *options, str(source), "-o", str(program)], check=True)
    return subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_every_shift_and_every_length(tmp_path: Path) -> None:
    assert printed(HEAD + preamble("Shifted", {}) + MAIN, tmp_path) == "0\n"


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_bytes_that_lie_anywhere_and_nothing_past_their_vectors(tmp_path: Path) -> None:
    text = HEAD + "#include <new>\n" + preamble("load_anywhere", {}) + ANYWHERE
    assert printed(text, tmp_path, "-fsanitize=address") == "0\n"
