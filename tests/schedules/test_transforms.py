"""Transforms of overlapping tiles, there and back, without a schedule: one kernel, each warp with a
column of tiles in its registers, right at sizes that no tile divides.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED

import halide_bridge as hb

pytestmark = EMULATED

F16, F32 = hl.Float(16), hl.Float(32)
x, y, c, i, j = (hl.Var(v) for v in "xycij")
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Form:
    """How a picture lies in memory, innermost first: ``x``, ``y`` and ``c`` for ``count`` channels;
    ``bias``: what rows begin with; ``tile``: its size.
    """

    order: str
    count: int = 1
    bias: bool = False
    tile: int = 16

    def at(self, x: Any, y: Any) -> tuple[Any, ...]:
        return tuple({"x": x, "y": y, "c": c}[name] for name in self.order)

    def shape(self, height: int, width: int) -> tuple[int, ...]:
        sizes = {"x": width, "y": height, "c": self.count}
        return tuple(sizes[name] for name in reversed(self.order))

    def planes(self, a: Array) -> Array:
        a = a if "c" in self.order else a[..., None]
        names = [*reversed(self.order)] + ["c"] * ("c" not in self.order)
        return a.transpose([names.index(name) for name in "cyx"])


FORMS = {
    "pixels": Form("cxy", 3),
    "planes": Form("xyc", 2),
    "one plane": Form("xy"),
    "from a bias": Form("cxy", 2, bias=True),
    "small tiles": Form("cxy", 3, tile=8),
    "small tiles of planes": Form("xyc", 2, tile=8),
}
LARGE = (3024, 4032)


def summed(term: Any, *args: hl.Var, name: str, start: Any = None) -> hl.Func:
    total = hl.Func(name)
    total[args] = hl.f32(0) if start is None else start
    total[args] += term
    return total


def denoised(form: Form, twice: bool = False) -> hl.Func:
    """Tiles to bins, those that are large kept, and back."""
    tile, step = form.tile, form.tile // 2
    rest = (c,) if "c" in form.order else ()
    image = hl.ImageParam(F16, 2 + len(rest), "I")
    there, back, add = (hl.ImageParam(t, n, s) for t, n, s in
                        ((F16, 2, "F"), (F16, 2, "G"), (F32, 1, "B")))  # fmt: skip
    k, z = hl.RDom([(0, tile)], "k"), hl.RDom([(0, 2 * tile)], "z")
    padded, rows16, cored, columns16, output = (
        hl.Func(n) for n in ("padded", "rows16", "cored", "columns16", "output")
    )
    wide, high = (image.dim(form.order.index(n)).extent() for n in "xy")
    padded[(x, y, *rest)] = image[form.at(hl.clamp(x, 0, wide - 1), hl.clamp(y, 0, high - 1))]
    start = add[i] if form.bias else None
    at = step * (i // tile) - step + k
    rows = summed(hl.f32(padded[(at, y, *rest)]) * hl.f32(there[k, i % tile]), i, y, *rest,
                  name="rows", start=start)  # fmt: skip
    rows16[(i, y, *rest)] = hl.cast(F16, rows[(i, y, *rest)])
    at = step * (j // tile) - step + k
    bins = summed(hl.f32(rows16[(i, at, *rest)]) * hl.f32(there[k, j % tile]), i, j, *rest,
                  name="bins")  # fmt: skip
    value = hl.cast(F16, bins[(i, j, *rest)])
    cored[(i, j, *rest)] = hl.select(hl.abs(value) > hl.cast(F16, 1), value, hl.cast(F16, 0))
    at = tile * (y // step) + z
    columns = summed(hl.f32(cored[(i, at, *rest)]) * hl.f32(back[z, y % step]), i, y, *rest,
                     name="columns")  # fmt: skip
    columns16[(i, y, *rest)] = hl.cast(F16, columns[(i, y, *rest)])
    at = tile * (x // step) + z
    pixels = summed(hl.f32(columns16[(at, y, *rest)]) * hl.f32(back[z, x % step]), x, y, *rest,
                    name="pixels")  # fmt: skip
    output[form.at(x, y)] = hl.cast(F16, pixels[(x, y, *rest)])
    if twice:
        output[form.at(x, y)] = hl.cast(F16, pixels[(x, y, *rest)] + columns16[(x, y, *rest)])
    if form.order[0] == "c":
        output.bound(c, 0, form.count)
    return output


def half(a: Array) -> Array:
    return a.astype(np.float16).astype(np.float64)


def exact(form: Form, arrays: dict[str, Array], height: int, width: int) -> Array:
    image, tile = form.planes(arrays["I"].astype(np.float64)), form.tile
    step = tile // 2
    there, back = (arrays[n].astype(np.float64) for n in "FG")

    def forward(a: Array) -> Array:
        tiles = -(-a.shape[-1] // step) + 1
        at = step * (np.arange(tiles)[:, None] - 1) + np.arange(tile)
        found = a[..., np.clip(at, 0, a.shape[-1] - 1)] @ there.T
        return found.reshape(*found.shape[:-2], -1)

    def inverse(a: Array) -> Array:
        at = tile * np.arange(a.shape[-1] // tile - 1)[:, None] + np.arange(2 * tile)
        found = a[..., at] @ back.T
        return found.reshape(*found.shape[:-2], -1)

    rows = forward(image)
    rows = half(rows + arrays["B"][: rows.shape[-1]] if form.bias else rows)
    bins = half(forward(rows.swapaxes(1, 2)))
    columns = half(inverse(np.where(abs(bins) > 1, bins, 0)))
    return inverse(columns.swapaxes(1, 2))[:, :height, :width]


def arrays_of(form: Form, height: int, width: int) -> dict[str, Array]:
    random, tile = np.random.default_rng(height + width), form.tile
    shapes = {"I": form.shape(height, width), "F": (tile, tile), "G": (tile // 2, 2 * tile)}
    found = {n: (random.standard_normal(s) / 2).astype(np.float16) for n, s in shapes.items()}
    bias = {"B": random.standard_normal(2 * width + 64).astype(np.float32)} if form.bias else {}
    return found | bias


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", FORMS)
def test_transforms_are_one_kernel_and_right(name: str, target: str) -> None:
    form = FORMS[name]
    sizes = {"output": form.shape(*LARGE)}
    kernel = hb.compile(denoised(form), target=target, schedule="auto", sizes=sizes)
    assert kernel.plan.intermediates == ()
    assert "mma" in str(kernel.report)
    for height, width in ((91, 141), (70, 256), (5, 3)):
        arrays = arrays_of(form, height, width)
        truth, shape = exact(form, arrays, height, width), form.shape(height, width)
        for run in (kernel.interpret, partial(check, kernel)):
            found = form.planes(run(**arrays, sizes=shape).astype(np.float64))
            assert np.linalg.norm(found - truth) / np.linalg.norm(truth) < 1e-3


@pytest.mark.parametrize("name", FORMS)
def test_what_is_written_down_gives_the_same_program(name: str) -> None:
    form = FORMS[name]
    output, again = denoised(form), denoised(form)
    schedule = hb.autoschedule(output, target="sm_90a", sizes={"output": form.shape(*LARGE)})
    assert "pixels: transforms on tensor units by mma" in schedule.report
    exec(schedule.source, {"hb": hb, "hl": hl, "output": again})
    one, other = (hb.compile(f, target="sm_90a").source for f in (output, again))
    assert one == other


OTHERS = {
    "twelve bins": Form("cxy", 3, tile=12),
    "twenty-four bins": Form("cxy", 3, tile=24),
    "five channels of a pixel": Form("cxy", 5),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_have_several_kernels(name: str) -> None:
    form = OTHERS[name]
    sizes = {"output": form.shape(*LARGE)}
    report = hb.autoschedule(denoised(form), target="sm_90a", sizes=sizes).report
    assert "transforms" not in report


def test_what_someone_else_reads_is_stored() -> None:
    form = FORMS["pixels"]
    sizes = {"output": form.shape(*LARGE)}
    output = denoised(form, twice=True)
    report = hb.autoschedule(output, target="sm_90a", sizes=sizes).report
    assert "transforms" not in report


def test_pixels_are_copied_to_planes_as_vectors() -> None:
    """Where they lie inside of the image, at multiples of 16 bytes; of planes there are none."""

    def source(name: str) -> str:
        form = FORMS[name]
        sizes = {"output": form.shape(*LARGE)}
        return hb.compile(denoised(form), target="sm_90a", schedule="auto", sizes=sizes).source

    assert "planes[e % 3 * 8 + e / 3] = run[e]" in source("pixels")
    assert "planes[" not in source("planes")
