"""Which staged rows wgmma reads as windows, and the statements that do.

A convolution is a product of windows of a row with a band. Where operands of other products lie in
swizzled panels, such a row stays as it is: windows overlap, and no swizzle fits them.
"""

from __future__ import annotations

from dataclasses import dataclass

from selector.diagnostics import ScheduleError, Where
from selector.emit.warpgroups.panels import Panels, not_shared, reach
from selector.ir.nodes import Allocate, For, ForKind, IntImm, Memory, Stmt, Store
from selector.ir.traverse import walk_stmt
from selector.lowering.normalize import sequence
from selector.lowering.tiles import Accumulate, Banded, as_accumulate

SERIAL = (ForKind.SERIAL, ForKind.UNROLLED)


@dataclass(frozen=True, slots=True)
class WindowRows:
    """Rows ``pitch`` elements apart, of which the first ``columns`` are staged."""

    pitch: int
    columns: int


def _window_product(s: Stmt) -> Accumulate | None:
    """A statement that adds a product of windows with a band to accumulators of a group."""
    statement = as_accumulate(s) if isinstance(s, Store) else None
    if statement is None or statement.instruction.family != "wgmma":
        return None
    return statement if isinstance(statement.b, Banded) else None


def is_window(s: Stmt) -> bool:
    """Whether a statement is such a product, or constant loops that hold nothing else."""
    match s:
        case For(_, IntImm(), IntImm(), kind, body) if kind in SERIAL:
            return all(is_window(x) for x in sequence(body))
        case _:
            return _window_product(s) is not None


def find_windows(body: Stmt, panels: dict[str, Panels]) -> dict[str, WindowRows]:
    """The rows of every buffer that is read in windows; ``ScheduleError`` for those that do not lie
    in shared memory, or are an operand of another product, too.
    """
    allocations = {
        s.name: s
        for s in walk_stmt(body)
        if isinstance(s, Allocate) and s.memory is Memory.GPU_SHARED
    }
    found: dict[str, WindowRows] = {}
    for s in walk_stmt(body):
        statement = _window_product(s)
        if statement is None or statement.a.buffer in found:
            continue
        name = statement.a.buffer
        if name not in allocations:
            raise not_shared(name, statement)
        if name in panels:
            raise ScheduleError(
                f"`{name}` is an operand of a product and of a convolution",
                f"{statement.instruction.name} reads the one in swizzled panels, the other as it "
                "is",
                "stage it twice",
                Where(func=statement.accumulator),
            )
        pitch = allocations[name].extents[0]
        assert isinstance(pitch, IntImm)
        found[name] = WindowRows(pitch.value, reach(name, pitch.value, body))
    return found
