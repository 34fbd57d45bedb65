"""Tuning itself: configurations are lowered, compiled and timed, several at a time, each finished
trial being on disk before the next one is asked for.

They are begun and timed in the order of the space, so that the same runs give the same table; the
results of the first that runs are what the others are compared with, where there is no reference.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from selector.diagnostics import TargetError, UserError
from selector.runtime.versions import versions
from selector.targets import find_target, runs_on
from selector.tuning import bench as benches
from selector.tuning import finals
from selector.tuning.bench import Facts, Timed
from selector.tuning.building import Built, Lowered, build, call_measure
from selector.tuning.course import IN_FLIGHT, Course, Step, build_key, no_times, trial_key
from selector.tuning.executor import Done, Executor, Failure, Kind, Shared, Task
from selector.tuning.progress import Line, Quiet
from selector.tuning.request import Check, Request, shippable, shipped
from selector.tuning.results import Measurement, Status, Trial, Tuning
from selector.tuning.store import Store
from selector.tuning.worker import failure_of

POLL_SECONDS = 0.2
_FACTS = -1  # number of the task that asks for the GPU
_EXPECTED = -2  # and of the one that makes the results to expect


def tune(request: Request, executor: Executor, store: Store, progress: Line | Quiet) -> Tuning:
    """Try all configurations; whatever happens, ``executor`` is closed at the end.

    ``TargetError`` without a GPU to time on; ``UserError`` if the results to expect cannot be
    computed. An interrupt leaves what is finished on disk.
    """
    session = _Session(request, executor, store, progress)
    try:
        session.run()
        return session.result()
    except KeyboardInterrupt:
        print(f"\ninterrupted: {session.finished} of {len(request.points)} configurations are in "
              f"{store.folder}; the same call goes on from there", file=sys.stderr)  # fmt: skip
        raise
    finally:
        executor.close()
        progress.close()


class _Session:
    def __init__(
        self, request: Request, executor: Executor, store: Store, progress: Line | Quiet
    ) -> None:
        bench = None if request.bench is None else shipped(request.bench)
        self.request = replace(request, bench=bench)
        self.executor, self.store, self.progress = executor, store, progress
        self.options = request.options
        self.courses = [Course(point, store) for point in request.points]
        self.begin = time.monotonic()
        self.shared: Shared | None = None  # the bench as tasks get it, once it is complete
        self.anchor = ""  # the kernel whose results are expected, where there is no reference
        self.asked = False  # whether the results to expect are being made
        self.facts = Facts(request.device, "", self.options.target, "")

    @property
    def finished(self) -> int:
        return sum(c.step is Step.DONE for c in self.courses)

    def run(self) -> None:
        if self.request.bench is not None:
            self._ask_facts()
        while not self._is_over():
            self._begin_some()
            self._time_some()
            building = sum(c.step in (Step.LOWERING, Step.BUILDING) for c in self.courses)
            timing = next((str(c.point) for c in self.courses if c.step is Step.TIMING), "")
            self.progress.show(building, timing)
            if building or timing or self.asked:
                for done in self.executor.wait(POLL_SECONDS):
                    self._take(done)

        if self.request.bench is not None and not self._is_spent():
            self._measure_again()

    def _measure_again(self) -> None:
        """Measure the best few again, in turn, so that it is not the moment that decides."""
        fresh = finals.finalists(self.courses)
        found: dict[int, list[Measurement]] = {c.point.index: [] for c in fresh}
        for course in fresh * finals.ROUNDS:
            self.progress.show(0, f"{course.point} again")
            kernel = self.store.kernel(course.key)
            self._submit(
                course.point.index, Kind.TIME, benches.time_kernel, kernel, shared=self.shared
            )
            done = self._answer()
            if isinstance(done.value, Timed) and done.value.measurement.is_right:
                found[course.point.index].append(done.value.measurement)
        for course in fresh:
            course.trial = finals.settled(course.trial, found[course.point.index])
            against = self.anchor or self.request.check
            self.store.put_trial(self._trial_key(course), course.trial, against)

    def _answer(self) -> Done:
        """The next answer, where only one is due."""
        while True:
            for done in self.executor.wait(POLL_SECONDS):
                return done

    def result(self) -> Tuning:
        """All trials, those that were not begun as left out."""
        trials = tuple(c.trial or c.ended(Status.LEFT_OUT) for c in self.courses)
        return Tuning(
            self.request.name, self.options.target, self.facts.device, self._checked(), trials,
            time.monotonic() - self.begin, versions(),
        )  # fmt: skip

    # ------------------------------------------------------------------ what to do next

    def _is_over(self) -> bool:
        if any(c.step in IN_FLIGHT for c in self.courses) or self.asked:
            return False
        return self._is_spent() or all(c.step is Step.DONE for c in self._candidates())

    def _candidates(self) -> list[Course]:
        return self.courses[: self.request.budget.most]

    def _is_spent(self) -> bool:
        seconds = self.request.budget.seconds
        return seconds is not None and time.monotonic() - self.begin > seconds

    def _ask_facts(self) -> None:
        """Which GPU there is; the target ``cuda`` is then the best one for it."""
        self.shared = Shared("bench", self.request.bench)
        self._submit(_FACTS, Kind.TIME, benches.facts, shared=self.shared)
        found = self._answer()
        if found.failure is not None:
            raise no_times(found.failure)
        self.facts = found.value
        if self.options.target == "cuda":
            self.options = replace(self.options, target=self.facts.target)
        if not runs_on(find_target(self.options.target), self.facts.capability):
            raise TargetError(
                f"kernels for {self.options.target} do not run on {self.facts.device}",
                hint=f"target={self.facts.target!r}, or build_only=True",
            )

    def _begin_some(self) -> None:
        waiting = (c for c in self._candidates() if c.step is Step.WAITING)
        while not self._is_spent() and self.executor.room(Kind.COMPILE):
            course = next(waiting, None)
            if course is None:
                return
            self._begin(course)

    def _begin(self, course: Course) -> None:
        point, lower = course.point, self.request.lower
        if lower is None:
            self._found(course, self.request.built[point.index])
        elif shippable((lower, point)):
            course.step = Step.LOWERING
            self._submit(point.index, Kind.COMPILE, lower, point, self.options)
        else:
            try:
                lowered = lower(point, self.options)
            except Exception as error:  # a mistake in one configuration costs that one
                self._fail(course, failure_of(error), "schedule")
            else:
                self._lowered(course, lowered)

    def _found(self, course: Course, built: Trial) -> None:
        """A kernel that was built elsewhere, or could not be."""
        course.stages = dict(built.stages)
        if built.status is Status.FAILED:
            self._finish(course, replace(built, index=course.point.index, cached=True))
        else:
            course.key = built.kernel.rpartition("/")[2].partition(".")[0]
            course.step = Step.BUILT

    def _time_some(self) -> None:
        """Begin to time what is built, in order: nothing overtakes a configuration that is still
        being compiled.
        """
        for course in self._candidates():
            if course.step is Step.DONE or course.step is Step.TIMING:
                continue
            if course.step is not Step.BUILT or self.asked:
                return
            if self._is_known(course):
                continue
            if self._is_spent() or not self.executor.room(Kind.TIME) or not self._expects(course):
                return
            self._time(course)

    def _is_known(self, course: Course) -> bool:
        """Whether nothing is left to do: it was to be built only, or an earlier run timed it."""
        if self.request.bench is None and self.request.measure is None:
            self._finish(course, course.ended(Status.BUILT))
            return True
        found = self.store.trial(self._trial_key(course))
        if found is None or (found[0].status is Status.FAILED and self.request.retry):
            return False
        trial, against = found
        if self.request.check is Check.FIRST and trial.status is not Status.FAILED:
            self.anchor = self.anchor or (course.key if against == course.key else "")
            if against != self.anchor:
                return False
        self._finish(course, replace(trial, index=course.point.index, kernel=course.file))
        return True

    def _expects(self, course: Course) -> bool:
        """Whether it is known what results to expect, or the course itself is to say; otherwise
        asks for it.
        """
        if self.request.measure is not None or self.shared is None:
            return True
        check = self.request.check
        if check in (Check.REFERENCE, Check.NONE) or "expected" in self.shared.key:
            return True
        if self.asked:
            return False
        if check is Check.FIRST and not self.anchor:
            return True
        kernel = self.store.kernel(self.anchor or course.key)
        function = benches.interpreted if check is Check.INTERPRETER else benches.time_kernel
        kind = Kind.COMPILE if check is Check.INTERPRETER else Kind.TIME
        keep = () if check is Check.INTERPRETER else (True,)
        seconds = self.request.limit * (10 if check is Check.INTERPRETER else 1)
        self.asked = True
        self._submit(_EXPECTED, kind, function, kernel, *keep, shared=self.shared, seconds=seconds)
        return False

    def _time(self, course: Course) -> None:
        kernel = self.store.kernel(course.key)
        index, point, measure = course.point.index, course.point, self.request.measure
        if kernel is None:
            self._fail(course, Failure("lost", "its compiled kernel is gone"), "run")
        elif measure is None:
            keep = self.request.check is Check.FIRST and not self.anchor
            self.asked = self.asked or keep
            course.step = Step.TIMING
            self._submit(index, Kind.TIME, benches.time_kernel, kernel, keep, shared=self.shared)
        elif shippable((measure, point.value)):
            course.step = Step.TIMING
            self._submit(index, Kind.TIME, call_measure, measure, kernel, point.value)
        else:
            try:
                found = call_measure(measure, kernel, point.value)
            except Exception as error:
                self._run_failed(course, failure_of(error))
            else:
                self._timed(course, Timed(found))

    def _submit(
        self,
        number: int,
        kind: Kind,
        function: Callable[..., Any],
        *arguments: Any,
        shared: Shared | None = None,
        seconds: float | None = None,
    ) -> None:
        limit = self.request.limit if seconds is None else seconds
        self.executor.submit(Task(number, kind, function, arguments, limit, shared))

    # ------------------------------------------------------------------ what came back

    def _take(self, done: Done) -> None:
        if done.number == _EXPECTED:
            self._take_expected(done)
            return
        course = self.courses[done.number]
        match course.step, done.value, done.failure:
            case Step.TIMING, _, Failure() as failure:
                self.asked = False
                self._run_failed(course, failure)
            case Step.LOWERING, _, Failure() as failure:
                self._fail(course, failure, "schedule")
            case _, _, Failure() as failure:
                self._fail(course, failure, "compile")
            case _, Lowered() as lowered, _:
                self._lowered(course, lowered)
            case _, Built() as built, _:
                course.stages = dict(built.stages)
                self.store.put_kernel(course.key, built.kernel)
                course.step = Step.BUILT
            case _, Timed() as timed, _:
                self._timed(course, timed)
            case _, Measurement() as measurement, _:
                self._timed(course, Timed(measurement))
            case _:
                raise AssertionError(f"no answer to {course.point}: {done}")

    def _take_expected(self, done: Done) -> None:
        """The results that others are compared with."""
        self.asked = False
        if done.failure is None:
            outputs = done.value.outputs if isinstance(done.value, Timed) else done.value
            self._expect(outputs)
        elif self.request.check is Check.INTERPRETER:
            raise UserError(
                "the results to expect cannot be computed",
                why=done.failure.reason,
                hint="give reference=, the results to expect or a function that computes them",
            )
        else:
            anchor = next(c for c in self.courses if c.key == self.anchor)
            self.anchor = ""
            self._fail(anchor, done.failure, "run")

    def _expect(self, outputs: Any) -> None:
        assert self.request.bench is not None
        self.shared = Shared("bench with expected", replace(self.request.bench, reference=outputs))

    def _lowered(self, course: Course, lowered: Lowered) -> None:
        course.key = lowered.key
        known = self.store.trial(build_key(course.key))
        if known is not None and not self.request.retry:
            self._finish(course, replace(known[0], index=course.point.index))
        elif self.store.kernel_path(course.key).exists():
            course.step, course.found = Step.BUILT, True
        else:
            course.step = Step.BUILDING
            self._submit(course.point.index, Kind.COMPILE, build, lowered.text, self.options)

    def _run_failed(self, course: Course, failure: Failure) -> None:
        """A kernel whose file was damaged is built again, once."""
        if failure.kind == "ArtifactError" and self.request.lower and not course.rebuilt:
            self.store.kernel_path(course.key).unlink(missing_ok=True)
            course.step, course.rebuilt = Step.WAITING, True
        else:
            self._fail(course, failure, "run")

    def _timed(self, course: Course, timed: Timed) -> None:
        if timed.outputs is not None:
            self.asked, self.anchor = False, course.key
            self._expect(timed.outputs)
        measured = timed.measurement
        if measured.is_right:
            trial = course.ended(Status.TIMED, measured)
        else:
            reason = f"relative error {measured.error:.1e}, at most {measured.tolerance:.0e}"
            trial = course.ended(Status.WRONG, measured, reason, "run")
        self.store.put_trial(self._trial_key(course), trial, self.anchor or self.request.check)
        self._finish(course, trial)

    def _fail(self, course: Course, failure: Failure, stage: str) -> None:
        trial = course.ended(Status.FAILED, None, failure.reason, stage)
        if stage != "schedule":  # what was not lowered has no key
            key = build_key(course.key) if stage == "compile" else self._trial_key(course)
            self.store.put_trial(key, trial, "")
        self._finish(course, trial)

    def _finish(self, course: Course, trial: Trial) -> None:
        course.step, course.trial = Step.DONE, trial
        self.progress.add(trial)

    def _trial_key(self, course: Course) -> str:
        return trial_key(course.key, self.facts, self.request.check, self.request.bench)

    def _checked(self) -> str:
        """What results were compared with, in words."""
        if self.request.check is not Check.FIRST:
            return str(self.request.check)
        anchors = (c.point for c in self.courses if self.anchor and c.key == self.anchor)
        return next((f"configuration {p.index} ({p})" for p in anchors), str(Check.FIRST))
