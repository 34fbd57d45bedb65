"""Measuring what is compiled on the spot: the selector's kernel, stock Halide's, and the
libraries.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from casestudies.common.case import Case, Problem
from casestudies.common.measure import Contender, Row, measure, peer
from casestudies.common.progress import say, step
from casestudies.common.stock_call import StockLibrary
from selector.diagnostics import UserError


def kernel_contender(kernel: Any) -> Contender:
    """A kernel of the selector."""
    return Contender("tensor", kernel.target.name, lambda i, o: lambda: kernel(**i, out=o))


def stock_contender(path: Path, problem: Problem, order: Sequence[str]) -> Contender:
    """A library of stock Halide; ``order`` names its input buffers."""
    library = StockLibrary(path)
    library.use_cupy()
    return Contender("stock Halide", "CUDA cores", lambda i, o: library.bind(order, problem, i, o))


def bench(case: Case, problem: Problem, options: argparse.Namespace) -> list[Row]:
    """Compile and measure one problem; peers only where all schedules are measured."""
    say(problem.name)
    with tempfile.TemporaryDirectory() as folder:
        contenders = []
        if options.schedule != "cuda":
            contenders.append(_compile_tensor(case, problem, options.target or "cuda"))
        if options.schedule != "tensor":
            contenders += _compile_stock(case, problem, Path(folder, "stock.so"))
        if options.schedule is None:
            contenders += [peer(problem, p) for p in case.peers]
        with step("measure"):
            return measure(case, problem, contenders, options.seed)


def _compile_tensor(case: Case, problem: Problem, target: str) -> Contender:
    import halide_bridge as hb

    with step(f"compile for {target}"):
        return kernel_contender(hb.compile(case.build(problem, "tensor"), target=target))


def _compile_stock(case: Case, problem: Problem, path: Path) -> list[Contender]:
    from casestudies.common.stock import argument_order, compile_shared

    try:
        with step("compile with stock Halide"):
            output = case.build(problem, "cuda")
            compile_shared(output, path)
    except UserError as error:
        say(f"  no baseline: {error}")
        return []
    return [stock_contender(path, problem, argument_order(output)[:-1])]
