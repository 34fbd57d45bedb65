"""The command ``sweep``: build, run and page, one after the other or each where it can be done; and
``merge`` of two runs.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

from casestudies.common.progress import say
from casestudies.common.runner import choose_device
from casestudies.measuring.record import Record
from casestudies.sweep import folder as folders
from casestudies.sweep.folder import Sweep
from casestudies.sweep.merge import merged
from casestudies.sweep.rows import Row, choose, drawn, listed

FOLDER = Path("out", "sweep")
RESULTS = "results.json"
SECONDS = 480.0


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """The options of the command, and its steps."""
    _add_choice(parser)
    _add_building(parser)
    _add_running(parser)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for all files")
    parser.set_defaults(command=sweep)
    steps = parser.add_subparsers(metavar="build | run | page | merge")
    building = steps.add_parser("build", help="compile into a folder; needs no GPU")
    building.add_argument("folder", type=Path)
    _add_choice(building)
    _add_building(building)
    building.set_defaults(command=build_step)
    running = steps.add_parser("run", help="check and time what is in a folder; needs no Halide")
    running.add_argument("folder", type=Path, help="its code is run")
    _add_choice(running)
    _add_running(running)
    running.add_argument("--results", type=Path, required=True, help="file, gone on with if there")
    running.set_defaults(command=run_step)
    paging = steps.add_parser("page", help="tables and plots of a file of results")
    paging.add_argument("results", type=Path)
    paging.add_argument("--out", type=Path, help="folder (default: that of the file)")
    paging.set_defaults(command=page_step)
    merging = steps.add_parser("merge", help="the rows of a later run, into the file of an earlier")
    merging.add_argument("results", type=Path, help="of all rows, written anew")
    merging.add_argument("later", type=Path, help="of some rows")
    merging.set_defaults(command=merge_step)


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--family", default="", help="families, with commas between them")
    parser.add_argument("--rows", default="", help="only rows whose name holds this (regex)")


def _add_building(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--extra", type=int, metavar="SEED", help="rows that are drawn, not listed")
    parser.add_argument("--count", type=int, default=24, help="drawn rows of a family")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")


def _add_running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the random inputs")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="after which no row begins")


def sweep(options: argparse.Namespace) -> int:
    """All steps in one folder; the exit code."""
    choose_device("gpu")
    options.folder, options.results = options.out, options.out / RESULTS
    build_step(options)
    code = run_step(options)
    _write_page(options.results, options.out)
    return code


def build_step(options: argparse.Namespace) -> int:
    """Compile the chosen rows; what has no kernel is said with its reason."""
    from casestudies.sweep.build import build

    found = build(options.folder, _chosen_rows(options), options.target, options.workers)
    for reason, names in reasons(found).items():
        say(f"no kernel for {len(names)} rows, {names[0]} ...: {reason}")
    ready = sum(not entry.reason for entry in found.entries)
    print(f"{ready} of {len(found.entries)} rows have a kernel in {options.folder}")
    return 0


def run_step(options: argparse.Namespace) -> int:
    """Measure the chosen rows of a folder; exit code 1 if a result is wrong."""
    from casestudies.sweep.run import measure

    choose_device("gpu")
    found = folders.read(options.folder)
    rows = [Row(entry.family, entry.group, entry.name, {}) for entry in found.entries]
    names = [row.name for row in choose(rows, _families(options), options.rows)]
    record = measure(
        options.folder, found, names, options.results, options.seed, options.seconds
    )  # fmt: skip
    print(summary(record, found))
    return 1 if record.wrong else 0


def page_step(options: argparse.Namespace) -> int:
    """Write the page of a file of results; the exit code."""
    _write_page(options.results, options.out or options.results.parent)
    return 0


def merge_step(options: argparse.Namespace) -> int:
    """Put the rows of a later run into the file of an earlier one."""
    old, new = (json.loads(p.read_text(encoding="utf-8")) for p in (options.results, options.later))
    options.results.write_text(json.dumps(merged(old, new), indent=1), encoding="utf-8")
    return 0


def _write_page(results: Path, folder: Path) -> None:
    from casestudies.results.sweep import write_page

    data = json.loads(results.read_text(encoding="utf-8"))
    for path in write_page(data, folder):
        say(f"written: {path}")


def summary(record: Record, found: Sweep) -> str:
    """How many rows were measured, and what went wrong."""
    done = {row.problem for row in record.rows if row.ours and row.timing is not None}
    names = [entry.name for entry in found.entries if entry.problem in done and entry.file]
    rest = sum(bool(entry.file) for entry in found.entries) - len(names)
    lines = [f"{row.problem} ({row.contender}): {row.failure or row.error}" for row in record.wrong]
    return "\n".join([*lines, f"{len(names)} rows measured, {rest} not, {len(lines)} wrong"])


def reasons(found: Sweep) -> dict[str, list[str]]:
    """Why rows have no kernel, and which they are."""
    names: dict[str, list[str]] = {}
    for entry in found.entries:
        if entry.reason:
            names.setdefault(entry.reason, []).append(entry.name)
    return names


def _chosen_rows(options: argparse.Namespace) -> tuple[Row, ...]:
    rows = listed() if options.extra is None else drawn(options.extra, options.count)
    return choose(rows, _families(options), options.rows)


def _families(options: argparse.Namespace) -> list[str]:
    return list(filter(None, options.family.split(",")))
