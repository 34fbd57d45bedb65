"""Graphs of Funcs (``graphs``) with the compiler's own schedule, against Halide's own run.

    PYTHONPATH=tests python -m fuzzing.graph_runs FIRST LAST [TARGET]

compiles those of these numbers, each for the target or for one of three GPUs in turns, with sizes
told now and then, and compares the selected program in the interpreter and the emitted text in the
emulation with what Halide computes on the CPU. What fails is printed with its program.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections import Counter
from typing import Any

import halide as hl
import numpy as np

import halide_bridge as hb
from fuzzing.graphs import Array, Graph
from fuzzing.oracles import emulated
from fuzzing.outcome import FAILURES, Outcome
from selector.diagnostics import InternalError, UserError

TARGETS = ("sm_90a", "sm_80", "sm_120", "sm_90a")
ROUNDED, OFF = 2e-2, 0.02  # of floats: the relative error; of integers made of them: how many


def run(number: int, target: str = "") -> Outcome:
    """Compile a graph and compare."""
    graph = Graph(number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wanted = by_halide(graph)
        except Exception as error:  # the binding has no such overload: nothing to compare with
            return Outcome("refused", f"Halide: {type(error).__name__}", str(error))
        try:
            found = _ours(graph, target or TARGETS[number % len(TARGETS)])
        except InternalError as error:
            return Outcome("internal", str(error)[:200], str(error))
        except UserError as error:
            return Outcome("refused", f"{type(error).__name__}: {error.what}", str(error))
        except Exception as error:
            return Outcome("exception", type(error).__name__, traceback.format_exc()[-2000:])
    seen = [name for name, results in found.items() if not _alike(results, wanted, graph.exact)]
    return Outcome("wrong", ", ".join(seen)) if seen else Outcome("ok")


def _pipeline(graph: Graph) -> tuple[list[Any], list[Any]]:
    space: dict[str, Any] = {"hl": hl}
    exec(compile(graph.text, f"<graph {graph.number}>", "exec"), space)
    return space["pipeline"]()


def by_halide(graph: Graph) -> list[Array]:
    outputs, parameters = _pipeline(graph)
    for func in hb.funcs(outputs).values():
        func.compute_root()
    arrays = graph.arrays()
    for parameter in parameters:
        parameter.set(hl.Buffer(arrays[parameter.name()]))
    found = [hl.Buffer(f.type(), [*graph.shape][::-1]) for f in outputs]
    hl.Pipeline(outputs).realize(found)
    return [np.array(b) for b in found]


def _ours(graph: Graph, target: str) -> dict[str, list[Array]]:
    """What each oracle computes."""
    outputs, _ = _pipeline(graph)
    several = len(outputs) > 1
    sizes = dict.fromkeys(graph.outputs, graph.shape) if several else graph.shape
    told = {"sizes": sizes} if graph.number % 3 == 0 else {}
    hb.autoschedule(outputs if several else outputs[0], target=target, **told)
    kernel = hb.compile(outputs if several else outputs[0], target=target, cache=False)
    read = {b.name for b in kernel.plan.buffers}
    arrays = {name: array for name, array in graph.arrays().items() if name in read}
    results = {
        "interpreter": kernel.interpret(sizes=sizes, **arrays),
        "emulation": emulated(kernel, sizes, **arrays),
    }
    return {name: _listed(result) for name, result in results.items()}


def _listed(result: Any) -> list[Array]:
    if isinstance(result, dict):
        return [np.asarray(r) for r in result.values()]
    each = result if isinstance(result, list | tuple) else [result]
    return [np.asarray(r) for r in each]


def _alike(results: list[Array], wanted: list[Array], exact: bool) -> bool:
    pairs = zip(results, wanted, strict=True)
    return all(f.shape == w.shape and close(f, w, exact) for f, w in pairs)


def close(found: Array, wanted: Array, exact: bool) -> bool:
    if wanted.dtype.kind in "iu":
        if exact:
            return bool((found == wanted).all())
        apart = np.abs(found.astype(np.int64) - wanted.astype(np.int64))
        return bool((apart > 1).mean() < OFF)
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    there = np.isfinite(b)
    same = np.isfinite(a) == there
    both = there & np.isfinite(a)
    error = np.linalg.norm((a - b)[both])
    return bool(same.mean() > 1 - OFF and error <= ROUNDED * np.linalg.norm(b[there]) + 1e-6)


def main(first: int, last: int, target: str = "") -> int:
    counts = Counter[str]()
    for number in range(first, last):
        outcome = run(number, target)
        counts[outcome.kind] += 1
        if outcome.kind != "ok":
            print(f"--- {number}: {outcome.kind}, {outcome.detail}\n{outcome.text}", flush=True)
        if outcome.kind in FAILURES:
            print(Graph(number).text, flush=True)
    print(dict(counts))
    return any(kind in FAILURES for kind in counts)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:4]))
