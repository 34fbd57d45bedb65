"""Check and time plain pipelines that nobody scheduled, beside torch, on the GPU machine.

    python tests/gpu/run_plain.py FOLDER [--results plain.json] [--match REGEX] [--seconds N]
    python tests/gpu/run_plain.py page RESULTS

Each kernel of ``build_plain.py`` is checked against float64 after poison, and then timed in turn
with torch as it is, with ``torch.compile`` and with a copy of as many bytes, all as CUDA graphs
over data beyond L2. The second form prints the results as a table. Needs CuPy and torch.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from math import exp, log, prod
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

import torch  # noqa: E402
from plain_jobs import JOBS, Job  # noqa: E402

import selector  # noqa: E402

BEYOND_L2, MOST_SETS, ROUNDS, SECONDS_OF_A_ROUND = 300 << 20, 8, 9, 2e-3
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


def as_tuple(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def error_of(job: Job, outputs: list[Any], inputs: dict[str, Any]) -> float:
    exact = {n: v.double() if v.is_floating_point() else v for n, v in inputs.items()}
    truths = as_tuple(job.call(*exact.values(), *job.numbers.values()))
    worst = 0.0
    for found, truth in zip(outputs, truths, strict=True):
        off = found.double() - truth.double()
        if found.is_floating_point():
            worst = max(worst, float(off.norm() / truth.double().norm()))
        else:
            worst = max(worst, float(off.abs().max()))
    return worst


def captured(calls: list[Call]) -> tuple[Call, int] | None:
    """A replay of them all, as often as is worth timing, and how many calls it is; None if they
    fail.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        try:
            for call in calls:
                call()
        except Exception as error:  # a peer that cannot do it
            print(f"  not timed: {type(error).__name__}: {str(error).splitlines()[0]}")
            return None
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for call in calls:
            call()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        times = max(1, min(8, int(SECONDS_OF_A_ROUND / seconds)))
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=stream):
                for call in calls * times:
                    call()
        except RuntimeError:  # it cannot be captured: it is timed as it is called
            torch.cuda.synchronize()
            return (lambda: [call() for call in calls]), len(calls)
    return graph.replay, len(calls) * times


def in_turn(contenders: dict[str, tuple[Call, int]]) -> dict[str, float]:
    """Microseconds of one call, the median of rounds."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, (call, number) in contenders.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            end.synchronize()
            found[name].append(begin.elapsed_time(end) * 1e3 / number)
    return {name: statistics.median(times[1:]) for name, times in found.items()}


def measured(job: Job, kernel: Any) -> dict[str, Any]:
    moved = sum(bytes_of(*a) for a in (*job.inputs.values(), *job.outputs.values()))
    sets = max(2, min(MOST_SETS, BEYOND_L2 // moved + 1))
    inputs = [
        {n: drawn(*a, job.largest, 31 * k + i) for i, (n, a) in enumerate(job.inputs.items())}
        for k in range(sets)
    ]
    outputs = [{n: poisoned(*a) for n, a in job.outputs.items()} for _ in range(sets)]

    def ours(k: int) -> object:
        out = outputs[k].get("", outputs[k])
        return kernel(**inputs[k], **job.numbers, out=out)

    def of_torch(call: Callable[..., Any]) -> list[Call]:
        return [lambda v=v: call(*v.values(), *job.numbers.values()) for v in inputs]

    ours(0)
    torch.cuda.synchronize()
    error = error_of(job, [*outputs[0].values()], inputs[0])
    halves = [
        [torch.empty(moved // 2, dtype=torch.uint8, device="cuda") for _ in "ab"] for _ in inputs
    ]
    torch._dynamo.reset()
    calls = {
        "ours": [lambda k=k: ours(k) for k in range(sets)],
        "torch": of_torch(job.call),
        "torch.compile": of_torch(torch.compile(job.call, dynamic=False)),
        "copy": [lambda a=a, b=b: b.copy_(a) for a, b in halves],
    }
    contenders = {name: found for name, c in calls.items() if (found := captured(c))}
    return {"job": job.name, "error": error, "right": error <= job.error, "bytes": moved} | in_turn(
        contenders
    )


def run(options: argparse.Namespace) -> int:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    rows, wrong, until = [], 0, time.monotonic() + options.seconds
    about = {
        "gpu": torch.cuda.get_device_name(0),
        "date": time.strftime("%Y-%m-%d"),
        "torch": torch.__version__,
    }
    for job in JOBS:
        if not re.search(options.match, job.name) or time.monotonic() > until:
            continue
        try:
            row = measured(job, selector.load(options.folder / f"{job.pipeline}.kernel"))
        except Exception as error:  # one job's fault is not the end of the others
            row = {"job": job.name, "failure": f"{type(error).__name__}: {error}"}
        wrong += not row.get("right", False)
        rows.append(row)
        print(json.dumps(row), flush=True)
        torch.cuda.empty_cache()
        if options.results:
            about = {
                "gpu": torch.cuda.get_device_name(0),
                "date": time.strftime("%Y-%m-%d"),
                "torch": torch.__version__,
            }
            options.results.write_text(json.dumps(about | {"rows": rows}, indent=1))
    print(f"{len(rows)} jobs, {wrong} wrong or failed")
    return 1 if wrong else 0


def page(results: Path) -> int:
    data = json.loads(results.read_text())
    peers = ("torch", "torch.compile")
    print(
        "| pipeline | ours | torch | torch.compile | a copy | best of torch / ours | copy / ours |"
    )
    print("|---|---|---|---|---|---|---|")
    ratios = []
    for row in data["rows"]:
        if not row.get("right"):
            continue
        ratios.append(min(row[p] for p in peers if p in row) / row["ours"])
        times = " | ".join(f"{row[n]:.1f}" if n in row else "-" for n in ("ours", *peers, "copy"))
        print(f"| {row['job']} | {times} | {ratios[-1]:.2f} | {row['copy'] / row['ours']:.2f} |")
    mean = exp(sum(map(log, ratios)) / len(ratios))
    print(f"\n{len(ratios)} pipelines, {data['gpu']}, torch {data['torch']}, {data['date']}; "
          f"geometric mean of the best of torch / ours {mean:.2f}.")  # fmt: skip
    return 0


def main() -> int:
    if sys.argv[1:2] == ["page"]:
        return page(Path(sys.argv[2]))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--match", default="", help="only jobs whose name holds this (regex)")
    parser.add_argument("--seconds", type=float, default=400.0, help="after which no job begins")
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
