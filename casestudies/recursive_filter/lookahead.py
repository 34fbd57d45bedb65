"""The recursive filter with scattered look-ahead, in plain Halide (paper section V-D; Parhi et
al.).

A tile is filtered from a state of zero in two steps, with d = 8: a convolution with 2 d taps, and
``Y_t = U_t + a' Y_(t-d) + b' Y_(t-2d)``, whose d phases are independent. The two are the filter
with a and b, as ``1 - a' z^-d - b' z^-2d`` is a multiple of ``1 - a z^-1 - b z^-2``, and the taps
are the quotient. A second pass adds what the state before each tile contributes.
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

from casestudies.recursive_filter.algorithm import (
    F16,
    F32,
    Carry,
    Numbers,
    Tables,
    advance,
    c,
    carried,
    dense,
    entering,
    i,
    j,
    m,
    n,
    t,
    tables_of,
    zero,
)
from casestudies.recursive_filter.sizes import DILATION, LOOKAHEAD, TAPS, Sizes

p, s = hl.Var("p"), hl.Var("s")


@dataclass(frozen=True, slots=True)
class Lookahead:
    """The Funcs that a schedule talks about. ``frames(j, n, c)``: sample j of tile n, zeros before
    it; ``fir``: the convolution; ``phases(p, s, n, c)``: output ``DILATION * s + p`` of tile n.
    """

    sizes: Sizes
    x: hl.ImageParam
    tables: Tables
    taps: hl.ImageParam
    dilated: hl.ImageParam
    frames: hl.Func
    fir: hl.Func
    r: hl.RDom
    phases: hl.Func
    steps: hl.RDom
    tiles: hl.Func
    carry: Carry
    states: hl.Func
    output: hl.Func


def lookahead(sizes: Sizes = LOOKAHEAD, *, whole: bool = False) -> Lookahead:
    """The unscheduled pipeline; ``whole``: the samples are known to be a whole number of groups."""
    z, x, tables = sizes, hl.ImageParam(F16, 2, "X"), tables_of(sizes)
    taps, dilated = dense("K", F16, TAPS), dense("D", F32, 2)
    over_blocks = dense("B", F32, 4, z.blocks)
    over_block = tuple(over_blocks[q, m] for q in range(4))
    frames, fir, phases, tiles = (hl.Func(name) for name in ("frames", "fir", "phases", "tiles"))
    place, first = n * z.tile + j, n * z.tile + hl.max(j, 0)
    inside = j >= 0 if whole else (j >= 0) & (place < x.width())
    near = first if whole else hl.min(first, x.width() - 1)
    frames[j, n, c] = hl.select(inside, x[near, c], hl.cast(F16, 0.0))
    r = hl.RDom([(0, TAPS)], "r")
    fir[i, n, c] = hl.f32(0.0)
    fir[i, n, c] += hl.f32(frames[i - r.x, n, c]) * hl.f32(taps[r.x])
    phases[p, s, n, c] = fir[DILATION * s + p, n, c]
    phases[p, 1, n, c] += dilated[0] * phases[p, 0, n, c]
    step = hl.RDom([(2, z.tile // DILATION - 2)], "step")
    one, two = (phases[p, step.x - back, n, c] for back in (1, 2))
    phases[p, step.x, n, c] += dilated[0] * one + dilated[1] * two
    tiles[j, n, c] = hl.cast(F16, phases[j % DILATION, j // DILATION, n, c])

    def end_of_tile(number: hl.Expr) -> Numbers:
        return hl.f32(tiles[z.tile - 1, number, c]), hl.f32(tiles[z.tile - 2, number, c])

    carry = carried(z, x.width(), tables, end_of_tile)

    states, output = hl.Func("states"), hl.Func("output")
    states[m, n, c] = tuple(advance(over_block, carry.before[n, c], zero()))
    own = hl.f32(tiles[t % z.tile, t // z.tile, c])
    output[t, c] = hl.cast(F16, own + entering(z, tables, states))
    return Lookahead(
        z, x, tables, taps, dilated, frames, fir, r, phases, step, tiles, carry, states, output
    )
