"""The command ``model``: build candidates, time them, judge the model; any of these alone."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from casestudies.measuring.measure import Row, row_of
from casestudies.measuring.model import plan, verdict
from casestudies.measuring.model.families import FAMILIES, Constants, Family, family_of
from casestudies.measuring.model.fit import Sample, fit, loss
from casestudies.measuring.record import Record
from casestudies.measuring.worker import supervise
from selector.diagnostics import UserError
from selector.machine import machine_for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="of the kernels")
    parser.add_argument("--family", choices=tuple(FAMILIES), default="products")
    parser.add_argument("--build", action="store_true", help="compile candidates into the folder")
    parser.add_argument("--run", action="store_true", help="time what is in the folder (GPU)")
    parser.add_argument("--results", type=Path, help="file of the times, written or judged")
    parser.add_argument("--drawn", type=int, default=24, help="sizes that are drawn")
    parser.add_argument("--seed", type=int, default=1, help="of the sizes and the random inputs")
    parser.add_argument("--most", type=int, default=12, help="candidates of a size")
    parser.add_argument("--match", default="", help="only problems whose name holds this (regex)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no problem later")
    parser.add_argument("--libraries", type=float, default=200.0, help="seconds for them all")
    parser.add_argument("--fit", type=int, metavar="TURNS", help="look for better constants")
    parser.add_argument("--held", help="problems (regex) that are not fitted to, judged apart")
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
        trials = _trials(options)
        family = family_of(trials[0].case)
        constants = family.constants(machine_for(options.target, options.gpu))
        _judge(options, trials, rows, family, constants)
        if options.fit:
            _fit(options, trials, rows, family, constants)
    return 1 if any(not row.passed for row in rows) else 0


def _trials(options: argparse.Namespace) -> list[plan.Trial]:
    found = [t for t in plan.read(options.folder) if re.search(options.match, t.instance.name)]
    if not found:
        raise UserError(f"no problem of {options.folder} matches {options.match!r}")
    return found


def _held(options: argparse.Namespace, name: str) -> bool:
    return options.held is not None and re.search(options.held, name) is not None


def _judge(
    options: argparse.Namespace,
    trials: Sequence[plan.Trial],
    rows: Sequence[Row],
    family: Family,
    constants: Constants,
) -> None:
    """Print the verdict on constants, on what they were not fitted to by itself."""
    foretelling = family.foretelling(constants, machine_for(options.target, options.gpu))
    for held in (False, True) if options.held else (False,):
        foretold = {
            t.instance.name: {
                c.label: foretelling(c.tiling, t.instance.shape) for c in t.candidates
            }
            for t in trials
            if _held(options, t.instance.name) == held
        }
        if held:
            print("held out:")
        print(verdict.report(verdict.verdicts(foretold, rows)))


def _fit(
    options: argparse.Namespace,
    trials: Sequence[plan.Trial],
    rows: Sequence[Row],
    family: Family,
    constants: Constants,
) -> None:
    """Print constants that suit the times better, and the verdict on them."""
    times = {
        (r.problem, r.contender): r.timing.median
        for r in rows
        if r.timing is not None and r.passed and r.ours
    }
    problems = {
        name: [
            Sample(t.instance.shape, c.tiling, times[name, c.label])
            for c in t.candidates
            if (name, c.label) in times
        ]
        for t in trials
        if not _held(options, name := t.instance.name)
    }
    problems = {name: samples for name, samples in problems.items() if len(samples) > 1}
    machine = machine_for(options.target, options.gpu)
    before = loss(problems, family.foretelling(constants, machine))
    fitted, after = fit(
        problems, constants, lambda c: family.foretelling(c, machine), options.fit, options.seed
    )
    print(f"loss {before:.4f} -> {after:.4f}")
    print(", ".join(f"{name}={value:.3g}" for name, value in fitted.items()))
    _judge(options, trials, rows, family, fitted)


def _build(options: argparse.Namespace) -> None:
    from casestudies.measuring.model.build import build

    problems = FAMILIES[options.family].problems(options.drawn, options.seed)
    chosen = (p for p in problems if re.search(options.match, p.name))
    build(chosen, options.most, machine_for(options.target, options.gpu), options.folder)


def _run(options: argparse.Namespace) -> list[Row]:
    record = Record(options.results, options.seed, stream=sys.stderr)
    tasks = [trial.task for trial in _trials(options)]
    supervise(
        tasks, options.folder, options.seed, record, 45, options.libraries,
        until=time.monotonic() + options.seconds,
    )  # fmt: skip
    record.write()
    return record.rows


def _read(path: Path) -> list[Row]:
    if not path.exists():
        raise UserError(f"there is no {path}", hint="model FOLDER --run --results FILE writes it")
    return [row_of(row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]
