"""The block that two affine operands span, against the shapes of the instructions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from selector.dataclass import dataclass
from selector.eqsat.conditions.context import (
    Context,
    Miss,
    cast_call,
    quoted,
    serial_over,
    shown,
    variable,
)
from selector.eqsat.facts import legal_instructions
from selector.intrinsics import TensorInstruction
from selector.ir.access import Level, access, align, cut, merge
from selector.ir.affine import Affine
from selector.ir.nodes import Binary, BinaryOp, Compare, Expr, Load, Not, Select
from selector.ir.printer import print_expr
from selector.ir.traverse import walk_expr
from selector.operands.updates import Factor, Update

Axis = tuple[Affine, Affine, int]
"""A level of both operands: stride of the first, stride of the second, count."""


def _walk(tile: tuple[Axis, ...], side: int) -> tuple[Level, ...]:
    """The levels of one operand along the tile."""
    return tuple(((axis[0], axis[1])[side], axis[2]) for axis in tile)


@dataclass(frozen=True)
class Operands:
    """Two affine operands of one sum: ``depth`` are the levels of the reduction of each, ``tile``
    the levels of the outputs, both operands' strides side by side, fastest first."""

    c: Context
    factors: tuple[Factor, Factor]
    lanes: int
    depth: tuple[tuple[Level, ...], tuple[Level, ...]]
    tile: tuple[Axis, ...]

    @cached_property
    def names(self) -> tuple[str, str]:
        first, second = (self.c.name(f.name) for f in self.factors)
        return first, second

    @cached_property
    def candidates(self) -> tuple[TensorInstruction, ...]:
        """The instructions of these types, on the accumulator's memory, that the user allows."""
        return _of_types(self.c, self.c.legal, self.factors)

    @property
    def near(self) -> str:
        return self.candidates[0].name if self.candidates else ""

    def lifted(self, m: int, n: int) -> str:
        """What a restriction keeps out that would fit, as a hint."""
        every = _of_types(self.c, legal_instructions(self.c.target), self.factors)
        fitting = [i.name for i in every if i not in self.c.legal and i.fits(m, n)]
        return f"; or lift the restriction: {fitting[0]} fits" if fitting else ""


def _of_types(
    c: Context, instructions: tuple[TensorInstruction, ...], factors: tuple[Factor, Factor]
) -> tuple[TensorInstruction, ...]:
    """Whole instructions on the accumulator's memory: parts of one are for windows only."""
    a, b = (f.element for f in factors)
    wanted = ((a, b, c.result), (b, a, c.result))
    whole = (i for i in instructions if i.family in c.families and not i.apart)
    return tuple(i for i in whole if (i.a_type, i.b_type, i.c_type) in wanted)


def block(c: Context, update: Update) -> Miss | None:
    """What is wrong with the block that two affine operands span; None if it looks right."""
    assert update.factors is not None
    first, second = update.factors
    assert first.load is not None
    assert second.load is not None
    reduce = update.reductions[0]
    terms = reduce.value.type.lanes // reduce.lanes
    left, right = (_parts(load.index, terms) for load in (first.load, second.load))
    if left is None or right is None:
        return c.miss(
            f"its {terms} terms of the reduction are not a whole number of levels of the index",
            "vectorize the reduction by a factor that divides the tile evenly",
        )
    tile = align(left[1], right[1])
    if tile is None:
        return c.miss("the operands' levels cut across each other", "use tile sizes that divide")
    operands = Operands(c, (first, second), reduce.lanes, (left[0], right[0]), tile)
    return next((m for m in _checks(operands, update) if m is not None), None)


def _parts(index: Expr, terms: int) -> tuple[tuple[Level, ...], tuple[Level, ...]] | None:
    """The levels of the reduction and those of the tile."""
    seen = access(index)
    return None if seen is None else cut(seen.levels, terms)


def _checks(o: Operands, update: Update) -> Iterator[Miss | None]:
    yield _shared(o)
    yield _conditions(o, update)
    constant = [not any(s.terms for s, _ in _walk(o.tile, side)) for side in (0, 1)]
    if all(constant):
        yield o.c.miss(
            "neither operand varies along the tile: every lane gets the same sum",
            "there is nothing to multiply here; compute the sum once and broadcast it",
            o.near,
        )
    elif any(constant):
        yield _convolution(o, update, 1 if constant[0] else 0)
    else:
        yield _copies(o)
        yield _matrix(o)
        yield _depth(o)
    yield _masks(o, update)


def _depth(o: Operands) -> Miss | None:
    """Each operand walks the reduction with one stride."""
    for name, levels in zip(o.names, o.depth, strict=True):
        walk = merge(levels)
        if len(walk) > 1:
            return o.c.miss(
                f"`{name}` is read along {len(walk)} reduction dimensions at once (strides "
                f"{_strides(walk)})",
                "vectorize one reduction dimension and loop over the others",
                o.near,
            )
    return None


def _shared(o: Operands) -> Miss | None:
    """No dimension of the tile moves both operands."""
    for i, (s, t, n) in enumerate(o.tile):
        if s.terms and t.terms:
            axis = "n" if i == 0 else "m"
            return o.c.miss(
                f"both operands vary along {axis}: `{o.names[0]}` is read with stride {_text(s)} "
                f"and `{o.names[1]}` with stride {_text(t)} (extent {n})",
                f"one of them must not depend on {axis}: loop over that dimension instead of "
                "vectorizing it",
                o.near,
            )
    return None


def _conditions(o: Operands, update: Update) -> Miss | None:
    """A condition is a predicate of one operand: it moves along rows or columns, not both."""
    first = bool(o.tile and o.tile[0][0].terms)
    marks = tuple((Affine.of(int(bool(s.terms) == first)), count) for s, count in _walk(o.tile, 0))
    terms = update.reductions[0].value.type.lanes // o.lanes
    for condition in _compared(update.reductions[0].value):
        walks = [_parts(side, terms) for side in (condition.a, condition.b)]
        tiles = [None if w is None else align(w[1], marks) for w in walks]
        axes = {bool(mark.terms) for t in tiles for s, mark, _ in t or () if s.terms}
        if None in tiles:
            return o.c.miss(
                f"the condition `{shown(condition)}` is not affine in the vectorized variables",
                "compare indices, not values; conditions on values belong in a Func that prepares "
                "the operand",
                o.near,
            )
        if len(axes) > 1:
            alone = (
                "compare the term with a row or a column alone, each in a condition of its own "
                "that `&` joins"
            )
            outside = (
                f"take it out of the sum, to where `{o.c.func}` is read: multiply by the "
                f"condition, `{cast_call(o.c.result)}(condition)` (a select would cut the tile)"
            )
            return o.c.miss(
                f"the condition `{shown(condition)}` varies along rows and columns of the tile: no "
                "operand can carry it",
                alone if _follows_sum(walks) else outside,
                o.near,
            )
    return None


def _follows_sum(walks: Iterable[tuple[tuple[Level, ...], tuple[Level, ...]] | None]) -> bool:
    return any(step.terms for w in walks if w is not None for step, _ in w[0])


def _masks(o: Operands, update: Update) -> Miss | None:
    """A condition is comparisons of sums of strides, joined by "and"."""
    for condition in _where(update.reductions[0].value):
        for e in walk_expr(condition):
            match e:
                case Binary(BinaryOp.OR, _, _) | Not():
                    how = "joins comparisons by more than `&&`"
                case Binary(BinaryOp.DIV | BinaryOp.MOD, a, _) if a.type.lanes > 1:
                    how = "divides an index or wraps it around"
                case _:
                    continue
            return o.c.miss(
                f"the condition `{shown(condition)}` {how}",
                "mask an operand in a Func of its own, `select(condition, a, 0)`, and multiply "
                "that one",
                o.near,
            )
    return None


def _copies(o: Operands) -> Miss | None:
    """Every dimension of the tile moves an operand."""
    idle = [n for s, t, n in o.tile if not s.terms and not t.terms]
    if not idle:
        return None
    return o.c.miss(
        f"neither operand varies along one dimension of the tile (extent {idle[0]}): its lanes are "
        "copies of one another",
        f"compute `{o.c.func}` without that dimension, and read it there as often as it is needed",
        o.near,
    )


def _where(e: Expr) -> list[Expr]:
    """The conditions that operands depend on."""
    found: list[Expr] = []
    for x in walk_expr(e):
        match x:
            case Select(condition, _, _):
                found.append(condition)
            case Load(_, _, _, predicate) if predicate is not None:
                found.append(predicate)
            case _:
                pass
    return found


def _compared(e: Expr) -> list[Compare]:
    """The vector comparisons in them."""
    every = [x for c in _where(e) for x in walk_expr(c) if isinstance(x, Compare)]
    return [x for x in dict.fromkeys(every) if x.type.lanes > 1]


def _matrix(o: Operands) -> Miss | None:
    """A matrix product: the tile's extents against the shapes."""
    first = bool(o.tile[0][0].terms)
    by_columns = [bool(axis[0].terms) == first for axis in o.tile]
    if by_columns != sorted(by_columns, reverse=True):
        return o.c.miss(
            "rows and columns of the tile are interleaved",
            "vectorize the dimensions of one operand next to each other",
            o.near,
        )
    n, m = 1, 1
    for axis, column in zip(o.tile, by_columns, strict=True):
        n, m = (n * axis[2], m) if column else (n, m * axis[2])
    if any(i.fits(m, n) for i in o.candidates):
        return _unmerged(o, m, n)
    near = min(
        o.candidates, key=lambda i: (_up(m, i.m) * _up(n, i.n) - m * n, i.name), default=None
    )
    if near is None:
        return None
    return o.c.miss(
        f"its tile is {m} x {n} (m x n); no instruction's shape divides it",
        f"make it {_up(m, near.m)} x {_up(n, near.n)}, a multiple of {near.m} x {near.n} "
        f"({near.name}){o.lifted(m, n)}",
        near.name,
    )


def _unmerged(o: Operands, m: int, n: int) -> Miss | None:
    """An operand whose rows or columns lie in several dimensions of its buffer."""
    for side in (0, 1):
        along = merge(tuple(level for level in _walk(o.tile, side) if level[0].terms))
        if len(along) > 1:
            return o.c.miss(
                f"the {m} x {n} tile spans {len(along)} dimensions of `{o.names[side]}`, whose "
                f"strides ({_strides(along)}) do not merge",
                "vectorize one dimension of each operand, and loop or unroll over the others; or "
                f"copy what is read of `{o.names[side]}` into a Func where they lie one after the "
                "other",
                o.near,
            )
    return None


def _convolution(o: Operands, update: Update, side: int) -> Miss:
    """A convolution: lanes against the shapes, strides against the taps. ``side`` is the image."""
    image = o.names[side]
    sizes = sorted({i.m * i.n for i in o.candidates if not i.configurable})
    if sizes and all(o.lanes % size for size in sizes):
        near = min(sizes, key=lambda s: (_up(o.lanes, s) - o.lanes, s))
        serial = [variable(f.name) for f in serial_over(o.c, o.c.store.index)]
        copies = o.c.copies
        loops = f", and the loop over {quoted(serial)} is serial" if serial else ""
        loops = loops or (f", and the statement stands {copies} times" if copies > 1 else "")
        around = quoted(serial) or ("the dimension that is unrolled" if copies > 1 else "")
        more = f"vectorize {around} as well, or " if around else "vectorize "
        return o.c.miss(
            f"its {o.lanes} lanes are no multiple of any instruction's m x n "
            f"({', '.join(map(str, sizes))}){loops}",
            f"{more}{_up(o.lanes, near)} outputs at once{o.lifted(o.lanes, 1)}",
            o.near,
        )
    along = merge(_walk(o.tile, side))
    if len(along) > 1:
        return o.c.miss(
            f"the tile spans {len(along)} dimensions of `{image}` (strides {_strides(along)}), but "
            "a convolution's operand is read along one",
            "vectorize the dimension that the taps slide over, and loop or unroll over the others",
            o.near,
        )
    return (
        _depth(o)
        or _masks(o, update)
        or _unbanded(o, update, side)
        or o.c.miss(
            f"only `{image}` varies along the tile (stride {_strides(along)}), in another unit "
            "than along the reduction: as a matrix product every row of the tile would be the "
            "same, and as a convolution no banded (Toeplitz) matrix has that shape",
            f"vectorize a dimension of `{o.names[1 - side]}` too, or, for a convolution, the "
            "dimension that its taps slide over",
            o.near,
        )
    )


def _unbanded(o: Operands, update: Update, side: int) -> Miss | None:
    """A condition of a convolution follows the windows of the image, or the taps alone."""
    total = update.reductions[0].value
    terms = total.type.lanes // o.lanes
    image = _steps(_walk(o.tile, side), o.depth[side])
    for condition in _compared(total):
        for compared in (condition.a, condition.b):
            parts = _parts(compared, terms)
            steps = None if parts is None else _steps(parts[1], parts[0])
            if image is None or steps is None or steps[0] == 0:
                continue
            if steps[0] * image[1] != steps[1] * image[0]:
                return o.c.miss(
                    f"the condition `{shown(condition)}` follows neither the windows of "
                    f"`{o.names[side]}` nor the taps alone, as the entries of a band do",
                    f"let it compare where `{o.names[side]}` is read, or taps with taps; or keep "
                    f"`{o.c.func}` out of tensor memory",
                    o.near,
                )
    return None


def _steps(tile: tuple[Level, ...], depth: tuple[Level, ...]) -> tuple[int, int] | None:
    """How far a walk goes from output to output and from term to term, where that is known."""
    known: list[int] = []
    for levels in (merge(tile), merge(depth)):
        stride = levels[0][0].constant if len(levels) == 1 else 0 if not levels else None
        if stride is None:
            return None
        known.append(stride)
    return known[0], known[1]


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _text(stride: Affine) -> str:
    return print_expr(stride.to_expr())


def _strides(levels: tuple[Level, ...]) -> str:
    return ", ".join(_text(s) for s, _ in levels)
