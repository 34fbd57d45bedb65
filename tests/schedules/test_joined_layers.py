"""Layers of few channels: these and the taps along a row are one sum, over windows that a kernel of
its own writes side by side. Right at sizes that neither tiles nor vectors divide, and what lies
beside a window has no say in it, whatever it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED

import halide_bridge as hb
from halide_bridge.schedules import candidates
from selector.diagnostics import ScheduleError
from selector.families.layers import Shape
from selector.families.layers import candidates as layer_tilings
from selector.gpu.codegen.program import emit_kernels
from selector.machine import machine_for
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = EMULATED

TARGET = "sm_90a"
F16 = hl.Float(16)
c, x, y, n = (hl.Var(v) for v in "cxyn")
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layer:
    """``taps`` x ``taps``, with zeros around the image or, ``valid``, within it."""

    taps: int
    step: int
    batch: int
    high: int
    wide: int
    channels: int
    filters: int
    planar: bool = False
    valid: bool = False
    dilation: int = 1
    swapped: bool = False
    kind: str = "float16"

    @property
    def back(self) -> int:
        return 0 if self.valid else self.dilation * (self.taps - 1) // 2

    @property
    def size(self) -> tuple[int, ...]:
        return (self.batch, self.high, self.wide, self.filters)


def plain(p: Layer, known: bool = True) -> hl.Func:
    kind = F16 if p.kind == "float16" else hl.Int(8)
    wide = hl.Float(32) if p.kind == "float16" else hl.Int(32)
    image, w = hl.ImageParam(kind, 4, "image"), hl.ImageParam(kind, 4, "w")
    source: Any = image
    if not p.valid:
        sides = [(0, image.dim(d).extent()) for d in range(4)]
        every = (hl.Expr(), hl.Expr())
        around = [*sides[:2], every, every] if p.planar else [every, *sides[1:3], every]
        source = hl.BoundaryConditions.constant_exterior(image, hl.cast(kind, 0), around)
    channels = p.channels if known else image.dim(0).extent()
    r = hl.RDom([(0, channels), (0, p.taps), (0, p.taps)], "r")
    total, out = hl.Func("total"), hl.Func("out")
    across = p.step * x + p.dilation * r.y - p.back
    down = p.step * y + p.dilation * r.z - p.back
    pixel = source[across, down, r.x, n] if p.planar else source[r.x, across, down, n]
    if p.planar:
        turned, inner = hl.Func("turned"), (c, x, y, n)
        turned[inner] = source[x, y, c, n]
        pixel = turned[r.x, across, down, n]
    both = [hl.cast(wide, pixel), hl.cast(wide, w[r.x, r.y, r.z, c])]
    left, right = both[::-1] if p.swapped else both
    total[c, x, y, n] += left * right
    out[c, x, y, n] = total[c, x, y, n]
    return out


def arrays(p: Layer) -> tuple[Array, Array]:
    """``image`` of (n, y, x, c) or planes, ``w`` of (f, s, r, c)."""
    random = np.random.default_rng(p.taps + p.channels)
    reach = p.dilation * (p.taps - 1) if p.valid else 0
    high, wide = (p.step * (e - 1) + 1 + reach for e in (p.high, p.wide))
    shapes = (p.batch, high, wide, p.channels), (p.filters, p.taps, p.taps, p.channels)
    image, w = (random.integers(-8, 9, shape).astype(p.kind) for shape in shapes)
    return (np.moveaxis(image, 3, 1).copy() if p.planar else image), w


def exact(p: Layer, image: Array, w: Array) -> Array:
    image = np.moveaxis(image, 1, 3) if p.planar else image
    sides = ((0, 0), (p.back, p.back + p.step), (p.back, p.back + p.step), (0, 0))
    padded, total = np.pad(image.astype(float), sides), np.zeros(p.size)
    for t, s in np.ndindex(p.taps, p.taps):
        rows = padded[:, p.dilation * t :: p.step, p.dilation * s :: p.step]
        with np.errstate(invalid="ignore"):
            total += rows[:, : p.high, : p.wide] @ w[:, t, s].astype(float).T
    return total


LAYERS = {
    "7 x 7 of 3": Layer(7, 2, 1, 9, 13, 3, 64),
    "planes": Layer(7, 2, 2, 5, 6, 3, 24, planar=True),
    "within the image": Layer(7, 2, 1, 6, 11, 3, 16, valid=True),
    "factors swapped": Layer(3, 2, 2, 5, 7, 3, 32, swapped=True),
    "patches": Layer(4, 4, 3, 3, 5, 3, 40, valid=True),
    "a longer run than one": Layer(7, 2, 1, 5, 9, 6, 24),
    "every second pixel": Layer(5, 2, 1, 4, 9, 3, 16, dilation=2),
    "bytes": Layer(7, 2, 1, 5, 9, 3, 24, kind="int8"),
}


def scheduled(p: Layer) -> tuple[hl.Func, str]:
    """Of a batch that is worth a copy."""
    out = plain(p)
    sizes = replace(p, batch=32, high=112, wide=112, filters=64).size
    return out, hb.autoschedule(out, target=TARGET, sizes=sizes).source


@pytest.mark.parametrize("name", LAYERS)
def test_channels_and_columns_are_one_sum_and_right(name: str) -> None:
    p = LAYERS[name]
    out, source = scheduled(p)
    assert "hb.joined(total, out" in source
    image, w = arrays(p)
    given, wanted = {"image": image, "w": w}, exact(p, image, w)
    kernel = hb.compile(out, target=TARGET, name="joined")
    assert "cp.async.bulk.tensor" in kernel.source
    found = [kernel.interpret(**given, sizes=p.size)]
    kernels, plan = emit_kernels(kernel.module, find_target(TARGET))
    for flags in (True, False):
        run = simulate(kernels, plan, given, p.size, flags=flags)
        assert run.faults == ()
        found.append(run.outputs["out"])
    found.append(check(kernel, **given, sizes=p.size))
    for result in found:
        assert np.array_equal(np.asarray(result, float), wanted)


def test_windows_of_known_sizes_come_by_boxes() -> None:
    """Where a block's windows are is known then: they leave no row of what is stored."""
    p = Layer(7, 2, 1, 112, 112, 3, 64)
    out = plain(p)
    for v, extent in zip((n, y, x, c), p.size, strict=True):
        out.bound(v, 0, extent)
    hb.autoschedule(out, target=TARGET, sizes=p.size)
    assert "map_total_joined_a" in hb.compile(out, target=TARGET).source


def test_what_lies_beside_a_window_has_no_say_in_it() -> None:
    """A pixel that is no number is none in the windows that have it, and in no others."""
    p = LAYERS["7 x 7 of 3"]
    out, _ = scheduled(p)
    image, w = arrays(p)
    image[0, 8, 12, 1] = np.nan
    wanted = exact(p, image, w)
    assert 0 < np.isnan(wanted).sum() < wanted.size / 2
    kernel = hb.compile(out, target=TARGET)
    given: Any = {"image": image, "w": w, "sizes": p.size}
    for result in (kernel.interpret(**given), check(kernel, **given)):
        assert np.array_equal(np.asarray(result, float), wanted, equal_nan=True)


@pytest.mark.parametrize(
    ("p", "known"),
    [
        (Layer(7, 2, 32, 56, 56, 64, 64), True),  # many channels
        (Layer(3, 1, 1, 7, 7, 512, 512, planar=True), True),
        (Layer(3, 1, 1, 16, 16, 1280, 1280), True),
        (Layer(7, 2, 32, 56, 56, 3, 64), False),  # nobody says how many
        (Layer(1, 2, 32, 56, 56, 24, 64), True),  # no taps
    ],
)
def test_other_layers_are_left_as_they_are(p: Layer, known: bool) -> None:
    source = hb.autoschedule(plain(p, known), target=TARGET, sizes=p.size).source
    assert "hb.joined" not in source


def test_what_the_compiler_refuses_as_one_sum_is_tried_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Channels side by side leave no room for the rows that windows are made from."""
    monkeypatch.setattr(candidates, "_is_joined", lambda *_: True)
    out = plain(Layer(3, 1, 1, 7, 7, 512, 512, planar=True))
    found = hb.autoschedule(out, target=TARGET, sizes=(1, 7, 7, 512))
    assert "hb.joined" not in found.source
    assert "a layer on tensor units" in found.report


def test_windows_that_lie_apart_are_copied_whole() -> None:
    """Rows that several taps read come once, in blocks whose boxes have one row."""
    machine = machine_for(TARGET)
    shape = Shape((112, 112, 32), 64, 21, 7, steps=(1, 2, 1), rows=1, reach=(0, 6, 0), fixed=True)
    found = layer_tilings(shape, machine)[0]
    assert (found.taps, found.steps, found.box[1]) == (7, (1, 2, 1), 1)
    assert found.read[1] == 2 * (found.block[1] - 1) + 7
    assert all(t.strips or t.k < shape.channels for t in layer_tilings(shape, machine))
    assert replace(found, k=48).row_bytes == 128


def test_what_is_no_such_sum_is_refused() -> None:
    a, f, g, out = hl.ImageParam(F16, 2, "a"), hl.Func("f"), hl.Func("g"), hl.Func("out")
    r = hl.RDom([(0, 3), (0, 5), (0, a.dim(0).extent())], "r")
    f[x] += hl.f32(a[r.x + r.y, x]) * hl.f32(a[r.x, r.z])
    g[x] += hl.f32(a[r.x, x]) + r.y + r.z
    out[x] = f[x] + g[x]
    first, second, many = f.rvars(0)
    for sum_, one, other, reader in (
        (f, first, first, out),
        (f, first, many, out),
        (f, first, second, g),
        (g, *g.rvars(0)[:2], out),
    ):
        with pytest.raises(ScheduleError, match="has no sum over"):
            hb.joined(sum_, reader, one, other)
    assert len(hb.joined(f, out, first, second)) == 3
