"""Whether filters along rows and then columns are two kernels or one, by the machine model, beside
what they took on an H100 (2026-11-26, ``tests/gpu/build_separable.py``).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from selector.families import windows
from selector.families.windows import Axis, Shape
from selector.machine import machine_named

TIMES = {  # by taps, width and height: microseconds of two kernels, and of the best single one
    (5, 1280, 720): (7.3, 8.9),
    (9, 1280, 720): (7.2, 9.3),
    (31, 1280, 720): (7.3, 13.2),
    (9, 1920, 1080): (11.0, 14.0),
    (31, 1920, 1080): (11.1, 17.5),
    (31, 2560, 1440): (16.7, 22.4),
    (31, 3840, 2160): (34.4, 40.2),
    (5, 3840, 2160): (33.4, 29.8),
    (9, 3840, 2160): (34.7, 30.9),
    (5, 5472, 3648): (79.1, 54.8),
    (9, 5472, 3648): (81.5, 56.4),
    (17, 5472, 3648): (78.3, 58.9),
}


@pytest.mark.parametrize(("taps", "width", "height"), TIMES)
def test_the_faster_one_is_foretold(taps: int, width: int, height: int) -> None:
    gpu = machine_named("H100")
    assert gpu is not None
    along = Axis(taps, first=-(taps // 2))
    columns = Shape(width, height, Axis(1), along, declared=False)
    rows = replace(columns, height=height + taps - 1, x=along, y=Axis(1), result_bytes=2)
    apart = sum(windows.ranked(shape, gpu)[0][0] for shape in (columns, rows)) - gpu.behind
    (single, _, _), *_ = windows.ranked_made(columns, (rows,), gpu)
    two, one = TIMES[taps, width, height]
    assert (single < apart) == (one < two)
    assert apart == pytest.approx(two, rel=0.25)
