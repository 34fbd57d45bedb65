"""Sums over windows in which each channel, or each few, has filters of its own: threads keep a tile
of results and what it reads in registers. Right at ragged sizes, as selected, as simulated and as
text on poisoned memory; and what is none of these goes its way.
"""

from __future__ import annotations

import re
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED

import halide_bridge as hb
from selector.families.channels import Shape, Windows, ranked
from selector.gpu.codegen.program import emit_kernels
from selector.machine import machine_for
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = EMULATED

F16, F32 = hl.Float(16), hl.Float(32)
c, x, y, n = (hl.Var(v) for v in "cxyn")
Array = np.ndarray[Any, Any]
TARGET = "sm_90a"


def filtered(
    taps: int = 3,
    step: int = 1,
    group: int = 1,
    planar: bool = False,
    apart: int = 1,
    kind: Any = F16,
    stored: bool = False,
    inside: str = "",
) -> hl.Func:
    """Pixels with zeros around them, channels innermost or outermost (``planar``); ``stored``: the
    sums themselves are the result. ``inside``: the weights of a channel lie side by side, one
    channel's ``"somewhere"`` behind the other's, or ``"dense"``.
    """
    image, w = hl.ImageParam(kind, 4, "image"), hl.ImageParam(kind, 4, "w")
    every, sides = (hl.Expr(), hl.Expr()), [(0, image.dim(d).extent()) for d in range(4)]
    around = [*sides[:2], every, every] if planar else [every, *sides[1:3], every]
    source = hl.BoundaryConditions.constant_exterior(image, hl.cast(kind, 0), around)
    r = hl.RDom([(0, taps), (0, taps), *[(0, group)] * (group > 1)], "r")
    k = r.z if group > 1 else 0
    channel, back = (c / group * group + k if group > 1 else c), apart * (taps // 2)
    across, down = step * x + apart * r.x - back, step * y + apart * r.y - back
    args = (x, y, c, n) if planar else (c, x, y, n)
    at = (across, down, channel, n) if planar else (channel, across, down, n)
    total, out = hl.Func("total"), hl.Func("out")
    of_channel = planar or bool(inside)
    if inside == "dense":
        for d, extent in enumerate((taps, taps, group)):
            w.dim(d).set_bounds(0, extent)
            w.dim(d + 1).set_stride((taps, taps * taps, taps * taps * group)[d])
    own = (r.x, r.y, k, c) if of_channel else (c, k, r.x, r.y)
    total[args] += hl.f32(source[at]) * hl.f32(w[own])
    out[args] = hl.cast(F16, hl.max(total[args], -1.0))
    return total if stored else out


def exact(image: Array, w: Array, size: tuple[int, ...], step: int, apart: int) -> Array:
    """``image`` of (n, y, x, c), ``w`` of (r, s, k, c)."""
    taps, group, channels = w.shape[0], w.shape[2], size[3]
    back, wide = apart * (taps // 2), apart * taps
    padded = np.pad(image, ((0, 0), (back, wide), (back, wide), (0, 0)))
    first = np.arange(channels) // group * group
    total = np.zeros(size)
    for r in range(taps):
        for s in range(taps):
            rows = slice(apart * r, apart * r + step * (size[1] - 1) + 1, step)
            columns = slice(apart * s, apart * s + step * (size[2] - 1) + 1, step)
            for k in range(group):
                total += padded[:, rows, columns][..., first + k] * w[r, s, k]
    return total


CASES: dict[str, tuple[dict[str, Any], tuple[int, int, int, int], tuple[int, int, int, int]]] = {
    "vectors of channels": ({}, (2, 5, 9, 24), (8, 56, 56, 96)),
    "channels that no vector divides": ({}, (1, 4, 7, 21), (8, 56, 56, 96)),
    "a loop over rows of taps": ({"taps": 7}, (1, 5, 9, 16), (8, 56, 56, 96)),
    "pixels apart": ({"taps": 5, "step": 2}, (2, 3, 5, 16), (8, 28, 28, 144)),
    "taps apart": ({"apart": 2}, (1, 5, 6, 16), (8, 28, 28, 144)),
    "planes": ({"planar": True}, (2, 5, 9, 3), (8, 56, 56, 96)),
    "rows of planes by vectors": ({"planar": True}, (1, 9, 24, 3), (8, 56, 56, 96)),
    "rows of planes, with taps apart": (
        {"planar": True, "apart": 2},
        (1, 5, 16, 3),
        (8, 28, 32, 96),
    ),
    "small planes": ({"planar": True}, (2, 7, 7, 5), (1, 7, 7, 768)),
    "planes, pixels apart": ({"planar": True, "taps": 5, "step": 2}, (1, 3, 5, 4), (8, 28, 28, 9)),
    "groups": ({"group": 4}, (1, 5, 9, 16), (8, 56, 56, 128)),
    "groups with a rest": ({"group": 4}, (1, 3, 5, 20), (8, 56, 56, 128)),
    "groups of planes": ({"group": 4, "planar": True}, (1, 5, 6, 8), (8, 56, 56, 128)),
    "single floats": ({"kind": F32}, (1, 5, 9, 12), (8, 56, 56, 96)),
    "taps side by side": ({"inside": "dense"}, (2, 5, 9, 24), (8, 56, 56, 96)),
    "taps side by side, pixels apart": (
        {"inside": "dense", "step": 2},
        (1, 4, 7, 20),
        (8, 56, 56, 96),
    ),
    "channels somewhere": ({"inside": "somewhere"}, (1, 5, 9, 24), (8, 56, 56, 96)),
    "groups, taps side by side": ({"inside": "dense", "group": 2}, (1, 5, 6, 16), (8, 56, 56, 128)),
    "sums themselves": ({"stored": True}, (1, 5, 6, 16), (8, 28, 28, 144)),
}


@pytest.mark.parametrize("name", CASES)
def test_channels_with_filters_of_their_own(name: str) -> None:
    options, size, about = CASES[name]
    planar, step = options.get("planar", False), options.get("step", 1)
    taps, group, apart = options.get("taps", 3), options.get("group", 1), options.get("apart", 1)
    kind = np.float32 if options.get("kind") is F32 else np.float16
    out = filtered(**options)
    turn = (0, 3, 1, 2)
    known = tuple(about[d] for d in turn) if planar else about
    report = hb.autoschedule(out, target=TARGET, sizes=known).report
    assert "of pixels, and what they read, in registers" in report
    random = np.random.default_rng(3)
    image = random.standard_normal((size[0], step * size[1], step * size[2], size[3])).astype(kind)
    w = random.standard_normal((taps, taps, group, size[3])).astype(kind)
    wanted = exact(image.astype(float), w.astype(float), size, step, apart)
    if not options.get("stored"):
        wanted = np.maximum(wanted, -1)
    shape = size
    if planar or options.get("inside"):
        w = w.transpose(3, 2, 0, 1).copy()
    if planar:
        image = image.transpose(turn).copy()
        wanted, shape = wanted.transpose(turn), tuple(size[d] for d in turn)
    kernel = hb.compile(out, target=TARGET, name="channels")
    found = [kernel.interpret(image=image, w=w, sizes=shape)]
    kernels, plan = emit_kernels(kernel.module, find_target(TARGET))
    for flags in (True, False):
        run = simulate(kernels, plan, {"image": image, "w": w}, shape, flags=flags)
        assert run.faults == ()
        found.append(next(iter(run.outputs.values())))
    found.append(check(kernel, image=image, w=w, sizes=shape))
    for result in found:
        error = np.linalg.norm(np.asarray(result, float) - wanted)
        assert error <= 1e-3 * np.linalg.norm(wanted)


def test_vectors_come_at_once() -> None:
    """Pixels beside the image are zeros that nobody loads."""
    out = filtered()
    hb.autoschedule(out, target=TARGET, sizes=(8, 56, 56, 96))
    source = hb.compile(out, target=TARGET).source
    body = source.partition("constant_exterior_in_total[")[2]
    kind = r"(?:u32|uint[24])"
    assert re.search(rf"\? \*\(const {kind}\*\)\(tile\w* \+ .* : {kind}\{{\}};", body)


def test_taps_of_neighbouring_channels_are_one_run() -> None:
    out = filtered(inside="dense")
    hb.autoschedule(out, target=TARGET, sizes=(8, 56, 56, 96))
    source = hb.compile(out, target=TARGET).source
    assert re.search(r"\*\(u(?:32|int2)\*\)\(near \+ 0\) = \*\(const u(?:32|int2)\*\)\(w", source)


def test_threads_that_store_nothing_do_nothing() -> None:
    """Where vectors are not whole that is asked: element by element, beyond the last channel, they
    would hold up those beside them.
    """
    out = filtered()
    hb.autoschedule(out, target=TARGET, sizes=(8, 14, 14, 96))
    source = hb.compile(out, target=TARGET).source
    ends = (f"< out_extent_{d}" for d in (0, 2, 3))
    assert re.search(rf"\n    else if \(.* {' .* '.join(ends)}\) \{{\n", source)


def without_filters_of_their_own() -> hl.Func:
    """All channels have the same."""
    image, w = hl.ImageParam(F16, 4, "image"), hl.ImageParam(F16, 2, "w")
    out, r = hl.Func("out"), hl.RDom([(0, 3), (0, 3)], "r")
    out[c, x, y, n] += hl.f32(image[c, x + r.x, y + r.y, n]) * hl.f32(w[r.x, r.y])
    return out


def by_halves_of_groups() -> hl.Func:
    """Channels are summed up by fours for eight results."""
    image, w = hl.ImageParam(F16, 4, "image"), hl.ImageParam(F16, 4, "w")
    out, r = hl.Func("out"), hl.RDom([(0, 3), (0, 3), (0, 4)], "r")
    pixel = image[c / 8 * 4 + r.z, x + r.x, y + r.y, n]
    out[c, x, y, n] += hl.f32(pixel) * hl.f32(w[c, r.z, r.x, r.y])
    return out


@pytest.mark.parametrize("plain", [without_filters_of_their_own, by_halves_of_groups])
def test_other_sums_go_their_way(plain: Any) -> None:
    report = hb.autoschedule(plain(), target=TARGET).report
    assert "and what they read, in registers" not in report


def test_tiles_follow_the_size() -> None:
    """Few results have threads of fewer each, and vectors divide the channels."""
    machine, window = machine_for(find_target(TARGET)), Windows(3)
    sizes = [(96, 56, 56, 32), (96, 7, 7, 1), (90, 56, 56, 32), (91, 56, 56, 32)]
    best = [
        ranked(Shape(e, (Windows(), window, window, Windows()), 0, 1, 2, True), machine)[0][1]
        for e in sizes
    ]
    results = [np.prod(t.each) for t in best]
    assert results[1] < results[0]
    assert [t.lanes for t in best[2:]] == [2, 1]
    assert all(e % t.lanes == 0 for (e, *_), t in zip(sizes, best, strict=True))


def test_blocks_bring_what_threads_of_planes_read_again() -> None:
    """Elements of planes come one by one: many taps, and groups, read each several times. Whole
    groups, and what there is room for."""
    machine, rows, window = machine_for(find_target(TARGET)), Windows(), Windows(7)
    for group, side in ((1, False), (4, False), (4, True)):
        windows = (window, window, rows, rows) if not side else (rows, window, window, rows)
        extents = (96, 56, 56, 8) if side else (14, 14, 384, 32)
        shape = Shape(extents, windows, 0 if side else 2, group, 2, side)
        found = ranked(shape, machine)
        assert found[0][1].staged != side
        for _, tile in found:
            span = tile.threads[shape.channel] * tile.each[shape.channel]
            assert not tile.staged or (not side and span % group == 0)
    few = Shape((56, 56, 96, 32), (Windows(3), Windows(3), rows, rows), 2, 1, 2, False)
    assert not ranked(few, machine)[0][1].staged


@pytest.mark.parametrize("outer", [(2, 3), (2, 3, 2), (2, 3, 2, 3)])
def test_filters_of_rows_in_many_dimensions(outer: tuple[int, ...]) -> None:
    """Nothing is promised that a call could break."""
    image, w = hl.ImageParam(F32, 2 + len(outer), "image"), hl.ImageParam(F32, 2, "w")
    out, r, others = hl.Func("out"), hl.RDom([(0, 5)], "r"), [hl.Var(f"v{d}") for d in range(4)]
    args = (x, y, *others[: len(outer)])
    out[args] = hl.f32(0)
    out[args] += image[x + r, *args[1:]] * w[r, y]
    kernel = hb.compile(out, target=TARGET, schedule="auto")
    data = np.random.default_rng(1).standard_normal((*outer, 4, 40), np.float32)
    taps = np.random.default_rng(2).standard_normal((4, 5), np.float32)
    result = kernel.interpret(image=data, w=taps, sizes=(*outer, 4, 33))
    expected = sum(data[..., k : k + 33] * taps[:, k, None] for k in range(5))
    assert np.allclose(result, expected, atol=1e-5)


@pytest.mark.parametrize(("planar", "taps"), [(True, 7), (False, 7)])
def test_a_loop_over_taps_is_along_the_dimension_with_one_result(planar: bool, taps: int) -> None:
    """What the results of a thread read along the others comes once for all of them."""
    machine, one, window = machine_for(find_target(TARGET)), Windows(), Windows(taps)
    windows = (window, window, one, one) if planar else (one, window, window, one)
    extents = (56, 56, 96, 32) if planar else (96, 56, 56, 32)
    best = ranked(Shape(extents, windows, 2 if planar else 0, 1, 2, not planar), machine)[0][1]
    assert best.rolled is not None
    assert best.each[best.rolled] == 1
    assert max(best.each[d] for d in (0, 1, 2) if d not in (best.rolled, 2 if planar else 0)) > 3


@pytest.mark.parametrize("extents", [(96, 56, 56, 32), (64, 80, 80, 32), (512, 20, 20, 32)])
def test_blocks_of_channels_side_by_side_read_whole_lines(extents: tuple[int, ...]) -> None:
    """Few taps are all written out; a thread has neighbours along both dimensions of pixels."""
    one, window = Windows(), Windows(3)
    shape = Shape(extents, (one, window, window, one), 0, 1, 2, True)
    best = ranked(shape, machine_for(find_target(TARGET)))[0][1]
    assert best.threads[0] * best.lanes * shape.bytes >= 128
    assert best.rolled is None
    assert min(best.each[1:3]) > 1


def test_windows_in_three_dimensions_have_a_tile() -> None:
    """Many taps are a loop; what is left of them may be many as well."""
    one, window = Windows(), Windows(7)
    shape = Shape((32, 20, 20, 20), (one, window, window, window), 0, 1, 2, True)
    found = ranked(shape, machine_for(find_target(TARGET)))
    assert found
    assert all(tile.rolled is not None for _, tile in found)


def test_a_run_of_weights_is_not_cut() -> None:
    """Taps that lie inside of channels come with those of other channels, all at once."""
    one, window = Windows(), Windows(3)
    shape = Shape((96, 56, 56, 8), (one, window, window, one), 0, 1, 2, True, inside=9)
    assert ranked(shape, machine_for(find_target(TARGET)))[0][1].rolled is None
