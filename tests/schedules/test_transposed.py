"""What is read the other way round comes by tiles: right at ragged sizes, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED, Verified, text_of

import halide_bridge as hb

pytestmark = pytest.mark.verified

x, y, z = (hl.Var(name) for name in "xyz")
Made = tuple[hl.Func, tuple[Any, ...], Callable[..., Any]]


def params(kind: Any, *ranks: int) -> list[Any]:
    return [hl.ImageParam(kind, k, name) for k, name in zip(ranks, "abc", strict=False)]


def flipped(kind: Any) -> Made:
    (a,), out = params(kind, 2), hl.Func("out")
    out[x, y] = a[y, a.height() - 1 - x]
    return out, ("hw",), lambda a: a[::-1].T


def added(kind: Any) -> Made:
    """By a Func that is written out, beside an array that lies as the result does."""
    (a, b), out, turned = params(kind, 2, 2), hl.Func("out"), hl.Func("turned")
    turned[x, y] = a[y, x]
    out[x, y] = turned[x, y] + b[x, y]
    return out, ("hw", "wh"), lambda a, b: a.T + b


def batched(kind: Any) -> Made:
    (a,), out = params(kind, 3), hl.Func("out")
    out[x, y, z] = a[y, z, x]
    return out, ("hzw",), lambda a: a.transpose(1, 2, 0)


SIZES = {"w": 67, "h": 131, "z": 3}
KINDS = {
    "u8": (hl.UInt(8), np.uint8),
    "f16": (hl.Float(16), np.float16),
    "f32": (hl.Float(32), np.float32),
}


@EMULATED
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [flipped, added, batched])
def test_tiles_are_turned_in_shared_memory(
    make: Callable[[Any], Made], kind: str, verified: Verified
) -> None:
    type_, dtype = KINDS[kind]
    out, shapes, truth = make(type_)
    schedule = hb.autoschedule(out, target="sm_90a")
    assert "tiles of 64 x 64" in schedule.report
    kernel = hb.compile(out, target="sm_90a")
    again = make(type_)[0]
    exec(schedule.source, {"hb": hb, "hl": hl, "output": again})
    assert hb.compile(again, target="sm_90a").source == kernel.source
    rng = np.random.default_rng(1)
    given = {
        name: rng.integers(0, 99, [SIZES[s] for s in shape]).astype(dtype)
        for name, shape in zip("ab", shapes, strict=False)
    }
    wanted = truth(*given.values())
    found = [kernel.interpret(**given, sizes=wanted.shape)]
    if not verified(text_of(kernel), kind):
        found.append(check(kernel, **given, sizes=wanted.shape))
    assert all(np.array_equal(f, wanted) for f in found)


def straight(a: Any) -> hl.Expr:
    return a[x, y] + a[x + 1, y]


def both_ways(a: Any) -> hl.Expr:
    return a[x, y] + a[y, x]


def along_one_row(a: Any) -> hl.Expr:
    return a[y, 3]


def diagonal(a: Any) -> hl.Expr:
    return a[x + y, x]


def every_other(a: Any) -> hl.Expr:
    return a[2 * y, x]


@pytest.mark.parametrize("value", [straight, both_ways, along_one_row, diagonal, every_other])
def test_nothing_else_is(value: Callable[[Any], hl.Expr]) -> None:
    (a,), out = params(hl.Float(32), 2), hl.Func("out")
    out[x, y] = value(a)
    assert "tiles of" not in hb.autoschedule(out, target="sm_90a").report


def test_short_sides_are_not() -> None:
    (a,), out = params(hl.UInt(8), 3), hl.Func("out")
    out[x, y, z] = a[y, z, x]
    out.bound(x, 0, 3)
    assert "tiles of" not in hb.autoschedule(out, target="sm_90a").report


def test_what_others_read_as_well_is_not() -> None:
    (a,), one, other = params(hl.Float(32), 2), hl.Func("one"), hl.Func("other")
    one[x, y] = a[y, x]
    other[x, y] = a[x, y] * 2
    assert "tiles of" not in hb.autoschedule([one, other], target="sm_90a").report
