"""Check and time implementations of one problem on the GPU, all on the same random data. Needs
NumPy and CuPy only.

Outputs are poisoned before the checked run. Inputs and outputs rotate over enough sets to exceed
the L2 cache.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from casestudies.common.case import Arrays, Case, Peer, Problem, bytes_of
from casestudies.common.data import case_inputs, decoded, poisoned, relative_error
from casestudies.common.timing import Call, Timing, rotation, time_calls


@dataclass(frozen=True, slots=True)
class Contender:
    """An implementation to measure. ``bind(inputs, output)`` gives a call; ``ours``: its output is
    checked.
    """

    name: str
    note: str
    bind: Callable[[Arrays, Any], Call | None]
    ours: bool = True
    capturable: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """What was found out about one contender. ``error`` is None where the output was not
    checked.
    """

    case: str
    problem: str
    contender: str
    note: str
    error: float | None
    tolerance: float
    timing: Timing | None
    bytes: int
    multiply_adds: int
    failure: str = ""

    @property
    def passed(self) -> bool:
        return not self.failure and (self.error is None or self.error <= self.tolerance)

    @property
    def terabytes_per_second(self) -> float:
        """Each input read once, each output written once."""
        return self.bytes / self.timing.median / 1e6 if self.timing else 0.0

    @property
    def useful_tera_macs(self) -> float:
        return self.multiply_adds / self.timing.median / 1e6 if self.timing else 0.0

    def as_dict(self) -> dict[str, object]:
        return {
            **dataclasses.asdict(self),
            "passed": self.passed,
            "terabytes_per_second": self.terabytes_per_second,
            "useful_tera_macs": self.useful_tera_macs,
        }


def peer(problem: Problem, p: Peer) -> Contender:
    """A library as a contender. Its output is its own business."""
    return Contender(
        p.name, p.note, lambda i, o: p.prepare(problem, i, o), ours=False, capturable=p.capturable
    )


def measure(
    case: Case, problem: Problem, contenders: Sequence[Contender], seed: int, timed: bool = True
) -> list[Row]:
    """One row for each contender that can do the job."""
    import cupy

    size = bytes_of(problem)
    l2 = cupy.cuda.Device().attributes["L2CacheSize"]
    count = rotation(size, l2) if timed else 1
    sets = [case_inputs(case, problem, seed + i, cupy) for i in range(count)]
    truths = [case.reference(problem, decoded(problem, i, cupy), cupy) for i in sets[:2]]
    cupy.cuda.Device().synchronize()
    rows = (_row(case, problem, c, sets, truths, size, timed) for c in contenders)
    return [row for row in rows if row is not None]


def _row(
    case: Case,
    problem: Problem,
    contender: Contender,
    sets: list[Arrays],
    truths: list[Any],
    size: int,
    timed: bool,
) -> Row | None:
    import cupy

    row = Row(
        case.name,
        problem.name,
        contender.name,
        contender.note,
        None,
        case.tolerance[problem.output.element],
        None,
        size,
        problem.multiply_adds,
    )
    outputs = [poisoned(problem.output, cupy) for _ in sets]
    try:
        calls = [contender.bind(i, o) for i, o in zip(sets, outputs, strict=True)]
        bound = [call for call in calls if call is not None]
        if len(bound) < len(calls):
            return None
        error = _check(bound, outputs, truths) if contender.ours else None
        timing = time_calls(bound, contender.capturable) if timed else None
        return dataclasses.replace(row, error=error, timing=timing)
    except Exception as failure:  # a contender that fails is a row of the table, not the end
        return dataclasses.replace(row, failure=f"{type(failure).__name__}: {failure}"[:500])


def _check(calls: list[Call], outputs: list[Any], truths: list[Any]) -> float:
    """The largest relative error over the sets that have a reference."""
    import cupy

    errors = []
    for call, output, truth in zip(calls, outputs, truths, strict=False):
        cupy.cuda.Device().synchronize()
        call()
        cupy.cuda.Device().synchronize()
        errors.append(relative_error(output, truth, cupy))
    return max(errors)


def table(rows: Sequence[Row]) -> str:
    """The rows as text, one problem after the other."""
    head = f"{'problem':28} {'contender':16} {'us':>9} {'TB/s':>6} {'TMAC/s':>7} {'error':>8}  "
    lines = [head + "method"]
    for row in rows:
        error = "-" if row.error is None else f"{row.error:.1e}"
        if row.failure or row.timing is None:
            verdict = row.failure.splitlines()[0][:90] if row.failure else "checked"
            verdict = verdict if row.passed or row.failure else "WRONG"
            blank = f"{'':9} {'':6} {'':7}"
            lines.append(f"{row.problem:28} {row.contender:16} {blank} {error:>8}  {verdict}")
            continue
        rates = f"{row.terabytes_per_second:6.2f} {row.useful_tera_macs:7.1f}"
        note = row.timing.method if row.passed else "WRONG"
        time = f"{row.timing.median:9.2f}"
        lines.append(f"{row.problem:28} {row.contender:16} {time} {rates} {error:>8}  {note}")
    return "\n".join(lines)
