"""Check and time implementations of one problem on the GPU, all on the same random data. Needs
NumPy and CuPy only.

Outputs are poisoned before the checked run. Inputs and outputs rotate over enough sets to exceed
the L2 cache.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from casestudies.common.case import Arrays, Case, Peer, Problem, bytes_of
from casestudies.common.data import case_inputs, decoded, poisoned, relative_error
from casestudies.common.limits import ceilings_of
from casestudies.common.stock_call import StockLibrary
from selector.tuning.timing import Call, Timing, rotation, time_calls


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
    """What was found out about one contender. ``error`` is None where the output was not checked;
    ``limit`` is in microseconds, None on a GPU whose ceilings are not known, and ``bound`` says
    what sets it. A library (not ``ours``, nor stock Halide) that fails is no fault.
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
    limit: float | None = None
    bound: str = ""
    ours: bool = True

    @property
    def passed(self) -> bool:
        if not self.ours:
            return True
        return not self.failure and (self.error is None or self.error <= self.tolerance)

    @property
    def terabytes_per_second(self) -> float:
        """Each input read once, each output written once."""
        return self.bytes / self.timing.median / 1e6 if self.timing else 0.0

    @property
    def useful_tera_macs(self) -> float:
        return self.multiply_adds / self.timing.median / 1e6 if self.timing else 0.0

    @property
    def share(self) -> float | None:
        """The part of the limit that is reached, 1 at best."""
        if self.limit is None or self.timing is None:
            return None
        return self.limit / self.timing.median

    def as_dict(self) -> dict[str, object]:
        return {
            **dataclasses.asdict(self),
            "passed": self.passed,
            "terabytes_per_second": self.terabytes_per_second,
            "useful_tera_macs": self.useful_tera_macs,
            "share": self.share,
        }


def row_of(data: Mapping[str, Any]) -> Row:
    """The row of ``Row.as_dict``."""
    names = [field.name for field in dataclasses.fields(Row)]
    fields = {name: data[name] for name in names if name in data}
    if fields["timing"] is not None:
        fields["timing"] = Timing(**fields["timing"])
    return Row(**fields)


def peer(problem: Problem, p: Peer) -> Contender:
    """A library as a contender. Its output is its own business."""
    return Contender(
        p.name, p.note, lambda i, o: p.prepare(problem, i, o), ours=False, capturable=p.capturable
    )


def kernel_contender(kernel: Any, name: str = "tensor") -> Contender:
    """A kernel of the selector."""
    return Contender(name, kernel.target.name, lambda i, o: lambda: kernel(**i, out=o))


def stock_contender(
    path: Path, problem: Problem, order: Sequence[str], schedule: str = "cuda"
) -> Contender:
    """A library of stock Halide; ``order`` names its input buffers, ``schedule`` is its own."""
    library = StockLibrary(path)
    library.use_cupy()
    name = stock_name(schedule)
    return Contender(name, "CUDA cores", lambda i, o: library.bind(order, problem, i, o))


def stock_name(schedule: str) -> str:
    """``cuda`` is stock Halide, ``cuda-fast`` is stock Halide fast."""
    return f"stock Halide {schedule.removeprefix('cuda').strip('-')}".strip()


def measure(
    case: Case, problem: Problem, contenders: Iterable[Contender], seed: int, timed: bool = True
) -> Iterator[Row]:
    """One row for each contender that can do the job, as soon as it is measured."""
    import cupy

    size = sum(spec.bytes for spec in (*problem.inputs, problem.output))
    l2 = cupy.cuda.Device().attributes["L2CacheSize"]
    count = rotation(size, l2) if timed else 1
    sets = [case_inputs(case, problem, seed + i, cupy) for i in range(count)]
    truths = [case.reference(problem, decoded(problem, i, cupy), cupy) for i in sets[:2]]
    cupy.cuda.Device().synchronize()
    blank = blank_row(case, problem, device_name())
    for contender in contenders:
        row = _row(problem, contender, blank, sets, truths, timed)
        if row is not None:
            yield row


def device_name() -> str:
    """The name of the current GPU."""
    import cupy

    name: bytes = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"]
    return name.decode()


def blank_row(case: Case, problem: Problem, device: str, failure: str = "") -> Row:
    """What is known of ours before it is measured."""
    ceilings = ceilings_of(device)
    limit = ceilings.limit_of(problem) if ceilings else None
    tolerance = case.tolerance[problem.output.element]
    return Row(
        case.name, problem.name, "tensor", "", None, tolerance, None, bytes_of(problem),
        problem.multiply_adds, failure, limit.microseconds if limit else None,
        limit.bound if limit else "",
    )  # fmt: skip


def _row(
    problem: Problem,
    contender: Contender,
    blank: Row,
    sets: list[Arrays],
    truths: list[Any],
    timed: bool,
) -> Row | None:
    import cupy

    row = dataclasses.replace(
        blank, contender=contender.name, note=contender.note, ours=contender.ours
    )
    try:
        outputs = [poisoned(problem.output, cupy) for _ in sets]
        calls = [contender.bind(i, o) for i, o in zip(sets, outputs, strict=True)]
        bound = [call for call in calls if call is not None]
        if len(bound) < len(calls):
            return None
        error = _check(bound, outputs, truths) if contender.ours else None
        timing = time_calls(bound, contender.capturable) if timed else None
        return dataclasses.replace(row, error=error, timing=timing)
    except ImportError:
        if contender.ours:
            raise
        return None  # a library that is not installed is no contender
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


HEAD = (
    f"{'problem':36} {'contender':28} {'us':>9} {'limit':>8} {'share':>6} {'TB/s':>6} "
    f"{'TMAC/s':>7} {'error':>8}  method"
)


def table(rows: Sequence[Row]) -> str:
    """The rows as text, one problem after the other."""
    return "\n".join((HEAD, *map(line, rows)))


def line(row: Row) -> str:
    """A row as a line of the table."""
    error = "-" if row.error is None else f"{row.error:.1e}"
    limit = "-" if row.limit is None else f"{row.limit:.2f}"
    time = share = rates = ""
    verdict = "WRONG" if not row.passed else "checked"
    if row.failure:
        verdict = row.failure.splitlines()[0][:90]
    elif row.timing is not None:
        time = f"{row.timing.median:.2f}"
        share = "-" if row.share is None else f"{100 * row.share:.0f} %"
        rates = f"{row.terabytes_per_second:6.2f} {row.useful_tera_macs:7.1f}"
        verdict = row.timing.method if row.passed else "WRONG"
    return (
        f"{row.problem:36} {row.contender:28} {time:>9} {limit:>8} {share:>6} {rates:14} "
        f"{error:>8}  {verdict}"
    )
