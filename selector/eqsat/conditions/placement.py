"""Where the accumulator lives, and how it is stored and read."""

from __future__ import annotations

from selector.eqsat.conditions.context import Context, Miss, quoted, serial_over, stage_of, variable
from selector.eqsat.extract import Shape
from selector.eqsat.facts import EXECUTES
from selector.intrinsics import INSTRUCTIONS, for_target
from selector.ir.access import access
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Expr,
    IntImm,
    Load,
    Location,
    LocToLoc,
    Memory,
)
from selector.ir.printer import print_expr
from selector.ir.traverse import walk_expr
from selector.targets import TARGETS, Target


def no_unit(c: Context) -> Miss | None:
    """The target executes nothing on this memory."""
    if c.location is Location.MEM or any(i.family in EXECUTES[c.location] for i in c.legal):
        return None
    unasked = {i.family for i in INSTRUCTIONS if not i.asked}
    families = " or ".join(f for f in EXECUTES[c.location] if f in unasked)
    return c.miss(
        f"`{c.func}` is placed in {c.location.value} memory, and {c.target_text} "
        f"has no {families} instructions",
        _other_place(c),
    )


def _other_place(c: Context) -> str:
    """Which target executes a location, and which memory this target's instructions use."""
    if c.restricted and _executes(c.target, c.location):
        return "lift the restriction (`instructions=`)"
    able = [t.name for t in TARGETS.values() if _executes(t, c.location)]
    own = [m for m in Memory if m.location is not Location.MEM and _executes(c.target, m.location)]
    compile_for = f"compile for {', '.join(able)}" if able else "no target has them yet"
    if not own:
        return compile_for
    return f"{compile_for}, or place the Func in MemoryType.{own[0].value}"


def _executes(target: Target, location: Location) -> bool:
    families = EXECUTES.get(location, ())
    return any(i.family in families for i in for_target(target))


def other_shape(c: Context, shapes: frozenset[Shape]) -> Miss | None:
    """Updates of one accumulator that fit, but not together."""
    if not shapes:
        return None
    found = ", ".join(sorted({f"{name} on {m} x {n}" for name, m, n in shapes}))
    return c.miss(
        f"the updates of `{c.func}` agree on no common instruction and tile; this one fits {found}",
        "give all updates of the accumulator the same types and the same tile",
    )


def dense_store(c: Context) -> Miss | None:
    """A tile is stored as one dense vector."""
    seen = access(c.store.index)
    if seen is not None and seen.is_dense() and c.store.index.type.lanes > 1:
        return None
    around = serial_over(c, c.store.index)
    size = _tile_size(c.store.index)
    if size is not None:
        return c.miss(
            f"`{c.func}` is stored across the tiles of {size} into which its update cuts it",
            _same_tiles(size),
        )
    if c.store.index.type.lanes > 1:
        return c.miss(
            f"`{c.func}` is stored at an index that is not dense: a tile is one dense vector",
            f"vectorize all dimensions of `{c.func}` that its tile has, innermost first, over the "
            "whole tile",
        )
    if not around:
        return c.miss(
            f"`{c.func}` is stored by scalar code: a tile is one dense vector",
            f"vectorize all dimensions of `{c.func}` that its tile has, innermost first",
        )
    names = [variable(f.name) for f in around]
    extents = " x ".join(print_expr(f.extent) for f in around)
    stage = "update" if stage_of(c.store, c.scope) == "update" else "pure definition"
    return c.miss(
        f"`{c.func}` is stored by scalar code, in the loops over {quoted(names)} ({extents}): a "
        "tile is one dense vector",
        f"vectorize {quoted(names)} in the {stage}, innermost first; each must cover its dimension "
        "of the tile, or Halide takes the vector apart",
    )


def _tile_size(index: Expr) -> int | None:
    """The extent of tiles that a vector crosses: accumulators are laid out by the tiles of their
    update, so that other vectors divide by it."""
    for e in walk_expr(index):
        match e:
            case Binary(BinaryOp.DIV, a, Broadcast(IntImm(size), _)) if a.type.lanes > 1:
                return size
            case _:
                pass
    return None


def _same_tiles(size: int) -> str:
    return (
        f"vectorize the pure definition and the reading stage by {size} as well, unroll over "
        f"tiles, and let the extent be a multiple of {size}"
    )


def reads(c: Context) -> Miss | None:
    """A tile is read as one dense vector."""
    for e in walk_expr(c.store.value):
        match e:
            case LocToLoc(_, Location.MEM, Load(_, buffer, index, _)):
                seen = access(index)
                if seen is None or not seen.is_dense() or index.type.lanes == 1:
                    return _read_miss(c, buffer, index)
            case _:
                pass
    return None


def _read_miss(c: Context, buffer: str, index: Expr) -> Miss:
    name, around = c.name(buffer), serial_over(c, index)
    size = _tile_size(index)
    if size is not None:
        return c.miss(
            f"`{name}` is read across the tiles of {size} into which its update cuts it",
            _same_tiles(size),
        )
    loops = quoted([variable(f.name) for f in around])
    where = f", in the loop over {loops}" if around and index.type.lanes == 1 else ""
    return c.miss(
        f"`{name}` is read {_described(index)}{where}: a tile is read as one dense vector",
        f"vectorize the reading stage (`{c.func}`) over the whole tile of `{name}`, in the order "
        "in which it is stored",
    )


def _described(index: Expr) -> str:
    seen = access(index)
    if index.type.lanes == 1:
        return "by scalar code"
    if seen is None:
        return "at an index that is not affine"
    if not seen.levels:
        return "as a broadcast"
    return f"with stride {print_expr(seen.levels[0][0].to_expr())}"


def predicated(c: Context) -> Miss | None:
    """Tiles are stored whole."""
    if c.store.predicate is None:
        return None
    return c.miss(
        f"the store to `{c.func}` has a predicate: tiles are stored whole",
        "round the accumulator's tile up (its consumer carries the tail): `bound_extent`, or "
        "TailStrategy.RoundUp in the update; or mask the operands with `select(..., 0)`",
    )


def unused(c: Context) -> Miss | None:
    """An accumulator into which nothing is multiplied."""
    return c.miss(
        f"no update of `{c.func}` became an instruction",
        f"`{c.func}` needs an update `f += a*b` over a vectorized reduction",
    )
