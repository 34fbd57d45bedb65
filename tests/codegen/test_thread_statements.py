"""Statements of one thread that are written as one: loops over neighbours that it reads, elements
of its pixels, rows of an unrolled loop. Right at every size, with vectors or without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
from selector.gpu.codegen.program import emit_kernels
from selector.gpu.ir.memory import LoadVector, StoreVector
from selector.gpu.ir.nodes import If, walk
from selector.simulate import simulate
from selector.targets import find_target

x, y, c, xo, xi, xl, yo, yi = (hl.Var(n) for n in ("x", "y", "c", "xo", "xi", "xl", "yo", "yi"))
U8, U16, F32 = hl.UInt(8), hl.UInt(16), hl.Float(32)
Made = tuple[hl.Func, Callable[[Any], Any]]


def kernels_of(out: hl.Func) -> tuple[Any, Any]:
    kernel = hb.compile(out, target="sm_80")
    return emit_kernels(kernel.module, find_target("sm_80"))


def vectors(out: hl.Func) -> tuple[list[int], list[int]]:
    """Bytes of those that are loaded where rows are aligned, and stored."""
    nodes = [n for kernel in kernels_of(out)[0] for n in walk(kernel.body)]
    loaded = [n.bytes for n in nodes if isinstance(n, LoadVector) and not n.lie]
    return loaded, [n.bytes for n in nodes if isinstance(n, StoreVector)]


def over_threads(out: hl.Func) -> hl.Func:
    return out.split(x, xo, xi, 8).gpu_blocks(xo, y).gpu_threads(xi)


def blocks(step: int = 4) -> Made:
    """Sums over blocks of 4 x 2, or over windows that begin at every ``step``."""
    a, total, r = hl.ImageParam(U8, 2, "a"), hl.Func("total"), hl.RDom([(0, 4), (0, 2)], "r")
    total[x, y] += hl.u16(a[step * x + r.x, 2 * y + r.y])
    out = total.in_()
    over_threads(out)
    total.compute_at(out, xi)

    def truth(v: Any) -> Any:
        rows, columns = v.shape[0] // 2, v.shape[1] // step
        v = np.pad(v.astype(int), ((0, 2), (0, 4)))
        parts = (v[j : j + 2 * rows : 2, i : i + step * columns : step]
                 for i in range(4) for j in range(2))  # fmt: skip
        return sum(parts, np.zeros((rows, columns), int))

    return out, truth


@pytest.mark.parametrize("flags", [True, False])
@pytest.mark.parametrize("shape", [(2, 4), (3, 9), (6, 64), (7, 71), (4, 128)])
def test_a_loop_over_neighbours_is_right_at_every_size(shape: Any, flags: bool) -> None:
    out, truth = blocks()
    kernels, plan = kernels_of(out)
    data = np.random.default_rng(1).integers(0, 255, shape).astype(np.uint8)
    found = simulate(kernels, plan, {"a": data}, truth(data).shape, flags=flags)
    assert found.faults == ()
    (result,) = found.outputs.values()
    assert np.array_equal(result, truth(data))


def test_neighbours_of_a_loop_are_loaded_as_one_vector() -> None:
    assert vectors(blocks()[0])[0] == [4]
    assert vectors(blocks(3)[0])[0] == []  # no thread's begin at a multiple


def pixels(count: int = 3) -> Made:
    """The elements of a pixel from the last on."""
    a, out = hl.ImageParam(U8, 3, "a"), hl.Func("out")
    out[c, x, y] = a[count - 1 - c, x, y] + hl.u8(1)
    out.bound(c, 0, count).unroll(c).split(x, xo, xi, 64).split(xi, xi, xl, 16).vectorize(xl)
    out.reorder(xl, c, xi, xo, y).gpu_blocks(xo, y).gpu_threads(xi)
    return out, lambda v: v[..., ::-1] + np.uint8(1)


@pytest.mark.parametrize("flags", [True, False])
@pytest.mark.parametrize("width", [1, 16, 63, 64, 80, 130])
@pytest.mark.parametrize("count", [2, 3])
def test_elements_of_pixels_are_right_at_every_size(count: int, width: int, flags: bool) -> None:
    out, truth = pixels(count=count)
    kernels, plan = kernels_of(out)
    for extra in (0, 1):  # the elements of more than a pixel: they do not lie side by side
        data = np.random.default_rng(width).integers(0, 255, (2, width, count + extra))
        given = data.astype(np.uint8)[..., :count]
        found = simulate(kernels, plan, {"a": given}, given.shape, flags=flags)
        assert found.faults == ()
        assert np.array_equal(found.outputs["out"], truth(given))


def test_elements_of_pixels_are_stored_as_vectors() -> None:
    loaded, stored = vectors(pixels()[0])
    assert (loaded, stored) == ([16, 16, 16], [16, 16, 16])


def rows() -> Made:
    """Four rows of a thread, each of what a table says."""
    a, table, out = hl.ImageParam(F32, 2, "a"), hl.ImageParam(hl.Int(32), 1, "t"), hl.Func("out")
    at = hl.clamp(x + table[y], 0, a.width() - 1)
    out[x, y] = a[at, y] * 2
    out.split(x, xo, xi, 8).split(y, yo, yi, 4).reorder(yi, xi, xo, yo).unroll(yi)
    return out.gpu_blocks(xo, yo).gpu_threads(xi), lambda v: v


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (4, 8), (5, 17), (8, 24)])
def test_unrolled_statements_are_right_at_every_size(shape: tuple[int, int]) -> None:
    out, _ = rows()
    kernels, plan = kernels_of(out)
    rng, (height, width) = np.random.default_rng(2), shape
    given = {
        "a": rng.random(shape).astype(np.float32),
        "t": rng.integers(-9, 9, height).astype(np.int32),
    }
    found = simulate(kernels, plan, given, shape)
    at: Any = np.clip(np.arange(width) + given["t"][:, None], 0, width - 1)
    assert found.faults == ()
    assert np.array_equal(found.outputs["out"], np.take_along_axis(given["a"], at, 1) * 2)


def test_unrolled_statements_are_tested_once() -> None:
    """One test for all of them, and one for each where that fails."""
    nodes = [n for kernel in kernels_of(rows()[0])[0] for n in walk(kernel.body)]
    assert sum(isinstance(n, If) for n in nodes) == 1 + 4
