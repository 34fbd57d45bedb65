"""What occurs several times in the places of a large value has a name."""

from __future__ import annotations

import halide as hl
import pytest

import halide_bridge as hb

pytestmark = pytest.mark.verified

x, y = hl.Var("x"), hl.Var("y")


def neighbours(reach: int) -> str:
    """Bits of those that are darker, where the image is mirrored at its edges."""
    image, out, word = hl.ImageParam(hl.UInt(8), 2, "image"), hl.Func("out"), hl.i32(0)
    at, near = hl.BoundaryConditions.mirror_interior(image), range(-reach, reach + 1)
    for place, (dx, dy) in enumerate((dx, dy) for dy in near for dx in near):
        word = word | hl.select(at[x + dx, y + dy] < at[x, y], 1 << place, 0)
    out[x, y] = word
    return hb.compile(out, target="sm_90a", schedule="auto").source


def test_a_large_value_names_its_parts() -> None:
    text = neighbours(2)
    assert "const int part" in text
    assert max(map(len, text.splitlines())) < 8000


def test_a_smaller_one_is_written_as_it_is() -> None:
    assert "const int part" not in neighbours(1)
