"""Kernels that read the same arrays are one; what a thread has just stored, it does not load."""

from __future__ import annotations

from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED, Verified, text_of

import halide_bridge as hb

x, y = hl.Var("x"), hl.Var("y")
xo, yo, xi, yi = (hl.Var(name) for name in ("xo", "yo", "xi", "yi"))
F32 = hl.Float(32)

pytestmark = pytest.mark.verified


def blocks(f: hl.Func, wide: int = 32) -> hl.Func:
    f.compute_root().gpu_tile(x, y, xo, yo, xi, yi, wide, 4)
    return f


def gradient(image: Any) -> list[hl.Func]:
    dx, dy, size = hl.Func("dx"), hl.Func("dy"), hl.Func("size")
    dx[x, y] = image[x + 1, y] - image[x, y]
    dy[x, y] = image[x, y + 1] - image[x, y]
    size[x, y] = hl.sqrt(dx[x, y] * dx[x, y] + dy[x, y] * dy[x, y])
    return [dx, dy, size]


def of_gradient(a: Any) -> list[Any]:
    dx, dy = a[:-1, 1:] - a[:-1, :-1], a[1:, :-1] - a[:-1, :-1]
    return [dx, dy, np.sqrt(dx * dx + dy * dy)]


def compiled(outputs: Any) -> Any:
    return hb.compile(outputs, target="sm_90a")


@EMULATED
@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize("less", [(0, 0), (3, 40)])
def test_outputs_of_one_input_are_one_kernel(
    less: tuple[int, int], auto: bool, verified: Verified
) -> None:
    """Outputs may be of different sizes: each part has its own grid."""
    outputs = gradient(hl.ImageParam(F32, 2, "image"))
    if auto:
        hb.autoschedule(outputs, target="sm_90a")
    kernel = compiled(outputs if auto else [blocks(f) for f in outputs])
    assert len(kernel.plan.launches) == 1
    data = np.random.default_rng(0).random((14, 172)).astype(np.float32)
    own = (13 - less[0], 171 - less[1])
    sizes = {"dx": (13, 171), "dy": (13, 171), "size": own}
    wanted = of_gradient(data)
    wanted[2] = wanted[2][: own[0], : own[1]]
    runs = [kernel.interpret(image=data, sizes=sizes)]
    if not verified(text_of(kernel), repr(sizes)):
        runs.append(check(kernel, image=data, sizes=sizes))
    for found in runs:
        for name, w in zip(sizes, wanted, strict=True):
            assert np.allclose(found[name], w, rtol=1e-5)


def two(second: Any, *, wide: int = 32, image: Any = None) -> list[hl.Func]:
    image = image or hl.ImageParam(F32, 2, "image")
    f, g = hl.Func("f"), hl.Func("g")
    f[x, y] = image[x, y] + 1
    g[x, y] = second(image, f)
    return [blocks(f), blocks(g, wide)]


def test_neighbours_of_what_is_stored_are_awaited() -> None:
    kernel = compiled(two(lambda image, f: image[x, y] + f[x + 1, y]))
    assert len(kernel.plan.launches) == 2


def test_other_arrays_other_threads_and_directives_keep_kernels_apart() -> None:
    other = hl.ImageParam(F32, 2, "other")
    assert len(compiled(two(lambda image, f: image[x, y] * other[x, y])).plan.launches) == 2
    assert len(compiled(two(lambda image, f: image[x, y] * 2, wide=64)).plan.launches) == 2
    funcs = two(lambda image, f: image[x, y] * 2)
    hb.resident_blocks(funcs[1], 2)
    assert len(compiled(funcs).plan.launches) == 2
    assert len(compiled(two(lambda image, f: image[x, y] * 2)).plan.launches) == 1


def test_an_update_of_what_is_stored_stays_behind_it() -> None:
    image, f, g = hl.ImageParam(F32, 2, "image"), hl.Func("f"), hl.Func("g")
    f[x, y] = image[x, y] + 1
    f[x, y] += image[x, y]
    g[x, y] = image[x, y] + f[x, y]
    blocks(f).update(0).gpu_tile(x, y, xo, yo, xi, yi, 32, 4)
    kernel = compiled([f, blocks(g)])
    assert len(kernel.plan.launches) == 3
    data = np.ones((5, 40), np.float32)
    found = kernel.interpret(image=data, sizes={"f": (5, 40), "g": (5, 40)})
    assert (found["f"] == 3).all()
    assert (found["g"] == 4).all()
