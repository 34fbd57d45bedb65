"""Measuring tasks in a process of its own, so that a kernel that destroys the GPU's context, or
never ends, costs itself alone.

    python -m casestudies.measuring.worker FOLDER SEED EVENTS SECONDS_FOR_LIBRARIES < tasks

``supervise`` starts it, reads its events, and starts another one for the tasks behind a lost one.
An event is a line of JSON: ``{"device": ...}``, ``{"begin": index}``, ``{"trying": contender}``,
``{"left_out": contender}``, ``{"row": ...}``, ``{"end": index}``.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TextIO

from casestudies.measuring.measure import Contender, Row, blank_row, row_of
from casestudies.measuring.memory import free_memory
from casestudies.measuring.record import OURS, Record
from casestudies.measuring.tasks import Task, run_task
from selector.diagnostics import UserError
from selector.machine.device import device_name

ROOT = Path(__file__).resolve().parents[2]
POLL_SECONDS = 0.1
LOST_CONTEXT = 3  # exit code


def supervise(
    tasks: Sequence[Task],
    folder: Path,
    seed: int,
    record: Record,
    patience: float = 120.0,
    purse: float = 200.0,
    command: Sequence[str] = (sys.executable, "-m", "casestudies.measuring.worker"),
    until: float = math.inf,
) -> None:
    """Fill a record with the rows of all tasks and with what they were measured on. ``patience``:
    seconds without any news after which a contender counts as lost; ``purse``: seconds for the
    libraries, all together; ``until``: when (``time.monotonic``) no other task is begun.
    ``UserError`` where no task can be begun.
    """
    waiting = deque(tasks)
    lost_files: set[str] = set()
    while waiting and time.monotonic() <= until:
        todo = [_without(task, lost_files, record) for task in waiting]
        begun, ended, trying = -1, -1, ""
        events = _events(command, todo, folder, (str(seed), str(purse)), patience)
        for event in _until(until, events):
            match event:
                case {"begin": int(index)}:
                    begun, trying = index, ""
                case {"trying": str(trying), "purse": float(purse)}:
                    pass
                case {"left_out": str(name)}:
                    left_out = record.about.setdefault("left_out", [])
                    left_out.append(f"{todo[begun].name}: {name}")
                case {"end": int(index)}:
                    ended = index
                case {"row": data}:
                    record.add(row_of(data))
                case {"lost": str(why)} if begun < 0:
                    raise UserError("nothing can be measured here", why=why)
                case {"lost": str(why)} if ended < begun:
                    waiting[begun] = _lose(todo[begun], trying, why, record, lost_files)
                    begun -= not waiting[begun].empty  # what is left of it comes first
                case {"device": _}:
                    record.about |= event
                case _:
                    pass
        for _ in range(begun + 1):
            waiting.popleft()


def _until(until: float, events: Generator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The events up to the first end of a task after that time."""
    with closing(events):
        for event in events:
            yield event
            if "end" in event and time.monotonic() > until:
                return


def measure_here(
    tasks: Sequence[Task], folder: Path, seed: int, record: Record, purse: float
) -> None:
    """The same in this process, for tools that watch one: what is lost takes the rest with it."""

    def say(**event: Any) -> None:
        match event:
            case {"row": data}:
                record.add(row_of(data))
            case {"device": _}:
                record.about |= event
            case _:
                pass

    if work(tasks, folder, seed, Purse(purse, say), say) != 0:
        record.add(lost_row(tasks[-1], str(record.about.get("device", "")), "the context was lost"))


def _lose(task: Task, trying: str, why: str, record: Record, lost: set[str]) -> Task:
    """Note that a contender was lost; what is left of its task: all others that have no row yet,
    since times of several are known only when all rounds are over.
    """
    if not _said(record, task, trying):
        record.add(lost_row(task, str(record.about.get("device", "")), why, trying))
    lost |= {file for name, file in task.kernels if name == trying}
    if not trying:  # it is the data or the reference that cannot be made
        return dataclasses.replace(task, kernels=(), stock=(), peers=False, rest=True)
    return task.without({row.contender for row in record.rows if row.problem == task.name})


def _without(task: Task, lost: set[str], record: Record) -> Task:
    """A task without kernels that were lost in another: they would cost the patience again."""
    for name, file in task.kernels:
        if file in lost and not _said(record, task, name):
            device = str(record.about.get("device", ""))
            record.add(lost_row(task, device, "not tried: lost at another size", name))
    kept = tuple((name, file) for name, file in task.kernels if file not in lost)
    if kept == task.kernels:
        return task
    return dataclasses.replace(task, kernels=kept, rest=True)


def _said(record: Record, task: Task, contender: str) -> bool:
    """Whether there is a row of that contender already."""
    return any((row.problem, row.contender) == (task.name, contender) for row in record.rows)


def lost_row(task: Task, device: str, why: str, contender: str = "") -> Row:
    """The row of a contender that could not be measured to its end, ours if none had begun."""
    try:
        row = blank_row(task.study, task.instance(), device, why)
    except (TypeError, ValueError, UserError):  # there is no such problem
        row = Row(task.case, task.name, "", "", None, 0.0, None, 0, 0, why)
    ours = task.kernels[0][0] if task.kernels else OURS
    return dataclasses.replace(row, contender=contender or ours)


def _events(
    command: Sequence[str],
    tasks: Sequence[Task],
    folder: Path,
    given: tuple[str, str],
    patience: float,
) -> Generator[dict[str, Any]]:
    """The events of one worker; ``{"lost": why}`` last if it did not come to its end."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "events")
        path.touch()
        listed = Path(scratch, "tasks.json")
        listed.write_text(json.dumps([dataclasses.asdict(t) for t in tasks]), encoding="utf-8")
        path_list = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        variables = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, path_list)),
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # jax would take most of the memory
        }
        with (
            Path(scratch, "stderr").open("w+", encoding="utf-8", errors="replace") as errors,
            listed.open(encoding="utf-8") as source,
            subprocess.Popen(
                [*command, str(folder), given[0], str(path), given[1]],
                stdin=source, stdout=errors, stderr=errors, env=variables,
            ) as process,
            path.open(encoding="utf-8") as file,
        ):  # fmt: skip
            try:
                yield from _follow(process, file, patience)
            finally:
                process.kill()
            if process.wait() != 0:
                errors.seek(0)
                yield {"lost": _why(process.returncode, errors.read(), patience)}


def _follow(
    process: subprocess.Popen[bytes], file: TextIO, patience: float
) -> Iterator[dict[str, Any]]:
    """Lines of the file as they come, until the process ends or is silent for too long."""
    heard = time.monotonic()
    text = ""
    while True:
        ended = process.poll() is not None
        text += file.read()
        *lines, text = text.split("\n")
        if lines:
            heard = time.monotonic()
            yield from map(json.loads, lines)
        if ended or time.monotonic() - heard > patience:
            return
        time.sleep(POLL_SECONDS)


def _why(code: int, text: str, patience: float) -> str:
    if code == LOST_CONTEXT:
        return "the GPU's context was lost"
    last = (text.strip().splitlines() or [""])[-1]
    if code == -9:
        return f"stopped: no answer for {patience:.0f} s"
    return f"the process ended with code {code}: {last}"[:300]


class Purse:
    """The seconds that are left for libraries, some of which compile at length when called; tells
    ``say`` whose turn it is.
    """

    def __init__(self, seconds: float, say: Callable[..., None]) -> None:
        self.seconds = seconds
        self._say = say
        self._since: float | None = None

    def allows(self, contender: Contender) -> bool:
        """Whether a contender is to be measured, which then begins."""
        self.close()
        if not contender.ours and self.seconds <= 0:
            self._say(left_out=contender.name)
            return False
        self.turn(contender)
        return True

    def turn(self, contender: Contender) -> None:
        """The contender's next launches begin."""
        self.close()
        self._since = None if contender.ours else time.monotonic()
        self._say(trying=contender.name, purse=self.seconds)

    def close(self) -> None:
        """What the last contender was at is done."""
        if self._since is not None:
            self.seconds -= time.monotonic() - self._since
        self._since = None


def work(
    tasks: Sequence[Task], folder: Path, seed: int, purse: Purse, say: Callable[..., None]
) -> int:
    """Measure the tasks, telling ``say`` the fields of each event; the exit code."""
    import cupy

    from casestudies.measuring.machine import graphics

    say(**graphics())
    for index, task in enumerate(tasks):
        say(begin=index)
        begin = time.perf_counter()
        try:
            for row in run_task(task, folder, seed, purse):
                say(row=row.as_dict())
                if row.failure:
                    cupy.cuda.Device().synchronize()
            free_memory()
        except cupy.cuda.runtime.CUDARuntimeError:
            return LOST_CONTEXT
        except Exception as error:  # its data or its reference cannot be made
            failure = f"{type(error).__name__}: {error}"
            say(row=lost_row(task, device_name(), failure).as_dict())
        purse.close()
        say(end=index, seconds=time.perf_counter() - begin)
    return 0


def main() -> int:
    folder, seed, events, seconds = sys.argv[1:5]
    tasks = [Task(**_tuples(data)) for data in json.load(sys.stdin)]
    with Path(events).open("a", encoding="utf-8", buffering=1) as file:

        def say(**event: Any) -> None:
            print(json.dumps(event), file=file)

        return work(tasks, Path(folder), int(seed), Purse(float(seconds), say), say)


def _tuples(data: dict[str, Any]) -> dict[str, Any]:
    """The fields of a task, lists of JSON as the tuples that they were."""
    kernels = tuple((name, file) for name, file in data["kernels"])
    stock = tuple((name, file, tuple(order)) for name, file, order in data["stock"])
    return data | {"kernels": kernels, "stock": stock, "done": tuple(data["done"])}


if __name__ == "__main__":
    os._exit(main())  # libraries' own processes may make an ordinary end long
