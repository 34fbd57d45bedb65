"""Waits that end: what SELECTOR_PATIENCE makes of a kernel."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import halide_bridge as hb
from casestudies.gemm import build
from casestudies.gemm.problem import Problem
from selector import environment
from selector.diagnostics import UserError
from selector.gpu.cuda.snippets.barriers import BARRIERS
from selector.gpu.cuda.snippets.groups import GROUPS
from selector.gpu.passes.bound_waits import ARRIVALS_BYTES
from selector.runtime.plan_json import plan_from_json, plan_to_json

pytestmark = pytest.mark.verified

SMALL = Problem(64, 64, 64)


def compiled(monkeypatch: pytest.MonkeyPatch, seconds: str, schedule: str = "wgmma") -> Any:
    monkeypatch.setenv("SELECTOR_PATIENCE", seconds)
    target = "sm_90a" if schedule == "wgmma" else "sm_80"
    return hb.compile(build(SMALL, schedule), target=target)


def test_every_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else in the sources waits for what may never come."""
    waits = r"mbarrier\.\w+_wait|\bbar\.sync|\bbarrier\.sync"
    snippets = BARRIERS | GROUPS
    waiting = {name for name, text in snippets.items() if re.search(waits, text)}
    bounded = {name for name in snippets if name.endswith("_within")}
    waiting -= {"arrivals_reset", *bounded}
    assert {f"{name}_within" for name in waiting} == bounded
    for schedule in ("wgmma", "tensor"):
        usual, patient = (compiled(monkeypatch, s, schedule) for s in ("", "0.5"))
        assert usual.plan.patience is None
        assert patient.plan.patience == 0.5
        assert "globaltimer" not in usual.source
        assert ", 500000000ull);" in patient.source
        assert plan_from_json(plan_to_json(patient.plan), patient.source) == patient.plan
        assert not re.search(rf"\b({'|'.join(waiting)}|__syncthreads)\(", patient.source)
        (launch,), (wider,) = usual.plan.launches, patient.plan.launches
        assert wider.shared_bytes == launch.shared_bytes + ARRIVALS_BYTES


def test_only_the_counting_of_arrivals_uses_the_barriers_of_the_hardware(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = compiled(monkeypatch, "1").source
    assert "group_sync_within(0, 256, 1000000000ull);" in source
    assert source.count("bar.sync") == 1
    assert source.count("arrivals_reset();") == 1


def test_a_kernel_without_barriers_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import halide as hl

    monkeypatch.setenv("SELECTOR_PATIENCE", "1")
    image, x = hl.ImageParam(hl.Float(32), 1, "I"), hl.Var("x")
    twice, xo, xi = hl.Func("twice"), hl.Var("xo"), hl.Var("xi")
    twice[x] = image[x] * 2.0
    twice.gpu_tile(x, xo, xi, 32)
    kernel = hb.compile(twice, target="sm_80")
    assert "arrivals" not in kernel.source
    assert kernel.plan.launches[0].shared_bytes == 0


THREADS = r"""
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>
#define __device__
#define __forceinline__ inline
#define __threadfence_block() std::atomic_thread_fence(std::memory_order_seq_cst)
#define __syncwarp() std::this_thread::yield()
typedef unsigned u32; typedef unsigned long long u64;
static u32 counts[16];
static u32* named_arrivals(int barrier) { return counts + barrier; }
static u32 atomicAdd(u32* to, u32 by) { return __atomic_fetch_add(to, by, __ATOMIC_RELAXED); }
static u64 nanoseconds() {
  std::this_thread::yield();
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}
@SYNC@
int main(int, char** arguments) {
  const int present = atoi(arguments[1]), threads = 6, rounds = 200;
  static int stamps[6];
  std::atomic<int> wrong{0};
  std::vector<std::thread> all;
  for (int me = 0; me < present; ++me)
    all.emplace_back([&, me] {
      for (int round = 1; round <= rounds; ++round) {
        stamps[me] = round;
        group_sync_within(3, threads, 4000000000ull);
        for (int other = 0; other < threads; ++other) wrong += stamps[other] != round;
        group_sync_within(3, threads, 4000000000ull);
      }
    });
  for (auto& thread : all) thread.join();
  printf("%d wrong\n", (int)wrong);
}
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_counted_barriers_join_threads_and_end_without_one(tmp_path: Path) -> None:
    """The snippet itself, on threads of this machine: nobody is ahead of another, and where one of
    six never comes the others end.
    """
    sync = BARRIERS["group_sync_within"]
    for asm, plain in (
        (r'asm volatile\("mov\.u64 %0, %%globaltimer;" : "=l"\(now\)\);', "now = nanoseconds();"),
        (r'asm volatile\("st\.shared\.u32 \[%0\], %0;" :: "r"\(1\) : "memory"\);', "_Exit(9);"),
    ):
        sync = re.sub(asm, plain, sync)
    assert "asm" not in sync
    source, program = tmp_path / "sync.cpp", tmp_path / "sync"
    source.write_text(THREADS.replace("@SYNC@", sync))
    flags = ["-std=c++17", "-O2", "-pthread", "-w"]
    subprocess.run(["g++", *flags, str(source), "-o", str(program)], check=True)
    done = subprocess.run([program, "6"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "0 wrong\n")
    assert subprocess.run([program, "5"], timeout=60, check=False).returncode == 9


@pytest.mark.slow
@pytest.mark.nvrtc
def test_instructions_stay_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    from selector.runtime.nvrtc import resource_usage, sass

    kernel = compiled(monkeypatch, "1")
    (text,) = sass(kernel.cubin()).values()
    (usage,) = resource_usage(kernel.cubin()).values()
    names = ("HGMMA", "WARPGROUP.ARRIVE", "WARPGROUP.DEPBAR")
    assert [len(re.findall(rf"\b{re.escape(n)}\b", text)) for n in names] == [4, 1, 2]
    assert not usage.local_accesses


@pytest.mark.parametrize("value", ["soon", "-1", "0", "inf", "nan"])
def test_patience_is_a_number_of_seconds(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("SELECTOR_PATIENCE", value)
    with pytest.raises(UserError, match=f"SELECTOR_PATIENCE is '{value}'"):
        environment.patience()
