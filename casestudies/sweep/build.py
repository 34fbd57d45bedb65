"""The half of the sweep that compiles: a kernel for each program of the rows, in processes of their
own. Needs Halide and NVRTC, no GPU.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from casestudies.common.case import Case, Problem
from casestudies.common.progress import say
from casestudies.common.registry import find_case
from casestudies.measuring.artifacts import Job, problem_of
from casestudies.sweep import folder as folders
from casestudies.sweep.folder import Entry, Sweep
from casestudies.sweep.problems import problem_of as problem_of_row
from casestudies.sweep.problems import unscheduled
from casestudies.sweep.rows import Row
from selector.diagnostics import PerformanceWarning, UserError

NOT = "not on a tensor unit: "  # in the report of a schedule


def build(folder: Path, rows: Sequence[Row], target: str, workers: int) -> Sweep:
    """Compile what the rows need into the folder, each program once, and write the sweep there."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = [entry for row in rows for entry in _entries(row)]
    programs: dict[str, list[Entry]] = {}
    for entry in entries:
        if not entry.reason:
            programs.setdefault(_file(entry), []).append(entry)
    made = _compile_all(programs, folder, target, workers)
    done = [_finished(entry, made) for entry in entries]
    sweep = Sweep(target, tuple(done))
    folders.write(folder, sweep)
    return sweep


def _entries(row: Row) -> list[Entry]:
    """A row, and its problem or the reason why it has none; and once more with the compiler's own
    schedule, where it has another.
    """
    layout = row.fields.get("layout") if row.family == "conv" else None  # what peers differ by
    entry = Entry(row.family, f"{row.group} {layout}" if layout else row.group, row.name)
    try:
        found = [_entry(entry, *problem_of_row(row))]
    except UserError as error:
        return [dataclasses.replace(entry, reason=_reason(error))]
    again = unscheduled(row)
    if again is not None:
        found.append(_entry(dataclasses.replace(entry, name=f"{row.name}-auto"), *again))
    return found


def _entry(entry: Entry, case: str, problem: Problem) -> Entry:
    """With its problem, whose name says of some what blocks do."""
    name = problem.name
    fields = dataclasses.asdict(problem)  # type: ignore[call-overload]
    schedule = "auto" if find_case(case).plain else ""
    return dataclasses.replace(entry, case=case, problem=name, fields=fields, schedule=schedule)


def _file(entry: Entry) -> str:
    return f"{instance(entry).program}.kernel"


def _work(entry: Entry) -> int:
    """Of those of a program the largest counts."""
    return instance(entry).multiply_adds


def instance(entry: Entry) -> Problem:
    return problem_of(Job(entry.case, "", dict(entry.fields)))


def _finished(entry: Entry, made: dict[str, Made]) -> Entry:
    if entry.reason:
        return entry
    file = _file(entry)
    if made[file].reason:
        return dataclasses.replace(entry, reason=made[file].reason)
    return dataclasses.replace(entry, file=file, cores=made[file].cores)


def _compile_all(
    programs: dict[str, list[Entry]], folder: Path, target: str, workers: int
) -> dict[str, Made]:
    """What became of them, by file."""
    made: dict[str, Made] = {}
    if not programs:
        return made
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting: dict[Future[Made], str] = {
            pool.submit(compile_entries, entries, folder / file, target): file
            for file, entries in programs.items()
        }
        for number, future in enumerate(as_completed(waiting), 1):
            file = waiting[future]
            made[file] = future.result()
            reason = made[file].reason
            say(f"  {number}/{len(waiting)} {file}{': ' * bool(reason)}{reason}")
    return made


@dataclass(frozen=True, slots=True)
class Made:
    """Why there is no kernel, or nothing; and why sums of it are not on tensor units."""

    reason: str = ""
    cores: str = ""


def compile_entries(entries: Sequence[Entry], path: Path, target: str) -> Made:
    """Compile and save the kernel of some entries, which have the same program."""
    problems: list[Any] = [instance(entry) for entry in sorted(entries, key=_work)]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerformanceWarning)
            return _compiled(find_case(entries[0].case), problems, target, path)
    except UserError as error:
        return Made(_reason(error))
    except Exception as error:  # a fault of ours is a row as well, the others are still compiled
        return Made(f"{type(error).__name__}: {error}")


def _compiled(case: Case, problems: Sequence[Any], target: str, path: Path) -> Made:
    """Of the case's schedule for the largest, or of those that a plain algorithm gets for the
    classes of these sizes.
    """
    import halide_bridge as hb

    largest = problems[-1]
    if case.plain is None:
        output = case.scheduled(largest, "tensor", target)
        hb.compile(output, target=target).save(path, overwrite=True)
        return Made()
    sizes = [{spec.name: spec.shape for spec in (*p.inputs, p.output)} for p in problems]
    output = case.plain(largest)
    hb.compile(output, target=target, schedule="auto", sizes=sizes).save(path, overwrite=True)
    return Made(cores=on_cores(hb.autoschedule(output, target=target, sizes=sizes[-1]).report))


def on_cores(report: str) -> str:
    """The reasons that a schedule's report has."""
    found = [line.strip() for line in report.splitlines() if line.strip().startswith(NOT)]
    return "; ".join(dict.fromkeys(line.removeprefix(NOT) for line in found))


def _reason(error: UserError) -> str:
    return f"{error.what} ({error.why})" if error.why else error.what
