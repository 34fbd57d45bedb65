"""The half of the sweep that measures: the kernels of a folder beside the libraries, row by row.
Needs NumPy, CuPy and torch; neither Halide nor the rule engine.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from casestudies.common.progress import say
from casestudies.measuring.measure import row_of
from casestudies.measuring.record import OURS, Record
from casestudies.measuring.tasks import Task
from casestudies.measuring.worker import supervise
from casestudies.sweep.folder import Entry, Sweep
from casestudies.sweep.problems import libraries_of
from selector.diagnostics import UserError

PATIENCE = 90.0  # seconds without news after which a contender counts as lost


def measure(
    folder: Path, sweep: Sweep, chosen: Sequence[str], results: Path, seed: int, seconds: float
) -> Record:
    """Measure the rows of those names, as many as are begun in so many seconds, and go on where the
    results' file ends if there is one. ``UserError`` if that file is of another sweep.
    """
    record = _record(results, sweep, seed)
    known = {row.problem for row in record.rows if row.contender == OURS}
    entries = [entry for entry in sweep.entries if entry.name in chosen and entry.file]
    tasks = {e.problem: task_of(e) for e in entries if e.problem not in known}
    say(f"{len(tasks)} problems to measure, {len(known)} known, seed {record.seed}")
    if tasks:
        until = time.monotonic() + seconds
        supervise(list(tasks.values()), folder, record.seed, record, PATIENCE, seconds, until=until)
    record.write()
    return record


def task_of(entry: Entry) -> Task:
    """What there is to measure of a row."""
    task = Task(
        entry.case, dict(entry.fields), ((OURS, entry.file),), peers=True, quick=True
    )  # fmt: skip
    wanted = libraries_of(entry.case, task.instance())
    others = tuple(peer.name for peer in task.libraries if peer.name not in wanted)
    return task.leaving_out(others)


def _record(path: Path, sweep: Sweep, seed: int) -> Record:
    """The record that the file has, or a new one."""
    about = {"sweep": sweep.as_dict()}
    if not path.exists():
        return Record(path, seed, about=about)
    data = json.loads(path.read_text(encoding="utf-8"))
    if data.get("sweep") != json.loads(json.dumps(about["sweep"])):
        raise UserError(
            f"{path} has the results of another sweep", hint="name another file with --results"
        )
    kept = {key: value for key, value in data.items() if key not in ("rows", "seed", "ceilings")}
    return Record(path, data["seed"], [row_of(row) for row in data["rows"]], kept)
