"""Tuning on a Ray cluster of several nodes, one of which is killed while it runs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is not installed (extra `ray`)")
pytest.importorskip("halide")

import tuning_tasks as tasks

import halide_bridge as hb
from selector.tuning import Done, Failure, Kind, RayExecutor, Shared, Status, Task, on_ray

pytestmark = [pytest.mark.slow, pytest.mark.nvrtc, pytest.mark.verified]


def started(make: Any) -> Any:
    """The cluster; Ray gives a node 30 seconds to start, too few on a machine that is busy."""
    head = {"num_cpus": 0, "include_dashboard": False}
    for attempt in range(4):
        found = make()
        try:
            found.add_node(**head)
            found.lasting = found.add_node(num_cpus=1, num_gpus=1)
        except Exception as error:
            found.shutdown()
            if attempt == 3 or "timed out during startup" not in str(error):
                raise
        else:
            return found
    raise AssertionError


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that runs no tasks, and a node with a processor and what it says is a GPU."""
    import ray
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # nodes and their workers inherit it
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    found = started(Cluster)
    ray.init(address=found.address, log_to_driver=False)
    yield found
    ray.shutdown()
    found.shutdown()


@pytest.fixture
def executor(cluster: Any) -> Iterator[RayExecutor]:
    executor = RayExecutor(attempts=2)
    yield executor
    executor.close()


def task(number: int, function: Any, *arguments: Any, **fields: Any) -> Task:
    fields = {"kind": Kind.COMPILE, "seconds": 120.0, **fields}
    return Task(number, function=function, arguments=arguments, **fields)


def answers(executor: RayExecutor, count: int) -> dict[int, Done]:
    found: dict[int, Done] = {}
    until = time.monotonic() + 240
    while len(found) < count and time.monotonic() < until:
        found |= {done.number: done for done in executor.wait(1.0)}
    return found


def test_values_failures_and_lost_workers(executor: RayExecutor) -> None:
    heavy = Shared("heavy", 5)
    executor.submit(task(0, tasks.add, 1, 2))
    executor.submit(task(1, tasks.refuse))
    executor.submit(task(2, tasks.crash))
    executor.submit(task(3, tasks.add, 4, shared=heavy, kind=Kind.TIME))
    executor.submit(task(4, tasks.spoil, kind=Kind.TIME))
    executor.submit(task(5, tasks.add, 6, shared=heavy, kind=Kind.TIME))
    found = answers(executor, 6)
    assert (found[0].value, found[3].value, found[5].value) == (3, 9, 11)
    reasons = {n: d.failure.reason for n, d in found.items() if d.failure is not None}
    assert reasons.keys() == {1, 2, 4}
    assert reasons[1].startswith("no such schedule")
    assert reasons[2].startswith("lost 2 workers")
    assert "context is lost" in reasons[4]


def test_a_limit_is_that_of_the_task(executor: RayExecutor) -> None:
    """It counts from the beginning, whatever the task is doing then, and not from when a worker was
    asked for.
    """
    executor.submit(task(0, tasks.add, 1, 2))
    assert answers(executor, 1)[0].value == 3  # there is a worker
    start = time.monotonic()
    executor.submit(task(1, tasks.sleep, 600, seconds=1.0))
    executor.submit(task(2, tasks.add, 3, 4, seconds=30.0))
    found = answers(executor, 2)
    assert found[1].failure == Failure("late", "stopped after 1 s")
    assert found[2].value == 7
    assert time.monotonic() - start < 45


def test_a_silent_node_is_noticed(
    executor: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not answer when its time is over is begun again elsewhere: it has not failed."""
    monkeypatch.setattr(on_ray, "SILENT_SECONDS", 3.0, raising=False)
    executor.submit(task(0, tasks.freeze, str(tmp_path / "once"), seconds=2.0))
    found = answers(executor, 1)
    assert (found[0].value, found[0].failure) == ("thawed", None)


def test_a_cluster_that_has_lost_its_processors(
    executor: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tuning is told, and does not wait for ever."""
    monkeypatch.setattr(on_ray, "START_SECONDS", 1.0)
    monkeypatch.setattr(executor._ray, "cluster_resources", dict)
    assert executor.room(Kind.COMPILE) == 1
    executor.submit(task(0, tasks.add, 1, 2))
    assert answers(executor, 1)[0].failure == Failure("TargetError", "the cluster has no CPU")


def test_a_killed_node_loses_no_result(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELECTOR_CACHE_DIR", str(tmp_path))
    doomed = cluster.add_node(num_cpus=1, num_gpus=1)
    cluster.wait_for_nodes()
    seen: list[int] = []

    def watch(trial: Any) -> None:
        seen.append(trial.index)
        if len(seen) == 2:
            cluster.remove_node(doomed, allow_graceful=False)

    space = {"width": range(40, 60, 4)}
    options = {"target": "sm_80", "measure": tasks.measure, "limit": 120.0, "device": "any"}
    result = hb.tune(tasks.double, space, executor=RayExecutor(), progress=watch, **options)
    assert [t.status for t in result.trials] == [Status.TIMED] * 5
    assert result.best.settings == {"width": 56}
    again = hb.tune(tasks.double, space, executor=RayExecutor(), **options)
    assert all(t.cached for t in again.trials)
