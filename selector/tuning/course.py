"""A configuration on its way through a tuning, and the names that its results are kept under."""

from __future__ import annotations

from dataclasses import field
from enum import Enum, auto

from selector.dataclass import dataclass
from selector.diagnostics import TargetError, UserError
from selector.runtime.cache import key_of
from selector.tuning.bench import Bench, Facts
from selector.tuning.executor import Failure
from selector.tuning.request import Check
from selector.tuning.results import Measurement, Status, Trial
from selector.tuning.space import Point
from selector.tuning.store import Store


class Step(Enum):
    """How far a configuration is."""

    WAITING = auto()
    LOWERING = auto()
    BUILDING = auto()
    BUILT = auto()
    TIMING = auto()
    DONE = auto()


IN_FLIGHT = (Step.LOWERING, Step.BUILDING, Step.TIMING)


@dataclass(slots=True)
class Course:
    """A configuration on its way."""

    point: Point
    store: Store
    step: Step = Step.WAITING
    key: str = ""
    stages: dict[str, float] = field(default_factory=dict[str, float])
    trial: Trial | None = None
    rebuilt: bool = False
    found: bool = False  # whether its kernel was on disk

    @property
    def file(self) -> str:
        """The compiled kernel; empty if there is none."""
        path = self.store.kernel_path(self.key)
        return str(path) if self.key and path.exists() else ""

    def ended(
        self,
        status: Status,
        measurement: Measurement | None = None,
        reason: str = "",
        stage: str = "",
    ) -> Trial:
        """The trial that it makes."""
        point = self.point
        cached = status is Status.BUILT and self.found
        return Trial(
            point.index, point.settings, status, measurement, reason, stage, self.stages, self.file,
            cached,
        )  # fmt: skip


def build_key(kernel: str) -> str:
    """What a failure to compile is kept under."""
    return key_of({"kernel": kernel, "step": "compile"})


def trial_key(kernel: str, facts: Facts, check: Check, bench: Bench | None) -> str:
    """What a time is kept under: the kernel and everything that it was timed with."""
    return key_of(
        {
            "kernel": kernel,
            "device": facts.device,
            "driver": facts.driver,
            "arguments": facts.arguments,
            "check": check,
            "tolerance": "" if bench is None else repr(bench.tolerance),
        }
    )


def no_times(failure: Failure) -> UserError:
    """Why the GPU's worker cannot begin."""
    causes = [line.strip().removeprefix("why:").strip() for line in failure.reason.splitlines()]
    why = ": ".join(c for c in causes if not c.startswith("hint:"))
    if failure.kind != "TargetError":
        return UserError(
            "the arguments to tune with, or the results to expect, cannot be made", why=why
        )
    return TargetError(
        "nothing can be timed here",
        why=why,
        hint="build_only=True compiles here, and selector.tuning.tune_saved times elsewhere; "
        "or measure= says how to time",
    )
