"""Tables of which data choose the elements: copied by blocks where they are small and it is known
how many elements may be chosen, read where they lie elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import emulation
import halide as hl
import numpy as np
import pytest
from plain_pipelines import F32, U8, Plain, bytes_, floats
from test_plain_pipelines import PIPELINES, by_halide, close

import halide_bridge as hb

pytestmark = pytest.mark.verified("tests/emulation")

x, y = hl.Var("x"), hl.Var("y")
KINDS = {"float32": F32, "uint8": U8}


def looked_up(of: str, kind: str, entries: int = 256) -> Plain:
    photo, table = hl.ImageParam(KINDS[of], 2, "photo"), hl.ImageParam(KINDS[kind], 1, "table")
    out, places = hl.Func("out"), hl.i32(photo[x, y])
    out[x, y] = table[
        hl.clamp(places, 0, entries - 1) if entries < 256 or of != "uint8" else places
    ]
    picture = bytes_(19, 531) if of == "uint8" else floats(19, 531) * 100
    values = bytes_(entries) if kind == "uint8" else floats(entries)
    return Plain(out, [(photo, picture), (table, values)], (19, 531))


def scheduled(make: Callable[[], Plain]) -> str:
    """The schedule of a kernel that computes what Halide does."""
    case = make()
    schedule = hb.autoschedule(case.outputs, target="sm_90a")
    kernel = hb.compile(case.outputs, target="sm_90a", cache=False)
    arrays = {p.name(): value for p, value in case.arguments}
    found = emulation.check(kernel, sizes=case.sizes, **arrays)
    (wanted,) = by_halide(make())
    assert close(np.asarray(found), wanted, case.tolerance)
    return schedule.source


@pytest.mark.parametrize(
    ("of", "kind", "entries"),
    [("uint8", "uint8", 256), ("uint8", "float32", 256), ("uint8", "float32", 100),
     ("float32", "uint8", 200)],
)  # fmt: skip
def test_small_tables_are_copied(of: str, kind: str, entries: int) -> None:
    source = scheduled(partial(looked_up, of, kind, entries))
    assert "store_in(hl.MemoryType.GPUShared)" in source
    assert f", {entries})" in source.split("table_im_in")[-1]


@pytest.mark.parametrize(("of", "entries"), [("float32", 257), ("float32", 5000)])
def test_large_tables_stay(of: str, entries: int) -> None:
    assert "GPUShared" not in scheduled(partial(looked_up, of, "float32", entries))


def by_another() -> Plain:
    """Looked up by a Func that is computed inside of the kernel's."""
    photo, table = hl.ImageParam(U8, 2, "photo"), hl.ImageParam(F32, 1, "table")
    seen, out = hl.Func("seen"), hl.Func("out")
    seen[x, y] = table[hl.i32(photo[x, y])]
    out[x, y] = seen[x, y] * 2 + 1
    return Plain(out, [(photo, bytes_(19, 531)), (table, floats(256))], (19, 531))


def test_what_another_looks_up_stays() -> None:
    assert "GPUShared" not in scheduled(by_another)


def by_place() -> Plain:
    a, b, out = hl.ImageParam(F32, 2, "a"), hl.ImageParam(F32, 1, "b"), hl.Func("out")
    out[x, y] = a[x, y] * b[hl.clamp(x, 0, 200)]
    return Plain(out, [(a, floats(19, 531)), (b, floats(201))], (19, 531))


def test_neighbours_stay() -> None:
    """What is no table: elements that the place says, not data."""
    assert "GPUShared" not in scheduled(by_place)


def test_computed_tables() -> None:
    assert "cdf.in_(out)" in scheduled(PIPELINES["equalize"])
