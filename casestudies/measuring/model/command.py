"""The command ``model``: build candidates, time them, judge the model; any of these alone."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from casestudies.gemm.problem import Problem
from casestudies.measuring.measure import Row, row_of
from casestudies.measuring.model import plan, verdict
from casestudies.measuring.model.fit import Sample, fit, loss
from casestudies.measuring.model.sizes import SWEEP, drawn
from casestudies.measuring.record import Record
from casestudies.measuring.worker import supervise
from selector.diagnostics import UserError
from selector.families.contraction import estimate
from selector.families.contraction.cost import FITTED
from selector.machine import machine_for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="of the kernels")
    parser.add_argument("--build", action="store_true", help="compile candidates into the folder")
    parser.add_argument("--run", action="store_true", help="time what is in the folder (GPU)")
    parser.add_argument("--results", type=Path, help="file of the times, written or judged")
    parser.add_argument("--drawn", type=int, default=24, help="sizes that are drawn")
    parser.add_argument("--seed", type=int, default=1, help="of the sizes and the random inputs")
    parser.add_argument("--most", type=int, default=12, help="candidates of a size")
    parser.add_argument("--fit", type=int, metavar="TURNS", help="look for better constants")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--gpu", default="", help="whose costs: H200, A100, ...")
    parser.set_defaults(command=model)


def model(options: argparse.Namespace) -> int:
    """Do what is asked for; the exit code: 1 if a kernel was wrong."""
    if options.build:
        _build(options)
    rows: list[Row] = []
    if options.run:
        rows = _run(options)
    elif options.results is not None:
        rows = _read(options.results)
    if rows:
        found = verdict.verdicts(foretold(options), rows)
        print(verdict.report(found))
        if options.fit:
            _fit(options, found)
    return 1 if any(not row.passed for row in rows) else 0


def foretold(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Microseconds by problem and label, by the model as it is now."""
    machine = machine_for(options.target, options.gpu)
    found: dict[str, dict[str, float]] = {}
    for trial in plan.read(options.folder):
        problem = Problem(**trial.problem)
        shape = problem.shape
        times = (estimate(c.tiling, shape, machine).microseconds for c in trial.candidates)
        labels = (c.label for c in trial.candidates)
        found[problem.name] = dict(zip(labels, times, strict=True))
    return found


def _fit(options: argparse.Namespace, found: Sequence[verdict.Verdict]) -> None:
    """Print constants that suit the times better."""
    problems: dict[str, list[Sample]] = {}
    timed = {v.problem: {t.label: t.measured for t in v.timed} for v in found}
    for trial in plan.read(options.folder):
        problem = Problem(**trial.problem)
        times = timed.get(problem.name, {})
        samples = [
            Sample(problem.shape, c.tiling, times[c.label])
            for c in trial.candidates
            if c.label in times
        ]
        if samples:
            problems[problem.name] = samples
    machine = machine_for(options.target, options.gpu)
    before = loss(problems, FITTED, machine)
    fitted, machine, after = fit(problems, FITTED, machine, options.fit, options.seed)
    print(
        f"loss {before:.4f} -> {after:.4f}\n{fitted}\nl2={machine.l2:.1f} fill={machine.fill:.1f}"
    )


def _build(options: argparse.Namespace) -> None:
    from casestudies.measuring.model.build import build

    problems = (*SWEEP, *drawn(options.drawn, options.seed))
    build(problems, options.most, machine_for(options.target, options.gpu), options.folder)


def _run(options: argparse.Namespace) -> list[Row]:
    record = Record(options.results, options.seed, stream=sys.stderr)
    tasks = [trial.task for trial in plan.read(options.folder)]
    supervise(tasks, options.folder, options.seed, record, patience=45)
    record.write()
    return record.rows


def _read(path: Path) -> list[Row]:
    if not path.exists():
        raise UserError(f"there is no {path}", hint="model FOLDER --run --results FILE writes it")
    return [row_of(row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]
