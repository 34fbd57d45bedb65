"""What is to be measured of saved kernels, task by task: one problem, and whatever can do it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from casestudies.common.case import Case, Peer, Problem
from casestudies.common.registry import find_case
from casestudies.measuring import artifacts
from casestudies.measuring.artifacts import Manifest
from casestudies.measuring.measure import (
    ANYONE,
    QUICK,
    USUAL,
    Contender,
    Row,
    Watch,
    blank_row,
    kernel_contender,
    measure,
    peer,
    stock_contender,
    stock_name,
)
from selector.diagnostics import UserError
from selector.machine.device import device_name


@dataclass(frozen=True, slots=True)
class Task:
    """A problem of a case. ``kernels``: contender and file; ``stock``: schedule, file and the order
    of the buffers; ``peers``: the libraries, too, but those in ``done``; ``rest``: others have been
    measured before. ``quick``: timed in less time, as one of many.
    """

    case: str
    problem: dict[str, Any]
    kernels: tuple[tuple[str, str], ...]
    stock: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    peers: bool = False
    timed: bool = True
    rest: bool = False
    done: tuple[str, ...] = ()
    quick: bool = False

    def without(self, names: Collection[str]) -> Task:
        """What is left to do once those contenders have been measured, or lost."""
        return replace(
            self,
            kernels=tuple(k for k in self.kernels if k[0] not in names),
            stock=tuple(s for s in self.stock if stock_name(s[0]) not in names),
            done=tuple(sorted({*self.done, *names})),
            rest=True,
        )

    def leaving_out(self, libraries: Collection[str]) -> Task:
        """The task without those libraries."""
        return replace(self, done=tuple(sorted({*self.done, *libraries})))

    @property
    def libraries(self) -> tuple[Peer, ...]:
        """The libraries that are to be measured."""
        return tuple(p for p in self.study.peers if p.name not in self.done) if self.peers else ()

    @property
    def empty(self) -> bool:
        return not (self.kernels or self.stock or self.libraries)

    @property
    def study(self) -> Case:
        return find_case(self.case)

    def instance(self) -> Problem:
        """The problem; ``TypeError`` if the fields are not the case's, ``UserError`` if there is no
        such problem.
        """
        return artifacts.problem_of(artifacts.Job(self.study.name, "", self.problem))

    @property
    def name(self) -> str:
        """The problem's; its fields where it cannot be made."""
        try:
            return self.instance().name
        except (TypeError, ValueError, UserError):
            return f"{self.case} {json.dumps(self.problem)}"


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


def variants(folder: Path, match: str = "") -> list[Task]:
    """A task for each problem of the ``X.kernel`` below a folder that have an ``X.json`` beside
    them, ``{"case": name, "problem": {fields}}``; ``match`` chooses by the label X.
    """
    found: dict[str, Task] = {}
    for path in sorted(Path(folder).rglob("*.kernel")):
        about = path.with_suffix(".json")
        file = path.relative_to(folder)
        label = str(file.with_suffix(""))
        if not about.exists() or not re.search(match, label):
            continue
        data = json.loads(about.read_text(encoding="utf-8"))
        key = json.dumps(data, sort_keys=True)
        task = found.get(key) or Task(data["case"], data["problem"], ())
        found[key] = replace(task, kernels=(*task.kernels, (label, str(file))))
    return list(found.values())


def run_task(task: Task, folder: Path, seed: int, watch: Watch = ANYONE) -> Iterator[Row]:
    """The rows of a task, one after the other; what cannot be loaded is a row as well."""
    if task.rest and task.empty:
        return
    case, problem = task.study, task.instance()
    failures: list[Row] = []
    if not task.kernels and not task.rest:
        missing = "not in the artifacts: it did not compile"
        yield blank_row(case, problem, device_name(), missing)
    contenders = _contenders(task, problem, folder, failures)
    pace = QUICK if task.quick else USUAL
    for row in measure(case, problem, contenders, seed, task.timed, watch, pace):
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
    """Each loaded when its turn comes, so that one that cannot be loaded does not stop the rest.

    The folder is trusted: who measures names one that was built for it, and stock Halide's shared
    objects in it are code for the CPU as well.
    """
    from selector import load

    for name, file in task.kernels:
        try:
            yield kernel_contender(load(folder / file, trust=True), name)
        except Exception as error:
            failures.append(_failed(task, problem, name, error))
    for schedule, file, order in task.stock:
        try:
            yield stock_contender(folder / file, problem, order, schedule)
        except Exception as error:
            failures.append(_failed(task, problem, stock_name(schedule), error))
    yield from (peer(problem, p) for p in task.libraries)


def _failed(task: Task, problem: Problem, name: str, error: Exception) -> Row:
    failure = f"{type(error).__name__}: {error}"
    row = blank_row(task.study, problem, device_name(), failure)
    return dataclasses.replace(row, contender=name)
