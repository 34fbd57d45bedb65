"""Two schedules of downsampling (``warpgroups`` has a third, for sm_90a).

``cuda``: stock Halide on CUDA cores, one thread keeping a run of outputs in registers. ``tensor``:
as the 2-D convolution's, with windows that start ``factor`` pixels apart: an image row in shared
memory serves every output row whose taps reach it, ``taps / factor`` of them.
"""

from __future__ import annotations

from dataclasses import replace

import halide as hl

from casestudies.common import filters
from casestudies.common.filters import Filter, Tiles
from casestudies.common.multiples import largest_divisor, rounded

STAGED_BYTES = 96 * 1024  # two blocks and their tables fit the shared memory of a processor


def tiles_for(p: Filter) -> Tiles:
    """Tiles by the number of taps and the factor: groups of rows one after the other where shared
    memory holds the image of two, else as many rows as it holds the image of. The rows of taps that
    are unrolled together divide them.
    """
    tap_rows = largest_divisor(p.taps, 16)
    ring = Tiles(outputs=128, tap_rows=tap_rows, segments=4, stages=2)
    shapes = ((8, 4), (4, 4), (2, 4), (1, 4), (1, 2))
    sizes = [ring, *(replace(ring, rows=r, warps=w, segments=1, stages=1) for r, w in shapes)]
    smallest = replace(sizes[-1], warps=1)
    return next((s for s in sizes if s.stages * staged_bytes(p, s) <= STAGED_BYTES), smallest)


def staged_bytes(p: Filter, size: Tiles) -> int:
    """Of the part of the image that a group of warps reads, a multiple of 16 bytes wide."""
    return 2 * rounded(p.reach(size.width, p.taps)) * p.reach(size.height, p.taps)


def tensor(p: Filter, tiles: Tiles | None = None) -> hl.Func:
    """Schedule for tensor instructions; returns the output."""
    size = tiles or tiles_for(p)
    filters.stage_rows(p, filters.tensor(p, size), size)
    return p.output
