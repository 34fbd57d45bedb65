"""Rows of 16 bits that begin at any element: neighbours leave two at a time all the same."""

from __future__ import annotations

import emulation
import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
from casestudies.common.registry import find_case
from casestudies.plain.filter import Problem, random, reference
from selector.gpu.codegen.epilogues.places import IndexForm, runs_of
from selector.gpu.codegen.epilogues.regions import Region
from selector.ir.affine import Affine
from selector.ir.bfloat16 import from_bits, to_bits

pytestmark = pytest.mark.verified

F16, BF16 = hl.Float(16), hl.BFloat(16)


def filtered(kernel: str, width: int, height: int, types: str = "f16-f16") -> tuple[str, float]:
    """The source for such a picture, and the error of the emulated result."""
    p = Problem(types, "repeat", "one", width, height, kernel)
    plain = find_case("plain.filter").plain
    assert plain is not None
    sizes = {spec.name: spec.shape for spec in (*p.inputs, p.output)}
    compiled = hb.compile(plain(p), target="sm_90a", schedule="auto", sizes=sizes)
    arrays = random(p, 3, np)
    found = emulation.check(compiled, sizes=p.output.shape, **arrays).astype(np.float64)
    want = reference(p, {name: a.astype(np.float64) for name, a in arrays.items()}, np)
    return compiled.source, float(np.linalg.norm(found - want) / np.linalg.norm(want))


@pytest.mark.parametrize("kernel", ["3 square", "9 separable"])
@pytest.mark.parametrize(("width", "height"), [(333, 37), (257, 70), (130, 33)])
def test_pictures_of_odd_rows(kernel: str, width: int, height: int) -> None:
    source, error = filtered(kernel, width, height)
    assert error < 1e-3
    lanes = "32" if kernel == "3 square" else "4"  # rows of eight lie side by side, or apart
    assert f"store_run<{lanes}>(" in source.split("__global__", 1)[1]


def test_other_types_are_stored_as_before() -> None:
    source, error = filtered("3 square", 333, 37, "f16-f32")
    assert error < 1e-3
    assert "store_run" not in source


@pytest.mark.parametrize("kind", [F16, BF16])
@pytest.mark.parametrize(("m", "n"), [(64, 97), (70, 64), (128, 130), (33, 51)])
def test_products_of_odd_rows(kind: hl.Type, m: int, n: int) -> None:
    a, b, k = hl.ImageParam(kind, 2, "A"), hl.ImageParam(kind, 2, "B"), hl.RDom([(0, 64)], "k")
    x, y, total, out = hl.Var("x"), hl.Var("y"), hl.Func("total"), hl.Func("out")
    total[x, y] += hl.f32(a[k, y]) * hl.f32(b[x, k])
    out[x, y] = hl.cast(kind, total[x, y])
    kernel = hb.compile(out, target="sm_80", schedule="auto")
    assert "store_run<4>(" in kernel.source.split("__global__", 1)[1]
    generator = np.random.default_rng(7)
    given = [generator.standard_normal(shape).astype(np.float32) for shape in ((m, 64), (64, n))]
    if kind == BF16:
        left, right = map(to_bits, given)
        found = from_bits(emulation.check(kernel, A=left, B=right, sizes=(m, n)))
        want = from_bits(left).astype(np.float64) @ from_bits(right)
    else:
        left, right = (x.astype(np.float16) for x in given)
        found = emulation.check(kernel, A=left, B=right, sizes=(m, n))
        want = left.astype(np.float64) @ right
    error = np.linalg.norm(found - want) / np.linalg.norm(want)
    assert error < (1e-3 if kind == F16 else 6e-3)


def test_pieces_follow_each_other() -> None:
    region = Region(0, 16, 32, False)

    def rows(apart: int) -> IndexForm:
        return IndexForm(Affine(), Affine.of(apart), Affine.of(1), Affine(), {})

    assert list(runs_of(region, rows(100))) == [
        (4, [(0, j, half) for j in range(4)]) for half in (0, 2)
    ]
    eights = Region(0, 16, 8, False)
    assert list(runs_of(eights, rows(8))) == [(32, [(0, 0, 0), (0, 0, 2)])]
