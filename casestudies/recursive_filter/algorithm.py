"""The recursive filter ``Y_t = X_t + a Y_(t-1) + b Y_(t-2)``, in plain Halide (paper section V-D).

A tiled scan with fix-up (Hoppe et al.). Tiles of samples are filtered each from a state of zero.
What came before a tile enters through two numbers, its state ``(Y_(t-1), Y_(t-2))``, carried over
tiles and groups of tiles by short recursions. ``blocks`` filters a block of samples by a product
with the impulse response; ``lookahead`` (in its own file) by a recursion that looks further back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import halide as hl

from casestudies.recursive_filter.sizes import BLOCKS, LANES, Sizes

F16, F32 = hl.Float(16), hl.Float(32)
ENDS = 8  # outputs kept of each block; the last two are its state
TOGETHER = 4  # terms of a part that are loaded together
Numbers = Sequence[hl.Expr]

# Time, channel; group, tile; tile of a group, block of a tile, place in a block, part of a sum.
t, c, g, n, m, i, j, k, u = (hl.Var(name) for name in "tcgnmijku")


@dataclass(frozen=True, slots=True)
class Chain:
    """A recursion over states, and the Func that keeps its result."""

    steps: hl.Func
    kept: hl.Func


@dataclass(frozen=True, slots=True)
class Carry:
    """``prefix(m, g, c)``: what tiles 0 ... m of a group leave behind; ``before(n, c)``: the state
    before tile n, from the groups before (``parts`` of a sum, its ``total``) and the tiles before
    in its own.
    """

    inclusive: hl.Func
    prefix: hl.Func
    parts: Chain
    total: hl.Func
    before: hl.Func


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of samples. ``frames(j, n, c)``: sample j of block n. ``ends(k, m, n, c)``:
    the last outputs of block m of tile n from a state of zero, made from ``sums``.
    """

    frames: hl.Func
    sums: hl.Func
    ends: hl.Func
    j: hl.RDom


@dataclass(frozen=True, slots=True)
class Tables:
    """What follows from a and b, see ``design.tables``."""

    numbers: hl.ImageParam
    sizes: Sizes

    def transition(self, table: str, row: int | hl.Expr) -> Numbers:
        """Four numbers of a table, row by row of a matrix."""
        return tuple(self.numbers[self.sizes.place(table) + 4 * row + q] for q in range(4))

    def entering(self, at: hl.Expr) -> Numbers:
        first = self.sizes.place("E")
        return self.numbers[first + at], self.numbers[first + self.sizes.block + at]


@dataclass(frozen=True, slots=True)
class Filter:
    """The Funcs that a schedule talks about. Blocks are filtered twice: ``first`` for the states
    that tiles leave behind, ``second`` for the outputs.
    """

    sizes: Sizes
    x: hl.ImageParam
    tables: Tables
    response: hl.ImageParam
    first: Blocks
    tile_ends: Chain
    carry: Carry
    second: Blocks
    states: hl.Func
    filtered: hl.Func
    i: hl.RDom
    output: hl.Func


BLOCK, TILE, PART = range(3)  # rows of the table of spans


def dense(name: str, element: hl.Type, *extents: int) -> hl.ImageParam:
    """An input of known extents, dimension 0 first."""
    parameter = hl.ImageParam(element, len(extents), name)
    stride = 1
    for dim, extent in enumerate(extents):
        parameter.dim(dim).set_bounds(0, extent).set_stride(stride)
        stride *= extent
    return parameter


def tables_of(z: Sizes) -> Tables:
    return Tables(dense("F", F32, z.place("end")), z)


def zero() -> Numbers:
    return hl.f32(0.0), hl.f32(0.0)


def advance(over: Numbers, state: Numbers, more: Numbers) -> Numbers:
    """``state`` carried on by a transition, plus ``more``."""
    return (
        (more[0] + over[0] * state[0]) + over[1] * state[1],
        (more[1] + over[2] * state[0]) + over[3] * state[1],
    )


def where(condition: hl.Expr, state: Numbers, other: Numbers | None = None) -> Numbers:
    """``state`` if the condition holds, else ``other`` or zero."""
    old = zero() if other is None else other
    return tuple(hl.select(condition, state[q], old[q]) for q in (0, 1))


def chain(
    name: str,
    args: tuple[hl.Var, ...],
    steps: int | hl.Expr,
    step: Callable[[hl.Expr, Numbers], Numbers],
) -> hl.Func:
    """A state that starts from zero and becomes ``step(r, state)`` for r = 0 ... steps - 1."""
    f, r = hl.Func(name), hl.RDom([(0, steps)], f"{name}_r")
    f[args] = tuple(zero())
    f[args] = tuple(step(r.x, (f[args][0], f[args][1])))
    return f


def kept(f: hl.Func, args: tuple[hl.Var, ...], name: str) -> Chain:
    """``f`` with a copy of its result, to be stored elsewhere than the recursion that makes it."""
    copy = hl.Func(name)
    copy[args] = (f[args][0], f[args][1])
    return Chain(f, copy)


def carried(
    z: Sizes, samples: hl.Expr, tables: Tables, end_of_tile: Callable[[hl.Expr], Numbers]
) -> Carry:
    """States before tiles from what each leaves behind if it starts from zero."""

    def tile(r: hl.Expr, s: Numbers) -> Numbers:
        number = m - (z.tiles - 1 - r)
        end = end_of_tile(g * z.tiles + hl.max(number, 0))
        return advance(tables.transition("S", TILE), s, where(number >= 0, end))

    inclusive = chain("inclusive", (m, g, c), z.tiles, tile)
    prefix = kept(inclusive, (m, g, c), "prefix").kept
    together = LANES * TOGETHER * z.group
    rounds = (samples + together - 1) // together * TOGETHER

    def part(r: hl.Expr, s: Numbers) -> Numbers:
        number = g - 1 - u - LANES * (rounds - 1 - r)
        end = prefix[z.tiles - 1, hl.max(number, 0), c]
        return advance(tables.transition("S", PART), s, where(number >= 0, end))

    steps, parts = chain("part_steps", (u, g, c), rounds, part), hl.Func("parts")
    parts[u, g, c] = tuple(advance(tables.transition("G", u), steps[u, g, c], zero()))
    total, r = hl.Func("total"), hl.RDom([(0, LANES)], "total_r")
    total[g, c] = tuple(zero())
    total[g, c] = tuple(total[g, c][q] + parts[r.x, g, c][q] for q in (0, 1))
    group, inner = n // z.tiles, n % z.tiles
    before, own = hl.Func("again_before"), prefix[hl.max(inner - 1, 0), group, c]
    before[n, c] = tuple(
        advance(tables.transition("M", inner), total[group, c], where(inner > 0, own))
    )
    return Carry(inclusive, prefix, Chain(steps, parts), total, before)


def end_of(p: Blocks, tile: hl.Expr, block: hl.Expr) -> Numbers:
    """The state that a block of a tile leaves behind if it starts from zero."""
    return p.ends[ENDS - 1, block, tile, c], p.ends[ENDS - 2, block, tile, c]


def blocks_of(
    x: hl.ImageParam, response: hl.ImageParam, z: Sizes, name: str, *, whole: bool
) -> Blocks:
    """The blocks of ``x``, which is zero past its end; ``whole``: it ends where a group does."""
    frames, sums, ends = (hl.Func(f"{name}_{part}") for part in ("frames", "sums", "ends"))
    place, r = n * z.block + j, hl.RDom([(0, z.block)], f"{name}_j")
    inside = x[hl.min(place, x.width() - 1), c]
    padded = hl.select(place < x.width(), inside, hl.cast(F16, 0.0))
    frames[j, n, c] = x[place, c] if whole else padded
    sums[k, n, c] = hl.f32(0.0)
    sums[k, n, c] += hl.f32(frames[r.x, n, c]) * hl.f32(response[r.x, z.block - ENDS + k])
    ends[k, m, n, c] = sums[k, n * z.blocks + m, c]
    return Blocks(frames, sums, ends, r)


def blocks(sizes: Sizes = BLOCKS, *, whole: bool = False) -> Filter:
    """The unscheduled pipeline; ``whole``: the samples are known to be a whole number of groups."""
    z, x = sizes, hl.ImageParam(F16, 2, "X")
    tables, response = tables_of(z), dense("T", F16, z.block, z.block)
    first = blocks_of(x, response, z, "block", whole=whole)

    def step(r: hl.Expr, s: Numbers) -> Numbers:
        return advance(tables.transition("S", BLOCK), s, end_of(first, n, r))

    tile_steps = chain("tile_steps", (n, c), z.blocks, step)
    tile_ends = kept(tile_steps, (n, c), "tile_ends")
    carry = carried(z, x.width(), tables, lambda number: tile_ends.kept[number, c])
    second = blocks_of(x, response, z, "again", whole=whole)

    states, r = hl.Func("states"), hl.RDom([(0, z.blocks)], "states_r")
    states[m, n, c] = (hl.undef(F32), hl.undef(F32))
    previous = hl.max(r.x - 1, 0)
    end = end_of(second, n, previous)
    after = advance(tables.transition("S", BLOCK), states[previous, n, c], end)
    states[r.x, n, c] = where(r.x > 0, after, carry.before[n, c])
    filtered, r = hl.Func("again_filtered"), hl.RDom([(0, z.block)], "i")
    filtered[i, n, c] = hl.f32(0.0)
    filtered[i, n, c] += hl.f32(second.frames[r.x, n, c]) * hl.f32(response[r.x, i])
    output = hl.Func("output")
    own = filtered[t % z.block, t // z.block, c]
    output[t, c] = hl.cast(F16, own + entering(z, tables, states))
    return Filter(
        z, x, tables, response, first, tile_ends, carry, second, states, filtered, r, output
    )


def entering(z: Sizes, tables: Tables, states: hl.Func) -> hl.Expr:
    """What the state before its block contributes to output t."""
    state = states[t // z.block % z.blocks, t // z.tile, c]
    first, second = tables.entering(t % z.block)
    return first * state[0] + second * state[1]
