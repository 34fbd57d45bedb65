"""Simplifications that make a selected body easy to emit: lets inlined, atomics dropped, register
loops unrolled.
"""

from __future__ import annotations

from dataclasses import replace

from selector.ir.contents import holds, loaded, nodes_of, without_lets
from selector.ir.nodes import (
    Allocate,
    Atomic,
    Block,
    Call,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    LetStmt,
    Load,
    Memory,
    Stmt,
    Store,
)
from selector.ir.simplify import add, as_conjunction, simplify
from selector.ir.traverse import (
    change_expr,
    change_stmts,
    free_vars,
    map_stmt,
    stmt_exprs,
    substitute_stmt,
    walk_stmt,
)

LARGEST_UNROLL = 64
PRODUCTS = ("mma.", "wmma.", "wgmma.", "tcgen05.")  # on a GPU
TENSOR_CALLS = ("tile.", *PRODUCTS, "amx.")
TENSOR_MEMORY = (Memory.WMMA_ACCUMULATOR, Memory.WGMMA_ACCUMULATOR, Memory.AMX_TILE)


def is_tensor_store(s: Stmt) -> bool:
    """Whether a statement writes or reads a tensor accumulator (in a selected program)."""
    return isinstance(s, Store) and any(
        e.name.startswith(TENSOR_CALLS) for e in nodes_of(s.value, Call)
    )


def is_read_out(s: Store) -> bool:
    """Whether a store writes what it reads from accumulators, and to none (in a selected
    program).
    """
    value = s.value
    if isinstance(value, Call) and value.name == "tile.fill":
        return False
    return any(e.name == "tile.read" for e in nodes_of(value, Call))


def holds_tensor(s: Stmt) -> bool:
    """Whether a statement tree holds a tensor statement."""
    return any(is_tensor_store(x) for x in walk_stmt(s))


def normalize(s: Stmt) -> Stmt:
    """The body ready for emission; its meaning is unchanged."""
    s = change_stmts(inline_lets(s), _apart)
    s = _unroll_register_loops(s, frozenset(_accumulators(s)))
    return gather_accumulates(flatten(s))


def _apart(s: Stmt) -> Stmt | None:
    """A store with a condition for each coordinate: where an array is as high as it is wide, Halide
    has one for the larger of two. Loops over threads stand together: what is asked between them is
    asked inside.
    """
    match s:
        case For(
            kind=ForKind.GPU_THREAD,
            body=IfThenElse(condition, For(kind=ForKind.GPU_THREAD) as inner, None),
        ):
            asked = replace(inner, body=IfThenElse(condition, inner.body, None))
            return replace(s, body=_apart(asked) or asked)
        case Store(predicate=predicate) if predicate is not None:
            return replace(s, predicate=change_expr(predicate, as_conjunction))
        case _:
            return None


def _accumulators(s: Stmt) -> list[str]:
    return [x.name for x in walk_stmt(s) if isinstance(x, Allocate) and x.memory in TENSOR_MEMORY]


def inline_lets(s: Stmt) -> Stmt:
    """Substitute lets that load nothing, vectors that one statement reads, those above allocations
    (a loop that begins with these may keep them as rings) and every let inside an expression; drop
    atomics and unit loops.
    """
    match s:
        case LetStmt(name, value, Allocate() as body) if not any(
            isinstance(x, Store) and x.buffer in loaded(value) for x in walk_stmt(body)
        ):
            return inline_lets(substitute_stmt(body, {name: value}))
        case LetStmt(name, value, body) if not holds(value, Load) or (
            value.type.lanes > 1 and is_one_store(body)
        ):
            return inline_lets(substitute_stmt(body, {name: value}))
        case Atomic(_, body):
            return inline_lets(body)
        case For(name, low, IntImm(1), ForKind.SERIAL | ForKind.UNROLLED, body):
            return inline_lets(substitute_stmt(body, {name: low}))
        case _:
            return map_stmt(s, inline_lets, without_lets)


def is_one_store(s: Stmt) -> bool:
    """Whether nothing is stored between a let and its use."""
    while isinstance(s, LetStmt | Atomic):
        s = s.body
    return isinstance(s, Store)


def _unroll_register_loops(s: Stmt, accumulators: frozenset[str]) -> Stmt:
    """Unroll constant loops whose variable indexes an accumulator: registers are numbered."""
    s = map_stmt(s, lambda x: _unroll_register_loops(x, accumulators), lambda e: e)
    match s:
        case For(name, low, IntImm(extent), ForKind.SERIAL | ForKind.UNROLLED, body) if (
            extent <= LARGEST_UNROLL and _indexes(body, name, accumulators)
        ):
            steps = (add(low, IntImm(i)) for i in range(extent))
            copies = (substitute_stmt(body, {name: step}) for step in steps)
            return Block(tuple(map_stmt(c, lambda x: x, simplify) for c in copies))
        case _:
            return s


def _indexes(body: Stmt, name: str, accumulators: frozenset[str]) -> bool:
    for s in walk_stmt(body):
        if isinstance(s, Store) and s.buffer in accumulators and name in free_vars(s.index):
            return True
        for e in stmt_exprs(s):
            for x in nodes_of(e, Load):
                if x.buffer in accumulators and name in free_vars(x.index):
                    return True
    return False


def flatten(s: Stmt) -> Stmt:
    """Blocks inside blocks become one; empty branches go."""
    s = map_stmt(s, flatten, lambda e: e)
    match s:
        case Block(stmts):
            flat: list[Stmt] = []
            for x in stmts:
                flat.extend(x.stmts if isinstance(x, Block) else (x,))
            return flat[0] if len(flat) == 1 else Block(tuple(flat))
        case IfThenElse(c, t, Block(())):
            return IfThenElse(c, t, None)
        case _:
            return s


def gather_accumulates(s: Stmt) -> Stmt:
    """Accumulators that are computed one after the other are computed together, so that operands
    they share are loaded once: fills go ahead of accumulates into other accumulators. The tiles of
    AMX are too few for that.
    """
    match s:
        case Block((*before, Allocate() as inner)) if inner.memory in (
            Memory.WMMA_ACCUMULATOR,
            Memory.WGMMA_ACCUMULATOR,
        ) and all(is_tensor_store(x) and not _mentions(x, inner.name) for x in before):
            body = Block((*before, *sequence(inner.body)))
            return replace(inner, body=gather_accumulates(body))
        case Block(stmts):
            return Block(_fills_first(tuple(map(gather_accumulates, stmts))))
        case _:
            return map_stmt(s, gather_accumulates, lambda e: e)


def _fills_first(stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    ordered: list[Stmt] = []
    for s in stmts:
        place = len(ordered)
        if _tensor_call(s).startswith("tile.fill"):
            while place and _is_other_accumulate(ordered[place - 1], s):
                place -= 1
        ordered.insert(place, s)
    return tuple(ordered)


def _tensor_call(s: Stmt) -> str:
    """What a store into an accumulator does; empty for any other statement."""
    return s.value.name if isinstance(s, Store) and isinstance(s.value, Call) else ""


def _is_other_accumulate(s: Stmt, fill: Stmt) -> bool:
    return (
        isinstance(s, Store)
        and _tensor_call(s).startswith(PRODUCTS)
        and not _mentions(fill, s.buffer)
    )


def _mentions(s: Stmt, buffer: str) -> bool:
    """Whether a store writes or reads a buffer."""
    assert isinstance(s, Store)
    return s.buffer == buffer or any(buffer in loaded(e) for e in stmt_exprs(s))


def sequence(s: Stmt) -> tuple[Stmt, ...]:
    """The statements of a block, or the one statement."""
    return s.stmts if isinstance(s, Block) else (s,)
