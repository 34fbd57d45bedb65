"""Chunks of rows that start anywhere: the snippet itself, compiled for this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from selector.gpu.cuda.preamble import preamble

MAIN = r"""
#include <cstdio>
#include <cstring>
#define __device__
#define __forceinline__ inline
struct alignas(16) uint4 { unsigned x, y, z, w; };
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return (unsigned)((((unsigned long long)high << 32) | low) >> by);
}
@SNIPPET@
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


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_every_shift_and_every_length(tmp_path: Path) -> None:
    source, program = tmp_path / "shift.cpp", tmp_path / "shift"
    snippet = preamble("Shifted", {})
    source.write_text(MAIN.replace("@SNIPPET@", snippet))
    flags = ["-std=c++17", "-O2", "-fno-strict-aliasing", "-w"]
    subprocess.run(["g++", *flags, str(source), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], check=True, capture_output=True, text=True)
    assert done.stdout == "0\n"
