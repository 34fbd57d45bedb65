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
    assert len(compiled(two(lambda image, f: other[x, y] * 2)).plan.launches) == 2
    assert len(compiled(two(lambda image, f: other[x, y] * image[0, y])).plan.launches) == 2
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


def test_a_large_array_that_both_read_is_read_once() -> None:
    other = hl.ImageParam(F32, 2, "other")
    kernel = compiled(two(lambda image, f: image[x, y] * other[x + 1, y]))
    assert len(kernel.plan.launches) == 1
    data = np.random.default_rng(1).random((2, 9, 71)).astype(np.float32)
    sizes = {"f": (9, 71), "g": (9, 70)}
    found = check(kernel, image=data[0], other=data[1], sizes=sizes)
    assert np.array_equal(found["f"], data[0] + 1)
    assert np.array_equal(found["g"], data[0, :, :-1] * data[1, :, 1:])


def test_a_kernel_goes_before_others_that_it_does_not_wait_for() -> None:
    image, f, g, h = hl.ImageParam(F32, 2, "image"), hl.Func("f"), hl.Func("g"), hl.Func("h")
    f[x, y] = image[x, y] + 1
    g[x, y] = f[x, y] + f[x + 1, y]
    h[x, y] = image[x, y] * 2
    kernel = compiled([blocks(func) for func in (f, g, h)])
    assert len(kernel.plan.launches) == 2
    data = np.random.default_rng(1).random((9, 71)).astype(np.float32)
    found = check(kernel, image=data, sizes={"f": (9, 71), "g": (9, 70), "h": (9, 71)})
    assert np.allclose(found["g"], data[:, 1:] + data[:, :-1] + 2)
    assert np.array_equal(found["h"], data * 2)


def test_kernels_of_one_thread_are_one() -> None:
    image, total, out = hl.ImageParam(F32, 1, "image"), hl.Func("total"), hl.Func("out")
    r = hl.RDom([(0, image.dim(0).extent())])
    total[()] = hl.f32(0)
    total[()] += image[r]
    out[()] = total[()] * total[()]
    total.compute_root().gpu_single_thread()
    total.update(0).gpu_single_thread()
    kernel = compiled(out.compute_root().gpu_single_thread())
    assert [launch.threads for launch in kernel.plan.launches] == [1]
    data = np.arange(7, dtype=np.float32)
    assert check(kernel, image=data, sizes=()) == 21 * 21
