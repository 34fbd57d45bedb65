"""Filters to try the model of their costs on: those of the table, small and large windows of
photographs with an edge, and some that are drawn.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from casestudies.common.boundary import CLAMP, VALID
from casestudies.conv1d.problem import BENCHMARK as ROWS
from casestudies.conv1d.problem import Problem as Rows
from casestudies.conv2d.problem import BENCHMARK as SQUARES
from casestudies.conv2d.problem import Problem as Square
from casestudies.downsample.problem import BENCHMARK as SMALLER
from casestudies.downsample.problem import Problem as Smaller
from casestudies.upsample.problem import BENCHMARK as LARGER
from casestudies.upsample.problem import Problem as Larger

HD, UHD, LARGE = (1920, 1080), (3840, 2160), (6000, 4000)
SIZES = (HD, UHD, LARGE)
Filter = Rows | Square | Smaller | Larger


def photographs() -> Iterator[Filter]:
    """Windows of the usual sizes, with an edge."""
    for width, height in SIZES:
        for taps in (3, 5, 7, 9, 11, 21, 31):
            yield Square(width, height, taps, 0, CLAMP)
        for taps in (4, 8):
            yield Smaller.of_image(width, height, taps, 2, CLAMP)
        yield Larger.of_image(width // 2, height // 2, 8, 2, CLAMP)
        for taps in (31, 63):
            yield Rows(width, height, taps, 0, CLAMP)


def drawn(count: int, seed: int) -> Iterator[Filter]:
    """Of an image of 1 to 24 million pixels, with and without an edge."""
    draw = random.Random(seed)
    for _ in range(count):
        width, height = 8 * draw.randint(128, 750), 8 * draw.randint(128, 500)
        boundary, taps = draw.choice((VALID, CLAMP)), draw.randint(3, 33)
        match draw.choice(("square", "square", "rows", "smaller", "larger")):
            case "rows":
                yield Rows.of_image(width, height, 4 * taps, boundary)
            case "smaller":
                yield Smaller.of_image(width, height, taps, draw.choice((2, 2, 3, 4)), boundary)
            case "larger":
                factor = draw.choice((2, 2, 3))
                taps = factor * draw.randint(2, 12)
                yield Larger.of_image(width // factor, height // factor, taps, factor, boundary)
            case _:
                yield Square.of_image(width, height, taps, boundary)


def problems(count: int, seed: int) -> Iterator[Filter]:
    """All of these, those of the table first."""
    yield from (*ROWS, *SQUARES, *SMALLER, *LARGER)
    yield from photographs()
    yield from drawn(count, seed)
