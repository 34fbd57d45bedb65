"""Worker processes: what they answer, and that losing one loses its task alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tuning_tasks as tasks

from selector.diagnostics import UserError
from selector.tuning.executor import Done, Executor, Kind, Shared, Task
from selector.tuning.inline import InlineExecutor
from selector.tuning.local import LocalExecutor

pytestmark = pytest.mark.verified


@pytest.fixture
def executor() -> Iterator[LocalExecutor]:
    executor = LocalExecutor(2)
    yield executor
    executor.close()


def task(number: int, function: Callable[..., Any], *arguments: Any, **fields: Any) -> Task:
    fields = {"kind": Kind.COMPILE, "seconds": 60.0, **fields}
    return Task(number, function=function, arguments=arguments, **fields)


def answers(executor: Executor, count: int, patience: float = 60) -> dict[int, Done]:
    found: dict[int, Done] = {}
    until = time.monotonic() + patience
    while len(found) < count:
        assert time.monotonic() < until, f"{len(found)} of {count} answers"
        found |= {done.number: done for done in executor.wait(1.0)}
    return found


def test_values_come_back_by_number(executor: LocalExecutor) -> None:
    for i in range(5):
        executor.submit(task(i, tasks.add, i, 10))
    assert {n: d.value for n, d in answers(executor, 5).items()} == {i: i + 10 for i in range(5)}
    assert len(executor.processes) == 2
    assert executor.room(Kind.COMPILE) == 2
    assert executor.room(Kind.TIME) == 1


def test_what_is_printed_does_not_disturb(executor: LocalExecutor) -> None:
    executor.submit(task(0, tasks.talk, "aloud"))
    assert answers(executor, 1)[0].value == "aloud"


@pytest.mark.parametrize(
    ("function", "kind", "reason"),
    [
        (tasks.refuse, "ScheduleError", "no such schedule\n  why:   it is a test"),
        (tasks.stumble, "ValueError", "ValueError: seven"),
        (tasks.leave, "SystemExit", "SystemExit: 3"),
        (tasks.crash, "lost", "its process ended by SIGSEGV: last words"),
        (tasks.spoil, "RuntimeError", "RuntimeError: the context is lost"),
        (lambda: None, "PicklingError", "cannot be sent"),
    ],
)
def test_a_failure_says_why_and_others_go_on(
    executor: LocalExecutor, function: Callable[..., Any], kind: str, reason: str
) -> None:
    executor.submit(task(0, function))
    for i in range(1, 4):
        executor.submit(task(i, tasks.add, i, i))
    found = answers(executor, 4)
    failure = found[0].failure
    assert failure is not None
    assert failure.kind == kind
    assert reason in failure.reason
    assert [found[i].value for i in range(1, 4)] == [2, 4, 6]


def test_a_spoiled_process_is_replaced(executor: LocalExecutor) -> None:
    numbers = []
    for function in (tasks.process, tasks.spoil, tasks.process):
        executor.submit(task(0, function, kind=Kind.TIME))
        numbers.append(answers(executor, 1)[0].value)
    assert numbers[0] != numbers[2]


def test_a_task_behind_a_spoiled_process_gets_another(executor: LocalExecutor) -> None:
    for number in range(0, 6, 2):
        executor.submit(task(number, tasks.spoil, kind=Kind.TIME))
        executor.submit(task(number + 1, tasks.add, number, 1, kind=Kind.TIME))
    found = answers(executor, 6)
    assert [found[n].value for n in (1, 3, 5)] == [1, 3, 5]


def test_a_late_task_is_stopped(executor: LocalExecutor) -> None:
    executor.submit(task(0, tasks.sleep, 60, seconds=0.5))
    executor.submit(task(1, tasks.sleep, 0.1, seconds=30))
    found = answers(executor, 2)
    assert found[0].failure is not None
    assert found[0].failure.kind == "late"
    assert "stopped after" in found[0].failure.reason
    assert found[1].value == 0.1
    executor.submit(task(2, tasks.add, 1, 1))
    assert answers(executor, 1)[2].value == 2


def test_shared_values_are_sent_once(executor: LocalExecutor) -> None:
    heavy = Shared("heavy", tasks.Heavy(np.ones(1000)))
    for i in range(3):
        executor.submit(task(i, tasks.weigh, i, kind=Kind.TIME, shared=heavy))
    found = answers(executor, 3)
    assert [found[i].value for i in range(3)] == [(1, 1000), (1, 1001), (1, 1002)]
    other = Shared("other", tasks.Heavy(np.zeros(1)))
    executor.submit(task(3, tasks.weigh, 5, kind=Kind.TIME, shared=other))
    assert answers(executor, 1)[3].value == (2, 5)


def test_no_worker_outlives_its_executor(executor: LocalExecutor) -> None:
    executor.submit(task(0, tasks.sleep, 60))
    executor.submit(task(1, tasks.process))
    other = answers(executor, 1)[1].value
    processes = executor.processes
    assert other in processes
    executor.close()
    assert not any(map(alive, processes))


def test_no_worker_outlives_a_killed_caller(tmp_path: Path) -> None:
    script = tmp_path / "caller.py"
    script.write_text(
        "import time, tuning_tasks as tasks\n"
        "from selector.tuning import Kind, LocalExecutor, Task\n"
        "executor = LocalExecutor(1)\n"
        "executor.submit(Task(0, Kind.COMPILE, tasks.process, (), 60.0))\n"
        "done = []\n"
        "while not done:\n"
        "    done = executor.wait(1.0)\n"
        "executor.submit(Task(1, Kind.COMPILE, tasks.sleep, (60,), 60.0))\n"
        "print(done[0].value, flush=True)\n"
        "time.sleep(60)\n"
    )
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    caller = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, env=variables)
    assert caller.stdout is not None
    worker = int(caller.stdout.readline())
    assert alive(worker)
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    until = time.monotonic() + 60
    while alive(worker) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(worker)


def alive(process: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_nothing_compiles_without_workers() -> None:
    with pytest.raises(UserError, match="0 workers"):
        LocalExecutor(0)


def test_in_the_calling_process() -> None:
    executor = InlineExecutor()
    assert executor.room(Kind.COMPILE) == 1
    executor.submit(task(0, lambda a: a, 4))
    assert executor.room(Kind.COMPILE) == 0
    assert executor.room(Kind.TIME) == 1
    executor.submit(task(1, tasks.stumble))
    executor.submit(task(2, tasks.spoil, kind=Kind.TIME))
    executor.submit(task(3, tasks.process, shared=Shared("s", 1)))
    found = answers(executor, 4)
    assert found[0].value == 4
    assert found[1].failure is not None
    assert found[1].failure.reason == "ValueError: seven"
    assert found[2].failure is not None
    assert "context" in found[2].failure.reason
    assert found[3].value == os.getpid()
    assert not executor.wait(0)
