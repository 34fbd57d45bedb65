"""The recursive filter ``Y_t = X_t + a Y_(t-1) + b Y_(t-2)``, in plain Halide (paper section V-D).

``blocks``: a tiled scan with fix-up (Hoppe et al.). From a state of zero, a block of samples is a
product with the impulse response; what came before enters through two numbers, the last outputs of
the block before. Those are carried over blocks, tiles and groups of tiles, each a short recursion.

With h the impulse response, the state ``(Y_(t-1), Y_(t-2))`` after n more steps without input is
``(h(n) Y_(t-1) + b h(n-1) Y_(t-2), h(n-1) Y_(t-1) + b h(n-2) Y_(t-2))``: three numbers
``h(n), h(n-1), h(n-2)`` carry a state over n samples, and a few products make those of 2n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import halide as hl

F16 = hl.Float(16)
ENDS = 8  # outputs kept of each block; two of them are its state
LANES = 32  # parts of the sum over all groups before
TOGETHER = 4  # terms of a part that are loaded together
Numbers = Sequence[hl.Expr]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Samples of a block, of a tile (16 blocks, say), and of a group of tiles; powers of two."""

    block: int = 64
    tile: int = 1024
    group: int = 16384

    @property
    def blocks(self) -> int:
        return self.tile // self.block

    @property
    def tiles(self) -> int:
        return self.group // self.tile


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of samples, filtered each for itself, and the last outputs of each.

    ``frames(j, n, c)``: sample j of block n. ``ends(k, n, c)``: output ``length - 1 - k``, made
    from ``sums``. ``response``: Funcs that double the known part of the impulse response, the last
    one knows it up to ``length``.
    """

    length: int
    frames: hl.Func
    weights: hl.Func
    sums: hl.Func
    ends: hl.Func
    response: tuple[hl.Func, ...]
    j: hl.RDom

    @property
    def over_block(self) -> Numbers:
        h = self.response[-1]
        return h[self.length], h[self.length - 1], h[self.length - 2]


@dataclass(frozen=True, slots=True)
class Chain:
    """A recursion over states, and the Func that keeps its result."""

    steps: hl.Func
    kept: hl.Func


@dataclass(frozen=True, slots=True)
class Filter:
    """The Funcs that a schedule talks about; ``c`` is the channel."""

    sizes: Sizes
    x: hl.ImageParam
    coefficients: hl.ImageParam
    first: Blocks
    tile_ends: Chain
    over_tile: hl.Func
    inclusive: hl.Func
    prefix: hl.Func
    second: Blocks
    parts: Chain
    over_lanes: hl.Func
    over_group: hl.Func
    before_group: hl.Func
    over_tiles: hl.Func
    before_tile: hl.Func
    carry: hl.Func
    states: Chain
    toeplitz: hl.Func
    filtered: hl.Func
    i: hl.RDom
    output: hl.Func


t, c, g, i, j, k, m, n, u = (hl.Var(name) for name in "tcgijkmnu")


def advance(over: Numbers, b: hl.Expr, state: Numbers, more: Numbers) -> tuple[hl.Expr, hl.Expr]:
    """``state`` carried on by the response ``over``, plus ``more``."""
    return (
        over[0] * state[0] + b * over[1] * state[1] + more[0],
        over[1] * state[0] + b * over[2] * state[1] + more[1],
    )


def zero_state() -> tuple[hl.Expr, hl.Expr]:
    return hl.f32(0.0), hl.f32(0.0)


def impulse_response(coefficients: hl.ImageParam, length: int, name: str) -> tuple[hl.Func, ...]:
    """h(-1) ... h(``length``), doubled step by step: ``h(m + i) = h(m) h(i) + b h(m-1) h(i-1)``."""
    a, b = coefficients[0], coefficients[1]
    h = hl.Func(f"{name}_response_1")
    h[n] = hl.select(n < 0, hl.f32(0.0), n == 0, hl.f32(1.0), a)
    found = [h]
    for known in (1 << level for level in range(length.bit_length() - 1)):
        longer, rest = hl.Func(f"{name}_response_{2 * known}"), hl.max(n - known, 0)
        new = h[known] * h[rest] + b * h[known - 1] * h[rest - 1]
        longer[n] = hl.select(n <= known, h[hl.min(n, known)], new)
        h = longer
        found.append(h)
    return tuple(found)


def squared(name: str, over: Numbers, times: int, b: hl.Expr) -> hl.Func:
    """The response over ``2**times`` as many samples."""
    f, r = hl.Func(name), hl.RDom([(0, times)], f"{name}_r")
    f[u] = tuple(over)
    p = f[u]
    square = (
        p[0] * p[0] + b * p[1] * p[1],
        p[0] * p[1] + b * p[1] * p[2],
        p[1] * p[1] + b * p[2] * p[2],
    )
    f[u] = chosen(r.x < times, square, (p[0], p[1], p[2]))
    return f


def chain(
    name: str,
    args: tuple[hl.Var, ...],
    start: Numbers,
    steps: int | hl.Expr,
    step: Callable[[hl.Expr, Numbers], Numbers],
) -> hl.Func:
    """A state that starts as ``start`` and becomes ``step(r, state)`` for r = 0 ... steps - 1."""
    f, r = hl.Func(name), hl.RDom([(0, steps)], f"{name}_r")
    f[args] = (start[0], start[1])
    f[args] = tuple(step(r.x, (f[args][0], f[args][1])))
    return f


def kept(f: hl.Func, args: tuple[hl.Var, ...], name: str) -> hl.Func:
    """A copy of a state, to be stored elsewhere than the recursion that makes it."""
    copy = hl.Func(name)
    copy[args] = (f[args][0], f[args][1])
    return copy


def chosen(condition: hl.Expr, new: Numbers, old: Numbers) -> Numbers:
    return tuple(hl.select(condition, x, y) for x, y in zip(new, old, strict=True))


def blocks_of(
    x: hl.ImageParam, coefficients: hl.ImageParam, length: int, name: str, *, whole: bool
) -> Blocks:
    """The blocks of ``x``, which is zero past its end; ``whole``: it ends where a group does."""
    frames, weights, sums, ends = (
        hl.Func(f"{name}_{part}") for part in ("frames", "weights", "sums", "ends")
    )
    response = impulse_response(coefficients, length, name)
    place, r = n * length + j, hl.RDom([(0, length)], f"{name}_j")
    inside = x[hl.min(place, x.width() - 1), c]
    padded = hl.select(place < x.width(), inside, hl.cast(F16, 0.0))
    frames[j, n, c] = x[place, c] if whole else padded
    weights[j, k] = hl.cast(F16, response[-1][hl.max(length - 1 - k - j, -1)])
    sums[k, n, c] = hl.f32(0.0)
    sums[k, n, c] += hl.f32(frames[r.x, n, c]) * hl.f32(weights[r.x, k])
    ends[k, n, c] = sums[k, n, c]
    return Blocks(length, frames, weights, sums, ends, response, r)


def end_of(p: Blocks, number: hl.Expr) -> Numbers:
    """The state that a block leaves behind if it starts from zero."""
    return p.ends[0, number, c], p.ends[1, number, c]


def blocks(sizes: Sizes | None = None, *, whole: bool = False) -> Filter:
    """The unscheduled pipeline: arrays ``X`` (samples, channels) and ``C`` = (a, b). ``whole``: the
    samples are known to be a whole number of groups.
    """
    z = sizes or Sizes()
    x, coefficients = hl.ImageParam(F16, 2, "X"), hl.ImageParam(hl.Float(32), 1, "C")
    coefficients.dim(0).set_bounds(0, 2)
    b = coefficients[1]
    zero = zero_state()

    # The state that each tile leaves behind if it starts from zero, summed up over its group.
    first = blocks_of(x, coefficients, z.block, "block", whole=whole)
    tile_steps = chain(
        "tile_steps", (n, c), zero, z.blocks,
        lambda r, s: advance(first.over_block, b, s, end_of(first, n * z.blocks + r)),
    )  # fmt: skip
    tile_ends = kept(tile_steps, (n, c), "tile_ends")
    over_tile = squared("tile_response", first.over_block, log2(z.blocks), b)
    inclusive = chain(
        "inclusive", (m, g, c), zero, z.tiles,
        lambda r, s: chosen(r <= m, advance(over_tile[0], b, s, tile_ends[g * z.tiles + r, c]), s),
    )  # fmt: skip
    prefix = kept(inclusive, (m, g, c), "prefix")

    # The state before each tile: what all groups before leave, and the tiles before in its group.
    second = blocks_of(x, coefficients, z.block, "again", whole=whole)
    over_lanes = squared("lanes_response", second.over_block, log2(z.group // z.block * LANES), b)
    over_group = squared("group_response", second.over_block, log2(z.group // z.block), b)
    over_tiles = squared("tiles_response", second.over_block, log2(z.blocks), b)
    together = LANES * TOGETHER * z.group
    rounds = (x.width() + together - 1) // together * TOGETHER

    def group_end(number: hl.Expr) -> Numbers:
        end = prefix[z.tiles - 1, hl.max(number, 0), c]
        return chosen(number >= 0, (end[0], end[1]), zero)

    part_steps = chain(
        "part_steps", (u, g, c), zero, rounds,
        lambda r, s: advance(
            over_lanes[0], b, s, group_end(g - 1 - u - LANES * (rounds - 1 - r))
        ),
    )  # fmt: skip
    parts = kept(part_steps, (u, g, c), "parts")
    before_group = chain(
        "before_group", (g, c), zero, LANES,
        lambda r, s: advance(over_group[0], b, s, parts[LANES - 1 - r, g, c]),
    )  # fmt: skip
    group, inner = n // z.tiles, n % z.tiles
    before_tile = chain(
        "before_tile", (n, c), before_group[group, c], z.tiles - 1,
        lambda r, s: chosen(r < inner, advance(over_tiles[0], b, s, zero), s),
    )  # fmt: skip
    carry, own = hl.Func("again_carry"), prefix[hl.max(inner - 1, 0), group, c]
    carry[n, c] = tuple(
        before_tile[n, c][q] + hl.select(inner == 0, hl.f32(0.0), own[q]) for q in (0, 1)
    )

    # The state before each block of a tile, and the outputs.
    state_steps = chain(
        "state_steps", (m, n, c), carry[n, c], z.blocks - 1,
        lambda r, s: chosen(
            r < m,
            advance(second.over_block, b, s, end_of(second, n * z.blocks + r)),
            s,
        ),
    )  # fmt: skip
    states = kept(state_steps, (m, n, c), "states")
    h = second.response[-1]
    toeplitz, filtered, output = (
        hl.Func(f) for f in ("again_toeplitz", "again_filtered", "output")
    )
    r = hl.RDom([(0, z.block)], "i")
    toeplitz[j, i] = hl.cast(F16, h[hl.max(i - j, -1)])
    filtered[i, n, c] = hl.f32(0.0)
    filtered[i, n, c] += hl.f32(second.frames[r.x, n, c]) * hl.f32(toeplitz[r.x, i])
    at, block = t % z.block, t // z.block
    state = states[block % z.blocks, t // z.tile, c]
    output[t, c] = hl.cast(
        F16, filtered[at, block, c] + h[at + 1] * state[0] + b * h[at] * state[1]
    )
    return Filter(
        z, x, coefficients, first, Chain(tile_steps, tile_ends), over_tile, inclusive, prefix,
        second, Chain(part_steps, parts), over_lanes, over_group, before_group, over_tiles,
        before_tile, carry, Chain(state_steps, states), toeplitz, filtered, r, output,
    )  # fmt: skip


def log2(power: int) -> int:
    return power.bit_length() - 1
