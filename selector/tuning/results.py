"""What tuning finds out: a ``Trial`` for each configuration, a ``Tuning`` for all of them.

Times are microseconds of one call on the GPU. Both have a JSON form, which is what is kept on disk.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Any

from selector.dataclass import dataclass
from selector.diagnostics import ArtifactError, UserError
from selector.runtime.artifact import write_atomically
from selector.tuning.space import describe

FORMAT = "tensor-selector tuning"
VERSION = 1


class Status(StrEnum):
    """What became of a configuration."""

    TIMED = "timed"  # right, and timed
    BUILT = "built"  # compiled; not timed, as was asked
    WRONG = "wrong"  # its results differ by more than the tolerance
    FAILED = "failed"  # it does not compile, does not run, or took too long: ``reason`` says which
    LEFT_OUT = "left out"  # the budget was spent


@dataclass(frozen=True, slots=True)
class Measurement:
    """Median, least and largest microseconds of one call over ``repeats`` samples of ``calls``
    calls each; ``method``: ``graph`` (replays of a CUDA graph), ``events``, or what a function of
    the user's calls itself.

    ``error`` is the relative Frobenius error of the results, None where nothing was compared. What
    is wrong is not timed: its microseconds are 0. ``rounds``: how often it was measured; the best
    few are measured again in turn, and the median is that of all rounds.
    """

    microseconds: float
    low: float
    high: float
    calls: int = 1
    repeats: int = 1
    method: str = ""
    error: float | None = None
    tolerance: float = 0.0
    rounds: int = 1

    @property
    def is_right(self) -> bool:
        return self.error is None or self.error <= self.tolerance  # NaN is not


@dataclass(frozen=True, slots=True)
class Trial:
    """One configuration (``settings``: JSON data) and what became of it.

    ``reason`` says why there is no time, ``stage`` where it ended: ``schedule``, ``compile`` or
    ``run``. ``stages`` are seconds of compilation by stage, ``kernel`` is the file of the compiled
    kernel, ``cached`` whether the result was found on disk.
    """

    index: int
    settings: Mapping[str, Any]
    status: Status
    measurement: Measurement | None = None
    reason: str = ""
    stage: str = ""
    stages: Mapping[str, float] = field(default_factory=dict[str, float])
    kernel: str = ""
    cached: bool = False

    @property
    def microseconds(self) -> float:
        """The median of one call; infinite for a trial without a valid time."""
        if self.status is not Status.TIMED or self.measurement is None:
            return math.inf
        return self.measurement.microseconds

    def as_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "status": str(self.status)}


def trial_of(data: Mapping[str, Any]) -> Trial:
    """The trial of ``Trial.as_dict``."""
    measured = data["measurement"]
    fields: dict[str, Any] = {
        **data,
        "status": Status(data["status"]),
        "measurement": None if measured is None else Measurement(**measured),
    }
    return Trial(**fields)


@dataclass(frozen=True, slots=True)
class Tuning:
    """All trials of a space, in its order.

    ``device`` is what the times are from; ``checked_against`` says what results were compared
    with; ``complete`` is False where a budget ended it.
    """

    name: str
    target: str
    device: str
    checked_against: str
    trials: tuple[Trial, ...]
    seconds: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def complete(self) -> bool:
        return not any(t.status is Status.LEFT_OUT for t in self.trials)

    @property
    def ranked(self) -> tuple[Trial, ...]:
        """The trials that are right and timed, the fastest first."""
        timed = [t for t in self.trials if t.status is Status.TIMED]
        return tuple(sorted(timed, key=lambda t: (t.microseconds, t.index)))

    @property
    def best(self) -> Trial:
        """The fastest trial with right results.

        ``UserError`` if there is none, or if configurations disagree and there was no reference to
        tell which of them is right.
        """
        if self.checked_against.startswith("configuration"):
            self._refuse_disagreement()
        if not self.ranked:
            raise UserError(
                f"no configuration of {self.name} was timed",
                why=self._reasons(),
                hint="result.table() shows each with its reason",
            )
        return self.ranked[0]

    def kernel(self) -> Any:
        """The kernel of ``best``, ready to be called.

        ``ArtifactError`` if its file is gone: tune again, what was timed is not timed again.
        """
        from selector.api import load

        return load(self.best.kernel, trust=True)

    def table(self, most: int | None = None) -> str:
        """The trials as text: the fastest first, then the others with their reasons; ``most`` rows
        of each. Settings that are the same in all are left out, as are trials that were not begun.
        """
        ranked = self.ranked
        rest = [t for t in self.trials if t.status not in (Status.TIMED, Status.LEFT_OUT)]
        varied = self._varied()
        where = f" on {self.device}" if self.device else ", not timed"
        lines = [f"{self.name} for {self.target}{where}: {self.summary()}"]
        if ranked:
            lines.append(f"{'us':>10} {'spread':>8} {'of best':>8} {'error':>8}  configuration")
            lines += [_line(t, ranked[0].microseconds, varied) for t in ranked[:most]]
        lines += [_reason_line(t, varied) for t in rest[:most]]
        hidden = len(ranked) + len(rest) + 1 + bool(ranked) - len(lines)
        return "\n".join([*lines, *([f"... {hidden} more"] if hidden else [])])

    def _varied(self) -> tuple[str, ...]:
        """The names of settings that are not the same in all trials."""
        names = dict.fromkeys(name for t in self.trials for name in t.settings)
        values = {n: {repr(t.settings.get(n)) for t in self.trials} for n in names}
        return tuple(n for n in names if len(values[n]) > 1) or tuple(names)

    def summary(self) -> str:
        """How many trials ended how."""
        counts = Counter(str(t.status) for t in self.trials)
        cached = sum(t.cached for t in self.trials)
        parts = [f"{n} {status}" for status, n in counts.items()]
        return ", ".join(parts) + (f" ({cached} known before)" if cached else "")

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON data."""
        return {
            "format": FORMAT,
            "version": VERSION,
            **{f.name: getattr(self, f.name) for f in dataclasses.fields(self)},
            "trials": [t.as_dict() for t in self.trials],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON form, in one step."""
        write_atomically(Path(path), json.dumps(self.as_dict(), indent=1).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tuning:
        """Read what ``save`` wrote; ``ArtifactError`` if it is not that."""
        try:
            data: dict[str, Any] = json.loads(Path(path).read_bytes())
            if (data.pop("format"), data.pop("version")) != (FORMAT, VERSION):
                raise ValueError("another format or version")
            data["trials"] = tuple(map(trial_of, data["trials"]))
            return cls(**data)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ArtifactError(f"{path} is not a saved tuning", why=str(error)) from error

    def _refuse_disagreement(self) -> None:
        wrong = [t for t in self.trials if t.status is Status.WRONG]
        if wrong:
            raise UserError(
                f"{len(wrong)} configurations of {self.name} give other results than "
                f"{self.checked_against}, and nothing says which is right",
                why=f"{describe(wrong[0].settings)}: {wrong[0].reason}",
                hint="give reference=, the results to expect or a function that computes them",
            )

    def _reasons(self) -> str:
        counts = Counter(t.reason.splitlines()[0] for t in self.trials if t.reason)
        return "; ".join(f"{n} x {reason}" for reason, n in counts.most_common(3))


def _line(trial: Trial, best: float, names: tuple[str, ...]) -> str:
    measured = trial.measurement
    assert measured is not None
    spread = 100 * (measured.high - measured.low) / measured.microseconds
    error = "-" if measured.error is None else f"{measured.error:.1e}"
    return (
        f"{measured.microseconds:10.2f} {spread:6.1f} % {measured.microseconds / best:7.3f}x "
        f"{error:>8}  {_shown(trial, names)}"
    )


def _reason_line(trial: Trial, names: tuple[str, ...]) -> str:
    reason = f": {trial.reason.splitlines()[0]}" if trial.reason else ""
    return f"{trial.status!s:>10}  {_shown(trial, names)}{reason}"


def _shown(trial: Trial, names: tuple[str, ...]) -> str:
    return describe({n: trial.settings[n] for n in names if n in trial.settings})
