"""What is to be measured of saved kernels, task by task: one problem, and whatever can do it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from casestudies.common import artifacts
from casestudies.common.artifacts import Manifest
from casestudies.common.case import Case, Problem
from casestudies.common.measure import (
    Contender,
    Row,
    blank_row,
    device_name,
    kernel_contender,
    measure,
    peer,
    stock_contender,
)
from casestudies.common.registry import find_case


@dataclass(frozen=True, slots=True)
class Task:
    """A problem of a case. ``kernels``: contender and file; ``stock``: schedule, file and the order
    of the buffers; ``peers``: the libraries, too.
    """

    case: str
    problem: dict[str, Any]
    kernels: tuple[tuple[str, str], ...]
    stock: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    peers: bool = False
    timed: bool = True

    @property
    def study(self) -> Case:
        return find_case(self.case)

    def instance(self) -> Problem:
        """The problem; ``TypeError`` if the fields are not the case's."""
        return artifacts.problem_of(artifacts.Job(self.case, "", self.problem))


@dataclass(frozen=True, slots=True)
class Choice:
    """Which jobs of a manifest to take."""

    cases: tuple[str, ...] = ()
    match: str = ""
    kinds: tuple[str, ...] = ("small", "benchmark")
    peers: bool = True


def tasks_of(manifest: Manifest, choice: Choice) -> list[Task]:
    """The jobs of a manifest: small ones are checked, benchmark ones timed beside the baselines and
    libraries.
    """
    tasks: list[Task] = []
    for job in manifest.jobs:
        problem = artifacts.problem_of(job)
        if choice.cases and job.case not in choice.cases:
            continue
        if job.kind not in choice.kinds or not re.search(choice.match, problem.name):
            continue
        kernels = tuple(
            (k.schedule, k.file) for k in manifest.kernels if k.program == problem.program
        )
        if job.kind != "benchmark":
            tasks.append(Task(job.case, job.problem, kernels, timed=False))
            continue
        stock = tuple(
            (s.schedule, s.file, s.order) for s in manifest.stock if s.problem == problem.name
        )
        peers = choice.peers and problem in find_case(job.case).compared
        tasks.append(Task(job.case, job.problem, kernels, stock, peers))
    return tasks


def variants(folder: Path) -> list[Task]:
    """One task for each ``X.kernel`` below a folder with an ``X.json`` beside it: ``{"case": name,
    "problem": {fields}}``.
    """
    tasks: list[Task] = []
    for path in sorted(Path(folder).rglob("*.kernel")):
        about = path.with_suffix(".json")
        if about.exists():
            data = json.loads(about.read_text(encoding="utf-8"))
            label = str(path.relative_to(folder).with_suffix(""))
            file = str(path.relative_to(folder))
            tasks.append(Task(data["case"], data["problem"], ((label, file),)))
    return tasks


def run_task(task: Task, folder: Path, seed: int) -> Iterator[Row]:
    """The rows of a task, one after the other; what cannot be loaded is a row as well."""
    case, problem = task.study, task.instance()
    failures: list[Row] = []
    if not task.kernels:
        missing = "not in the artifacts: it did not compile"
        yield blank_row(case, problem, device_name(), missing)
    contenders = _contenders(task, problem, folder, failures)
    for row in measure(case, problem, contenders, seed, task.timed):
        yield from _taken(failures)
        yield row
    yield from _taken(failures)


def _taken(failures: list[Row]) -> list[Row]:
    found = list(failures)
    failures.clear()
    return found


def _contenders(
    task: Task, problem: Problem, folder: Path, failures: list[Row]
) -> Iterator[Contender]:
    """Each loaded when its turn comes, so that one that cannot be loaded does not stop the rest."""
    from selector import load

    for name, file in task.kernels:
        try:
            yield kernel_contender(load(folder / file), name)
        except Exception as error:
            failures.append(_failed(task, problem, name, error))
    for schedule, file, order in task.stock:
        try:
            yield stock_contender(folder / file, problem, order, schedule)
        except Exception as error:
            failures.append(_failed(task, problem, "stock Halide", error))
    if task.peers:
        yield from (peer(problem, p) for p in task.study.peers)


def _failed(task: Task, problem: Problem, name: str, error: Exception) -> Row:
    failure = f"{type(error).__name__}: {error}"
    row = blank_row(task.study, problem, device_name(), failure)
    return dataclasses.replace(row, contender=name)
