"""Two schedules of upsampling (``warpgroups`` has a third, for sm_90a).

``cuda``: stock Halide on CUDA cores, one thread keeping a run of outputs in registers. ``tensor``:
a row of outputs is one vector statement over all phases and taps along x; an image row in shared
memory serves the output rows of all phases whose taps reach it.
"""

from __future__ import annotations

from math import gcd

import halide as hl

from casestudies.common import filters
from casestudies.common.filters import Filter, Threads, Tiles, divisor
from casestudies.upsample.problem import Problem


def tiles_for(taps: int, factor: int) -> Tiles:
    """Tiles by the taps of a phase and the factor: whole instructions of whole groups of phases,
    whole groups of phases along y, and rows of taps unrolled together that divide them. Few taps
    leave the time to the stores, which smaller groups spread.
    """
    outputs = 256 if 256 % (16 * factor) == 0 else 128 * factor // gcd(factor, 8)
    rows, segments = (4, 8) if taps <= 8 else (8, 4)
    return Tiles(
        outputs=outputs,
        rows=factor * max(1, rows // factor),
        tap_rows=divisor(taps),
        segments=segments,
        stages=2,
    )


def tensor(p: Filter, tiles: Tiles | None = None) -> hl.Func:
    """Schedule for tensor instructions; returns the output."""
    size = tiles or tiles_for(p.taps, p.phases)
    filters.stage_rows(p, filters.tensor(p, size), size)
    return p.output


def cuda(p: Filter, problem: Problem, threads: Threads | None = None) -> hl.Func:
    """The baseline; returns the output."""
    return filters.cuda(p, problem, threads or threads_for(problem))


def threads_for(problem: Problem) -> Threads:
    """Threads for one size: outputs are whole groups of phases, and taps are unrolled by a divisor
    of their number.
    """
    return Threads(outputs=4 * problem.factor, taps=divisor(problem.phase_taps), vector=4)
