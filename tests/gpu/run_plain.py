"""Check and time plain pipelines that nobody scheduled, beside torch, on the GPU machine.

    python tests/gpu/run_plain.py FOLDER [--results plain.json] [--match REGEX] [--seconds N]
        [--old FOLDER] [--no-peers] [--halide FOLDER] [--ahead N]
    python tests/gpu/run_plain.py page RESULTS ...

Each kernel of ``build_plain.py`` is checked against float64 after poison, and then timed in turn
with torch as it is, with ``torch.compile``, of rows with a Triton kernel, and with a copy of as
many bytes, all as CUDA graphs over data beyond L2; so is a kernel of the same name in the folder
``--old``, and the fastest of what Halide's Anderson2021 made of it (``build_halide.py``) in the
folder ``--halide``. ``--ahead N``: nothing is timed; so many processes compile what
``torch.compile`` makes, and check what Halide made, an access outside of an array being the end of
a process. Rows that are in the results are kept, so that a run can be in parts. The second form
prints the results as a table. Needs CuPy, torch and Triton.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Container
from functools import partial
from math import exp, log, prod
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

import torch  # noqa: E402
from halide_peer import BrokenError, check, fastest  # noqa: E402
from plain_all_jobs import JOBS  # noqa: E402
from plain_jobs import Job  # noqa: E402

import selector  # noqa: E402
from casestudies.measuring.memory import Room  # noqa: E402
from selector.tuning.rounds import time_in_turn  # noqa: E402
from selector.tuning.timing import Prepared, prepare  # noqa: E402

BEYOND_L2, MOST_SETS = 300 << 20, 8
OWN = ("ours", "old", "copy", "Anderson2021")
Call = Callable[[], object]


def bytes_of(shape: tuple[int, ...], kind: torch.dtype) -> int:
    return prod(shape) * torch.empty(0, dtype=kind).element_size()


def drawn(shape: tuple[int, ...], kind: torch.dtype, largest: float, seed: int) -> Any:
    source = torch.Generator(device="cuda").manual_seed(seed)
    if kind.is_floating_point:
        return (torch.rand(shape, generator=source, device="cuda") * largest).to(kind)
    whole = torch.randint(0, 255, shape, generator=source, device="cuda", dtype=torch.int32)
    return whole.to(kind)


def poisoned(shape: tuple[int, ...], kind: torch.dtype) -> Any:
    if kind.is_floating_point:
        return torch.full(shape, float("nan"), dtype=kind, device="cuda")
    return torch.full(shape, 77, dtype=torch.int32, device="cuda").to(kind)


def poison(job: Job, outputs: dict[str, Any]) -> None:
    for (shape, kind), out in zip(job.outputs.values(), outputs.values(), strict=True):
        out.copy_(poisoned(shape, kind))


def as_tuple(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def error_of(job: Job, outputs: list[Any], inputs: dict[str, Any]) -> float:
    """Relative, of floats; the most that whole numbers are off, but for those that may be."""
    exact = {n: v.double() if v.is_floating_point() else v for n, v in inputs.items()}
    truths = as_tuple(job.call(*exact.values(), *job.numbers.values()))
    worst = 0.0
    for found, truth in zip(outputs, truths, strict=True):
        off = found.double() - truth.double()
        if found.is_floating_point():
            worst = max(worst, float(off.norm() / truth.double().norm()))
        elif int((off != 0).sum()) > job.astray * off.numel():
            worst = max(worst, float(off.abs().max()))
    return worst


def in_turn(contenders: dict[str, list[Call]], own: Container[str]) -> dict[str, float]:
    """Microseconds of one call, the median of rounds; none of those that fail. ``own``: those that
    write into arrays that they are given.
    """
    ready = list[tuple[str, Prepared, Room]]()
    for name, calls in contenders.items():
        room = Room(apart=name not in own)
        try:
            with room.entered():
                ready.append((name, prepare(calls), room))
        except Exception as error:  # a peer that cannot do it
            print(f"  {name} not timed: {type(error).__name__}: {str(error).splitlines()[0]}")
    found = time_in_turn([calls for _, calls, _ in ready], lambda k: ready[k][2].entered())
    return {ready[t.index][0]: t.timing.median for t in found if t.timing is not None}


def of_torch(job: Job, inputs: dict[str, Any], call: Callable[..., Any]) -> Call:
    return lambda: call(*inputs.values(), *job.numbers.values())


def drawn_inputs(job: Job, seed: int) -> dict[str, Any]:
    return {n: drawn(*a, job.largest, seed + i) for i, (n, a) in enumerate(job.inputs.items())}


def others(job: Job) -> dict[str, Callable[..., Any]]:
    """torch, and a kernel of Triton's, if there is one."""
    found = {"torch": job.call, "torch.compile": torch.compile(job.call, dynamic=False)}
    if job.triton:
        import plain_triton

        found["Triton"] = getattr(plain_triton, job.triton)
    return found


def check_halide(job: Job, folder: Path, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    def fault() -> str:
        error = error_of(job, [*outputs.values()], inputs)
        poison(job, outputs)
        return "" if error <= job.error else f"wrong: {error}"

    poison(job, outputs)
    check(folder, job, inputs, [*outputs.values()], fault)


def by_halide(
    job: Job, folder: Path, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]]
) -> dict[str, list[Call]]:
    """Calls of what Halide's own autoscheduler made; none where nothing of that is right."""
    check_halide(job, folder, inputs[0], outputs[0])
    pipeline = fastest(folder, job, inputs[0], [*outputs[0].values()])
    if pipeline is None:
        return {}

    def call(k: int) -> None:
        pipeline(inputs[k], [*outputs[k].values()])

    return {"Anderson2021": [partial(call, k) for k in range(len(inputs))]}


def measured(
    job: Job, kernels: dict[str, Any], halide: Path | None = None, *, peers: bool = True
) -> dict[str, Any]:
    """``kernels`` of ours, by name; the first is the one that is judged. ``halide``: the folder
    of what Halide's own autoscheduler made; ``peers``: torch and Triton.
    """
    moved = sum(bytes_of(*a) for a in (*job.inputs.values(), *job.outputs.values()))
    sets = max(2, min(MOST_SETS, BEYOND_L2 // moved + 1))
    inputs = [drawn_inputs(job, 31 * k) for k in range(sets)]
    outputs = [{n: poisoned(*a) for n, a in job.outputs.items()} for _ in range(sets)]

    def ours(kernel: Any, k: int) -> object:
        out = outputs[k].get("", outputs[k])
        return kernel(**inputs[k], **job.numbers, out=out)

    errors = dict[str, float]()
    for name, kernel in kernels.items():
        poison(job, outputs[0])
        ours(kernel, 0)
        torch.cuda.synchronize()
        errors[name] = error_of(job, [*outputs[0].values()], inputs[0])
    halves = [
        [torch.empty(moved // 2, dtype=torch.uint8, device="cuda") for _ in "ab"] for _ in inputs
    ]
    calls = {
        name: [lambda kernel=kernel, k=k: ours(kernel, k) for k in range(sets)]
        for name, kernel in kernels.items()
    }
    if peers:
        torch._dynamo.reset()
        given = others(job).items()
        calls |= {name: [of_torch(job, v, call) for v in inputs] for name, call in given}
    if halide is not None:
        calls |= by_halide(job, halide, inputs, outputs)
    calls["copy"] = [lambda a=a, b=b: b.copy_(a) for a, b in halves]
    about = {"job": job.name, "error": max(errors.values()), "bytes": moved}
    return about | {"right": about["error"] <= job.error} | in_turn(calls, OWN)


def compile_ahead(options: argparse.Namespace) -> int:
    """Let processes fill torch's cache of compiled code and check what Halide made, and begin
    again where one of them ends.
    """
    own = [sys.executable, __file__, str(options.folder), "--match", options.match]
    own += ["--halide", str(options.halide)] if options.halide else []
    parts = [f"{k}/{options.ahead}" for k in range(options.ahead)]
    children, until = dict[str, Any](), time.monotonic() + options.seconds
    begun = dict.fromkeys(parts, 0)
    while time.monotonic() < until:
        for part in parts:
            if part not in children or (children[part].poll() and begun[part] < 20):
                children[part] = subprocess.Popen([*own, "--part", part])
                begun[part] += 1
        if all(c.poll() == 0 for c in children.values()):
            break
        time.sleep(0.1)
    for child in children.values():
        child.kill()
    return 0


def compile_part(jobs: list[Job], halide: Path | None) -> int:
    for job in jobs:
        torch._dynamo.reset()
        inputs = drawn_inputs(job, 0)
        for call in others(job).values():
            try:
                of_torch(job, inputs, call)()
            except Exception as error:  # it is said where it is timed
                print(f"  {job.name}: {type(error).__name__}")
        if halide:
            check_halide(job, halide, inputs, {n: poisoned(*a) for n, a in job.outputs.items()})
        torch.cuda.empty_cache()
    return 0


def run(options: argparse.Namespace) -> int:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    jobs = [job for job in JOBS if re.search(options.match, job.name)]
    if options.part:
        part, parts = map(int, options.part.split("/"))
        return compile_part(jobs[part::parts], options.halide)
    if options.ahead:
        return compile_ahead(options)
    rows, wrong, until = [], 0, time.monotonic() + options.seconds
    if options.results and options.results.exists():
        rows = json.loads(options.results.read_text())["rows"]
    done = {row["job"] for row in rows}
    about = {
        "gpu": torch.cuda.get_device_name(0),
        "date": time.strftime("%Y-%m-%d"),
        "torch": torch.__version__,
    }
    for job in jobs:
        if job.name in done:
            continue
        if time.monotonic() > until:
            break
        try:
            paths = {"ours": options.folder / f"{job.slug}.kernel"}
            if options.old:
                paths["old"] = options.old / f"{job.slug}.kernel"
            kernels = {n: selector.load(p) for n, p in paths.items() if p.exists()}
            row = measured(job, kernels, options.halide, peers=not options.no_peers)
        except BrokenError as error:  # what Halide made: a new process goes on without it
            print(f"  {error} ends the process", flush=True)
            return 2
        except Exception as error:  # one job's fault is not the end of the others
            row = {"job": job.name, "failure": f"{type(error).__name__}: {error}"}
        wrong += not row.get("right", False)
        rows.append(row)
        print(json.dumps(row), flush=True)
        torch.cuda.empty_cache()
        if options.results:
            options.results.write_text(json.dumps(about | {"rows": rows}, indent=1))
    print(f"{len(rows)} jobs, {wrong} wrong or failed")
    return 1 if wrong else 0


def page(files: list[Path]) -> int:
    """The rows of some runs on one GPU, in the order of the jobs; of one job the last one."""
    runs, order = [json.loads(f.read_text()) for f in files], [job.name for job in JOBS]
    found = {row["job"]: row for r in runs for row in r["rows"]}
    data, rows = runs[0], sorted(found.values(), key=lambda row: order.index(row["job"]))
    peers = ("torch", "torch.compile", "Triton", "Anderson2021")
    heads = ("pipeline", "ours", *peers, "a copy", "best of others / ours", "copy / ours")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    ratios = []
    for row in rows:
        if not row.get("right"):
            continue
        ratios.append(min(row[p] for p in peers if p in row) / row["ours"])
        times = " | ".join(f"{row[n]:.1f}" if n in row else "-" for n in ("ours", *peers, "copy"))
        print(f"| {row['job']} | {times} | {ratios[-1]:.2f} | {row['copy'] / row['ours']:.2f} |")
    mean = exp(sum(map(log, ratios)) / len(ratios))
    print(f"\n{len(ratios)} pipelines, {data['gpu']}, torch {data['torch']}, {data['date']}; "
          f"geometric mean of the best of the others / ours {mean:.2f}.")  # fmt: skip
    return 0


def main() -> int:
    if sys.argv[1:2] == ["page"]:
        return page([Path(a) for a in sys.argv[2:]])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--match", default="", help="only jobs whose name holds this (regex)")
    parser.add_argument("--seconds", type=float, default=400.0, help="after which no job begins")
    parser.add_argument("--old", type=Path, help="kernels to be timed beside those")
    parser.add_argument("--no-peers", action="store_true", help="neither torch nor Triton")
    parser.add_argument("--halide", type=Path, help="what build_halide.py compiled")
    parser.add_argument("--ahead", type=int, default=0, help="processes that only compile")
    parser.add_argument("--part", default="", help=argparse.SUPPRESS)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
