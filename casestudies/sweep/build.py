"""The half of the sweep that compiles: a kernel for each program of the rows, in processes of their
own. Needs Halide and NVRTC, no GPU.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from casestudies.common.case import Problem
from casestudies.common.progress import say
from casestudies.common.registry import find_case
from casestudies.measuring.artifacts import Job, problem_of
from casestudies.sweep import folder as folders
from casestudies.sweep.folder import Entry, Sweep
from casestudies.sweep.problems import problem_of as problem_of_row
from casestudies.sweep.rows import Row
from selector.diagnostics import PerformanceWarning, UserError


def build(folder: Path, rows: Sequence[Row], target: str, workers: int) -> Sweep:
    """Compile what the rows need into the folder, each program once, and write the sweep there."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = [_entry(row) for row in rows]
    programs: dict[str, Entry] = {}
    for entry in entries:
        if not entry.reason:
            programs.setdefault(_file(entry), entry)
    failures = _compile_all(programs, folder, target, workers)
    done = [_finished(entry, failures) for entry in entries]
    sweep = Sweep(target, tuple(done))
    folders.write(folder, sweep)
    return sweep


def _entry(row: Row) -> Entry:
    """A row, and its problem or the reason why it has none."""
    entry = Entry(row.family, row.group, row.name)
    try:
        case, problem = problem_of_row(row)
        name = problem.name  # which says of some what blocks do
    except UserError as error:
        return dataclasses.replace(entry, reason=_reason(error))
    fields = dataclasses.asdict(problem)  # type: ignore[call-overload]
    return dataclasses.replace(entry, case=case, problem=name, fields=fields)


def _file(entry: Entry) -> str:
    return f"{instance(entry).program}.kernel"


def instance(entry: Entry) -> Problem:
    return problem_of(Job(entry.case, "", dict(entry.fields)))


def _finished(entry: Entry, failures: dict[str, str]) -> Entry:
    if entry.reason:
        return entry
    file = _file(entry)
    if file in failures:
        return dataclasses.replace(entry, reason=failures[file])
    return dataclasses.replace(entry, file=file)


def _compile_all(
    programs: dict[str, Entry], folder: Path, target: str, workers: int
) -> dict[str, str]:
    """The reasons of those that are refused, by file."""
    failures: dict[str, str] = {}
    if not programs:
        return failures
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting: dict[Future[str], str] = {
            pool.submit(compile_entry, entry, folder / file, target): file
            for file, entry in programs.items()
        }
        for number, future in enumerate(as_completed(waiting), 1):
            file = waiting[future]
            reason = future.result()
            say(f"  {number}/{len(waiting)} {file}{': ' * bool(reason)}{reason}")
            if reason:
                failures[file] = reason
    return failures


def compile_entry(entry: Entry, path: Path, target: str) -> str:
    """Compile and save the kernel of an entry; the reason why there is none, or nothing."""
    import halide_bridge as hb

    problem: Any = instance(entry)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerformanceWarning)
            output = find_case(entry.case).scheduled(problem, "tensor", target)
            hb.compile(output, target=target).save(path, overwrite=True)
    except UserError as error:
        return _reason(error)
    except Exception as error:  # a fault of ours is a row as well, the others are still compiled
        return f"{type(error).__name__}: {error}"
    return ""


def _reason(error: UserError) -> str:
    return f"{error.what} ({error.why})" if error.why else error.what
