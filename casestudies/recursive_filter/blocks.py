"""The recursive filter for stock Halide, which does not share out a recursion itself: a tiled scan
with fix-up (Hoppe et al.).

Tiles of samples are filtered each from a state of zero, block by block: a product with the impulse
response. What came before a tile enters through two numbers, its state ``(Y_(t-1), Y_(t-2))``,
carried over tiles and groups of tiles by short recursions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import halide as hl
import numpy as np

from casestudies.recursive_filter.algorithm import F16
from casestudies.recursive_filter.design import numbers_of, response_of
from casestudies.recursive_filter.sizes import BLOCK, BLOCKS, GROUP, LANES, TILE, TILES, place

ENDS = 2  # outputs kept of each block: its state
TOGETHER = 4  # terms of a part that are loaded together
Numbers = Sequence[hl.Expr]
SPANS = range(3)  # rows of the table of spans: a block, a tile, a part

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
class Filter:
    """The Funcs that a schedule talks about. Blocks are filtered twice: ``first`` for the states
    that tiles leave behind, ``second`` for the outputs.
    """

    x: hl.ImageParam
    response: hl.Func
    first: Blocks
    tile_ends: Chain
    carry: Carry
    second: Blocks
    states: hl.Func
    filtered: hl.Func
    i: hl.RDom
    output: hl.Func


def transition(numbers: hl.Buffer, table: str, row: int | hl.Expr) -> Numbers:
    """Four numbers of a table, row by row of a matrix."""
    return tuple(numbers[place(table) + 4 * row + q] for q in range(4))


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


def carried(samples: hl.Expr, numbers: hl.Buffer, tile_ends: hl.Func) -> Carry:
    """States before tiles from what each leaves behind if it starts from zero."""
    _, over_tile, over_part = (transition(numbers, "S", row) for row in SPANS)

    def tile(r: hl.Expr, s: Numbers) -> Numbers:
        number = m - (TILES - 1 - r)
        end = tile_ends[g * TILES + hl.max(number, 0), c]
        return advance(over_tile, s, where(number >= 0, end))

    inclusive = chain("inclusive", (m, g, c), TILES, tile)
    prefix = kept(inclusive, (m, g, c), "prefix").kept
    together = LANES * TOGETHER * GROUP
    rounds = (samples + together - 1) // together * TOGETHER

    def part(r: hl.Expr, s: Numbers) -> Numbers:
        number = g - 1 - u - LANES * (rounds - 1 - r)
        end = prefix[TILES - 1, hl.max(number, 0), c]
        return advance(over_part, s, where(number >= 0, end))

    steps, parts = chain("part_steps", (u, g, c), rounds, part), hl.Func("parts")
    parts[u, g, c] = tuple(advance(transition(numbers, "G", u), steps[u, g, c], zero()))
    total, r = hl.Func("total"), hl.RDom([(0, LANES)], "total_r")
    total[g, c] = tuple(zero())
    total[g, c] = tuple(total[g, c][q] + parts[r.x, g, c][q] for q in (0, 1))
    group, inner = n // TILES, n % TILES
    before, own = hl.Func("again_before"), prefix[hl.max(inner - 1, 0), group, c]
    over = transition(numbers, "M", inner)
    before[n, c] = tuple(advance(over, total[group, c], where(inner > 0, own)))
    return Carry(inclusive, prefix, Chain(steps, parts), total, before)


def end_of(p: Blocks, tile: hl.Expr, block: hl.Expr) -> Numbers:
    """The state that a block of a tile leaves behind if it starts from zero."""
    return p.ends[ENDS - 1, block, tile, c], p.ends[ENDS - 2, block, tile, c]


def blocks_of(x: hl.ImageParam, response: hl.Func, name: str, *, whole: bool) -> Blocks:
    """The blocks of ``x``, which is zero past its end; ``whole``: it ends where a group does."""
    frames, sums, ends = (hl.Func(f"{name}_{part}") for part in ("frames", "sums", "ends"))
    at, r = n * BLOCK + j, hl.RDom([(0, BLOCK)], f"{name}_j")
    inside = x[hl.min(at, x.width() - 1), c]
    padded = hl.select(at < x.width(), inside, hl.cast(F16, 0.0))
    frames[j, n, c] = x[at, c] if whole else padded
    sums[k, n, c] = hl.f32(0.0)
    sums[k, n, c] += hl.f32(frames[r.x, n, c]) * hl.f32(response[r.x, BLOCK - ENDS + k])
    ends[k, m, n, c] = sums[k, n * BLOCKS + m, c]
    return Blocks(frames, sums, ends, r)


def constant(element: hl.Type, values: np.ndarray, name: str) -> hl.Buffer:
    """An array that is part of the pipeline."""
    found = hl.Buffer(element, list(values.shape[::-1]), name)
    np.asarray(found)[...] = values
    return found


def blocks(a: float, b: float, *, whole: bool = False) -> Filter:
    """The unscheduled pipeline; ``whole``: the samples are known to be a whole number of groups."""
    x, response = hl.ImageParam(F16, 2, "X"), hl.Func("response")
    numbers = constant(hl.Float(32), numbers_of(a, b), "numbers")
    response[j, i] = constant(F16, response_of(a, b), "taps")[j, i]
    over_block = transition(numbers, "S", SPANS[0])
    first = blocks_of(x, response, "block", whole=whole)

    def step(r: hl.Expr, s: Numbers) -> Numbers:
        return advance(over_block, s, end_of(first, n, r))

    tile_ends = kept(chain("tile_steps", (n, c), BLOCKS, step), (n, c), "tile_ends")
    carry = carried(x.width(), numbers, tile_ends.kept)
    second = blocks_of(x, response, "again", whole=whole)

    states, r = hl.Func("states"), hl.RDom([(0, BLOCKS)], "states_r")
    states[m, n, c] = (hl.undef(hl.Float(32)), hl.undef(hl.Float(32)))
    previous = hl.max(r.x - 1, 0)
    after = advance(over_block, states[previous, n, c], end_of(second, n, previous))
    states[r.x, n, c] = where(r.x > 0, after, carry.before[n, c])
    filtered, r = hl.Func("again_filtered"), hl.RDom([(0, BLOCK)], "i")
    filtered[i, n, c] = hl.f32(0.0)
    filtered[i, n, c] += hl.f32(second.frames[r.x, n, c]) * hl.f32(response[r.x, i])
    output = hl.Func("output")
    own, state = filtered[t % BLOCK, t // BLOCK, c], states[t // BLOCK % BLOCKS, t // TILE, c]
    entering = [numbers[place("E") + BLOCK * q + t % BLOCK] for q in (0, 1)]
    output[t, c] = hl.cast(F16, own + entering[0] * state[0] + entering[1] * state[1])
    return Filter(x, response, first, tile_ends, carry, second, states, filtered, r, output)
