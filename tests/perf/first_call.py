"""What a plain pipeline's first call takes before a GPU has anything to do, and what the decisions
of ``autoschedule`` take.

    python tests/perf/first_call.py [--match REGEX] [--repeats N] [--results first_call.json]

Each first call is that of a new process with Halide and this compiler loaded: without a schedule,
at a user's sizes, to machine code; with nothing remembered (``cold``), and with the kernel in the
cache on disk (``cached``). Both are measured again in a process that has compiled another pipeline
before, and so has loaded the compiler's modules (``next``, ``next cached``). Decisions are of
chains of 10 and of 100 Funcs, and of all plain pipelines, the longest of which is named.
Milliseconds that the processor works, the least of some repetitions, with those of the time of day
behind them. ``process``: one that starts, imports Halide and this compiler, compiles the scheduled
convolution of 256 taps without its machine code, and ends. Needs Halide and NVRTC, no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "schedules"), str(ROOT / "tests")]

import halide as hl  # noqa: E402

import halide_bridge as hb  # noqa: E402
from casestudies.measuring.machine import processor  # noqa: E402

TARGET = "sm_90a"
F16, F32 = hl.Float(16), hl.Float(32)


def demo() -> tuple[Any, dict[str, tuple[int, ...]]]:
    """The README's: a blur along the rows, of the demo's size."""
    image, taps = hl.ImageParam(F16, 2, "I"), hl.ImageParam(F16, 1, "K")
    edge = hl.BoundaryConditions.repeat_edge(image)
    blur, output = hl.Func("blur"), hl.Func("output")
    x, y, t = hl.Var("x"), hl.Var("y"), hl.RDom([(0, 31)], "t")
    blur[x, y] += hl.f32(edge[x + t - 15, y]) * hl.f32(taps[t])
    output[x, y] = blur[x, y]
    return output, {"I": (4096, 4096), "K": (31,), "output": (4096, 4096)}


def unsharp() -> tuple[Any, dict[str, tuple[int, ...]]]:
    """Of the guide to schedules that nobody writes."""
    photo, x, y = hl.ImageParam(F32, 2, "photo"), hl.Var("x"), hl.Var("y")
    edge = hl.BoundaryConditions.repeat_edge(photo)
    rows, blur, sharp = hl.Func("rows"), hl.Func("blur"), hl.Func("sharp")
    rows[x, y] = (edge[x - 1, y] + 2 * edge[x, y] + edge[x + 1, y]) / 4
    blur[x, y] = (rows[x, y - 1] + 2 * rows[x, y] + rows[x, y + 1]) / 4
    sharp[x, y] = 2 * photo[x, y] - blur[x, y]
    return sharp, {"photo": (2160, 3840), "sharp": (2160, 3840)}


def softmax() -> tuple[Any, dict[str, tuple[int, ...]]]:
    a, x, y = hl.ImageParam(F32, 2, "a"), hl.Var("x"), hl.Var("y")
    k = hl.RDom([(0, a.width())], "k")
    top, total, soft = hl.Func("top"), hl.Func("total"), hl.Func("soft")
    top[y] = hl.maximum(a[k, y])
    total[y] += hl.exp(a[k, y] - top[y])
    soft[x, y] = hl.exp(a[x, y] - top[y]) / total[y]
    return soft, {"a": (4096, 4096), "soft": (4096, 4096)}


FIRST = {make.__name__: make for make in (demo, unsharp, softmax)}

PROCESS = f"""
import halide_bridge as hb
from casestudies.conv1d import CASE
from casestudies.conv1d.problem import Problem
hb.compile(CASE.build(Problem(4096, 4096, 256), "mma"), target="{TARGET}", cache=False)
"""


def chain(funcs: int) -> Any:
    """Stencils and elementwise steps in turn, each of what is before."""
    image, x, y = hl.ImageParam(F32, 2, "image"), hl.Var("x"), hl.Var("y")
    before: Any = hl.BoundaryConditions.repeat_edge(image)
    for k in range(funcs):
        now = hl.Func(f"f{k}")
        if k % 3 == 0:
            now[x, y] = before[x - 1, y] + before[x + 1, y] - before[x, y]
        elif k % 3 == 1:
            now[x, y] = hl.max(before[x, y], 0) * hl.f32(0.5)
        else:
            now[x, y] = before[x, y - 1] + before[x, y + 1]
        before = now
    return before


def worked() -> float:
    own, below = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime


def taken(call: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds that processors work for it, and those of the time of day."""
    work, begin = worked(), time.perf_counter()
    call()
    return (worked() - work) * 1e3, (time.perf_counter() - begin) * 1e3


def call(name: str, *, cache: bool = True) -> None:
    output, sizes = FIRST[name]()
    hb.compile(output, target=TARGET, schedule="auto", sizes=sizes, cache=cache).cubin()


def first_call(name: str, other: str) -> tuple[float, float]:
    """``other``: what was compiled before; empty: nothing."""
    if other:
        call(other, cache=False)
    return taken(lambda: call(name))


def new_process(*options: str, **told: str) -> str:
    """What Python prints that is started so, in the repository."""
    environ = os.environ | told
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    command = [sys.executable, *options]
    ran = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout


def in_a_new_process(name: str, cache: Path, other: str = "") -> tuple[float, float]:
    printed = new_process(__file__, "--one", name, "--other", other, SELECTOR_CACHE_DIR=str(cache))
    work, day = json.loads(printed.splitlines()[-1])
    return work, day


def processes(repeats: int) -> tuple[float, float]:
    """The least of some whole processes, behind one that writes bytecode."""
    work, day = min([taken(lambda: new_process("-c", PROCESS)) for _ in range(repeats + 1)][1:])
    print(shown({"process": (work, day)}), flush=True)
    return work, day


def first_calls(match: str, repeats: int) -> dict[str, dict[str, tuple[float, float]]]:
    found = dict[str, dict[str, tuple[float, float]]]()
    for name in FIRST:
        if re.search(match, name):
            times = dict[str, list[tuple[float, float]]]()
            other = next(n for n in FIRST if n != name)
            with tempfile.TemporaryDirectory() as cache:
                in_a_new_process(name, Path(cache))  # writes bytecode
            for _ in range(repeats):
                for before, kinds in (("", ("cold", "cached")), (other, ("next", "next cached"))):
                    with tempfile.TemporaryDirectory() as cache:
                        for what in kinds:
                            took = in_a_new_process(name, Path(cache), before)
                            times.setdefault(what, []).append(took)
            found[name] = {what: min(t) for what, t in times.items()}
            print(name, shown(found[name]), flush=True)
    return found


def decisions(match: str, repeats: int) -> dict[str, tuple[float, float]]:
    from test_plain_pipelines import PIPELINES

    def least(make: Callable[[], Any]) -> tuple[float, float]:
        cases = [make() for _ in range(repeats)]
        return min(taken(lambda c=c: hb.autoschedule(c, target=TARGET)) for c in cases)

    found = {}
    for funcs in (10, 100):
        if re.search(match, f"{funcs} Funcs"):
            found[f"{funcs} Funcs"] = least(lambda funcs=funcs: chain(funcs))
    own = {n: make for n, make in PIPELINES.items() if re.search(match, n)}
    times = {n: least(lambda make=make: make().outputs) for n, make in own.items()}
    if times:
        longest = max(times, key=lambda n: times[n])
        found[f"longest of {len(times)} plain pipelines, {longest}"] = times[longest]
    print(shown(found), flush=True)
    return found


def shown(times: dict[str, tuple[float, float]]) -> str:
    return ", ".join(f"{n}: {work:.0f} ms ({day:.0f})" for n, (work, day) in times.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--match", default="", help="only what holds this (regex)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--other", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(first_call(options.one, options.other)))
        return 0
    about = {"date": date.today().isoformat(), "processor": processor(), "target": TARGET}
    results = about | {
        "process": processes(options.repeats),
        "first": first_calls(options.match, options.repeats),
        "decisions": decisions(options.match, options.repeats),
    }
    if options.results:
        options.results.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
