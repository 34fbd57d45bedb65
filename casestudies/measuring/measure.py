"""Check and time implementations of one problem on the GPU, all on the same random data. Needs
NumPy and CuPy only.

Outputs and shared memory are poisoned before the checked run. Inputs and outputs rotate over enough
sets to exceed the L2 cache. All are made ready first, and then timed in turn, round by round, so
that their ratios hold although the GPU's clock follows its temperature
(``selector.tuning.rounds``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from casestudies.common.case import Arrays, Case, Peer, Problem, bytes_of
from casestudies.common.data import case_inputs, decoded, poisoned, relative_error
from casestudies.common.stock_call import StockLibrary
from casestudies.measuring.limits import ceilings_of
from casestudies.measuring.memory import Room
from casestudies.measuring.poison import poison
from selector.machine.device import device_name
from selector.tuning.rounds import Ratio, time_in_turn
from selector.tuning.timing import Call, Prepared, Timing, prepare, rotation


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of a contender, all rounds together, the number of rounds, and how many sets of
    arrays there are at most.
    """

    budget: float
    rounds: int
    sets: int


USUAL, QUICK = Pace(0.3, 31, 8), Pace(0.06, 15, 256)


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


class Watch(Protocol):
    """Hears of each contender before it is made ready (and says whether it is to be), and before
    each of its turns.
    """

    def allows(self, contender: Contender) -> bool: ...

    def turn(self, contender: Contender) -> None: ...


class _Anyone:
    def allows(self, contender: Contender) -> bool:
        return True

    def turn(self, contender: Contender) -> None:
        pass


ANYONE: Watch = _Anyone()


@dataclass(frozen=True, slots=True)
class Row:
    """What was found out about one contender. ``error`` is None where the output was not checked;
    ``limit`` is in microseconds, None on a GPU whose ceilings are not known, and ``bound`` says
    what sets it. A library (not ``ours``, nor stock Halide) that fails is no fault. ``ratio``: its
    times over those of the problem's first contender, round by round; None for that one.
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
    ratio: Ratio | None = None

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
    if fields.get("ratio") is not None:
        fields["ratio"] = Ratio(**fields["ratio"])
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
    case: Case,
    problem: Problem,
    contenders: Iterable[Contender],
    seed: int,
    timed: bool = True,
    watch: Watch = ANYONE,
    pace: Pace = USUAL,
) -> Iterator[Row]:
    """One row for each contender that can do the job: as soon as it is checked, or fails; where
    times are asked for, when all rounds are over.
    """
    import cupy

    size = sum(spec.bytes for spec in (*problem.inputs, problem.output))
    l2 = cupy.cuda.Device().attributes["L2CacheSize"]
    count = rotation(size, l2, pace.sets) if timed else 1
    sets = [case_inputs(case, problem, seed + i, cupy) for i in range(count)]
    truths = [case.reference(problem, decoded(problem, i, cupy), cupy) for i in sets[:2]]
    cupy.cuda.Device().synchronize()
    blank = blank_row(case, problem, device_name())
    ready: list[_Ready] = []
    for contender in filter(watch.allows, contenders):
        made = _make_ready(problem, contender, blank, sets, truths, pace if timed else None)
        match made:
            case Row():
                yield made
            case _Ready():
                ready.append(made)
            case None:
                pass
    yield from _rows_of_rounds(ready, watch)


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


@dataclass(frozen=True, slots=True)
class _Ready:
    """A contender that has been checked, its row without times, and where torch allocates."""

    contender: Contender
    row: Row
    calls: Prepared
    room: Room


def _make_ready(
    problem: Problem,
    contender: Contender,
    blank: Row,
    sets: list[Arrays],
    truths: list[Any],
    pace: Pace | None,
) -> _Ready | Row | None:
    """Its row, if that is all (without a pace it is not timed); None if it cannot do the job."""
    import cupy

    row = dataclasses.replace(
        blank, contender=contender.name, note=contender.note, ours=contender.ours
    )
    room = Room(apart=not contender.ours)
    try:
        outputs = [poisoned(problem.output, cupy) for _ in sets]
        with room.entered():
            calls = [contender.bind(i, o) for i, o in zip(sets, outputs, strict=True)]
        bound = [call for call in calls if call is not None]
        if len(bound) < len(calls):
            return None
        row = dataclasses.replace(
            row, error=_check(bound, outputs, truths) if contender.ours else None
        )
        if pace is None:
            return row
        with room.entered():
            prepared = prepare(bound, contender.capturable, pace.budget, pace.rounds)
        return _Ready(contender, row, prepared, room)
    except ImportError:
        if contender.ours:
            raise
        return None  # a library that is not installed is no contender
    except Exception as failure:  # a contender that fails is a row of the table, not the end
        return _failed(row, failure)


def _rows_of_rounds(ready: Sequence[_Ready], watch: Watch) -> Iterator[Row]:
    @contextmanager
    def around(index: int) -> Generator[None]:
        watch.turn(ready[index].contender)
        with ready[index].room.entered():
            yield

    for turn in time_in_turn([r.calls for r in ready], around):
        row = ready[turn.index].row
        if turn.failure is not None:
            yield _failed(row, turn.failure)
        else:
            yield dataclasses.replace(row, timing=turn.timing, ratio=turn.ratio)


def _failed(row: Row, failure: Exception) -> Row:
    return dataclasses.replace(row, failure=f"{type(failure).__name__}: {failure}"[:500])


def _check(calls: list[Call], outputs: list[Any], truths: list[Any]) -> float:
    """The largest relative error over the sets that have a reference."""
    import cupy

    errors = []
    for call, output, truth in zip(calls, outputs, truths, strict=False):
        poison()
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
