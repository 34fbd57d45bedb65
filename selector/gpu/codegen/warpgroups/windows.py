"""Which staged rows wgmma reads as windows, and the statements that do.

A convolution is a product of windows of a row with a band. Where operands of other products lie in
swizzled panels, such a row stays as it is: windows overlap, and no swizzle fits them.
"""

from __future__ import annotations

from selector.diagnostics import ScheduleError, Where
from selector.gpu.codegen.warpgroups.panels import Panels, not_shared
from selector.gpu.ir.layouts import Dealt
from selector.ir.nodes import Allocate, For, ForKind, IntImm, Memory, Stmt, Store
from selector.ir.traverse import stmt_children, walk_stmt
from selector.lowering.normalize import sequence
from selector.lowering.structure import constant_elements
from selector.lowering.tiles import Access, Accumulate, Banded, as_accumulate

SERIAL = (ForKind.SERIAL, ForKind.UNROLLED)
CHUNK = 8  # elements of 16 bits in 16 bytes


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


def find_windows(body: Stmt, panels: dict[str, Panels]) -> dict[str, Dealt]:
    """The rows of every buffer that is read in windows, whose chunks are dealt out where these are
    several apart; ``ScheduleError`` for those that do not lie in shared memory, or are an operand
    of another product, too.
    """
    allocations = {
        s.name: s
        for s in walk_stmt(body)
        if isinstance(s, Allocate) and s.memory is Memory.GPU_SHARED
    }
    found: dict[str, Dealt] = {}
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
        constant_elements(allocations[name])  # an error where an extent is no constant
        pitch = allocations[name].extents[0]
        assert isinstance(pitch, IntImm)
        found[name] = Dealt(pitch.value, _distance(statement, pitch.value), CHUNK)
    return found


def find_slots(s: Stmt, windows: dict[str, Dealt], *, repeated: bool = False) -> set[str]:
    """The shared buffers of a body that are filled ahead: those with several stages, and rows that
    are read in windows in a loop. These leave in pieces: one stage is enough to be ahead.
    """
    found: set[str] = set()
    match s:
        case Allocate(memory=Memory.GPU_SHARED) if s.stages > 1 or (repeated and s.name in windows):
            found.add(s.name)
        case For(kind=kind) if kind in SERIAL:
            repeated = True
        case _:
            pass
    return found.union(*(find_slots(x, windows, repeated=repeated) for x in stmt_children(s)))


def _distance(s: Accumulate, pitch: int) -> int:
    """The distance of a statement's windows in chunks; 1 for those that no layout fits."""
    assert isinstance(s.a, Access)
    distance, rest = divmod(s.a.row_stride.constant or 0, CHUNK)
    return distance if not rest and not distance % 2 and pitch % CHUNK == 0 else 1
