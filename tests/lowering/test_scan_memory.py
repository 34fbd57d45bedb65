"""Recurrences that forget: blocks run through some steps ahead of their own, and nothing else."""

from __future__ import annotations

from typing import Any

import emulation
import halide as hl
import numpy as np
import pytest
from test_scans import F32, close, filtered, noise, weighted

import halide_bridge as hb
from selector.lowering.scans.memory import steps_until

pytestmark = pytest.mark.verified

x, c, xo, xi = (hl.Var(name) for name in ("x", "c", "xo", "xi"))


def cut(weights: tuple[float, ...], tiles: int = 2, steps: int = 8, threads: int = 64) -> hl.Func:
    """A numerator, and a recurrence that blocks of ``tiles`` share."""
    source, y = hl.ImageParam(F32, 2, "X"), hl.Func("Y")
    edge = hl.BoundaryConditions.constant_exterior(source, hl.f32(0))
    r = hl.RDom([(0, source.dim(0).extent())], "r")
    y[x, c] = edge[x, c] + hl.f32(0.5) * edge[x - 1, c]
    y[r, c] = weighted(*weights)(lambda n: y[r - n, c])
    ro, rt, rl, rb = (hl.RVar(name) for name in ("ro", "rt", "rl", "rb"))
    y.compute_root().split(x, xo, xi, 64).gpu_blocks(xo, c).gpu_threads(xi)
    update = y.update().allow_race_conditions().split(r, rb, ro, threads * steps * tiles)
    update.split(ro, ro, rl, steps).split(ro, ro, rt, threads)
    update.reorder(rl, rt, ro, rb, c).gpu_blocks(rb, c).gpu_threads(rt)
    return y


def stored(out: hl.Func) -> hl.Func:
    out.compute_root().split(x, xo, xi, 64).gpu_blocks(xo, c).gpu_threads(xi)
    return out


def wanted(data: np.ndarray, *weights: float) -> np.ndarray:
    wide = data.astype(np.float64)
    wide[:, 1:] += 0.5 * data[:, :-1]
    padded = np.pad(wide, ((0, 0), (len(weights), 0)))
    return filtered(padded, *weights)[:, len(weights) :]


def intermediates(kernel: Any) -> dict[str, Any]:
    return {i.name: i for i in kernel.plan.intermediates}


def test_steps_after_which_nothing_is_left() -> None:
    assert steps_until([0.5], 2**-10) == 10
    assert steps_until([0.0], 1e-9) == 1
    assert steps_until([1.0], 1e-9) is None
    assert steps_until([2.0], 1e-9) is None
    assert steps_until([1.8, -0.9], 2**-46) == pytest.approx(650, abs=20)
    transition = np.array([[1.8, -0.9], [1, 0]])
    steps = steps_until([1.8, -0.9], 1e-6)
    assert steps is not None
    later = [np.linalg.matrix_power(transition, steps + n) for n in range(400)]
    assert max(np.abs(m).max() for m in later) <= 1e-6


@pytest.mark.parametrize("weights", [(0.9,), (0.5, -0.2), (0.3, 0.1, -0.2, 0.1)])
def test_what_is_forgotten_is_computed_by_one_kernel(weights: tuple[float, ...]) -> None:
    out = stored(cut(weights).in_())
    kernel = hb.compile(out, target="sm_80")
    assert not any(name.endswith("left") for name in intermediates(kernel))
    for shape in ((1, 1), (2, 3), (1, 1023), (2, 1025), (1, 3000)):
        data = noise(*shape)
        close(emulation.check(kernel, sizes=shape, X=data), wanted(data, *weights))


@pytest.mark.parametrize("weight", [1.0, 1 - 2**-13, -1.0, 1.03125])
def test_what_is_remembered_is_joined_by_a_second_kernel(weight: float) -> None:
    kernel = hb.compile(stored(cut((weight,)).in_()), target="sm_80")
    assert any(name.endswith("left") for name in intermediates(kernel))
    data = noise(2, 1700)
    close(emulation.check(kernel, sizes=data.shape, X=data), wanted(data, weight))


def test_powers_that_are_numbers_are_not_computed() -> None:
    """Unless they would be too large for that."""
    for weight, computed in ((1 - 2**-13, False), (1.03125, True)):
        source = hb.compile(stored(cut((weight,)).in_()), target="sm_80").source
        assert ("Y_powers" in source) == computed


@pytest.mark.parametrize("kind", [hl.Float(16), F32])
@pytest.mark.parametrize(
    ("weights", "threads"), [((0.5, -0.2), 32), ((0.5, -0.95), 128), ((1.5, -0.5), 256)]
)
def test_outputs_cross_to_neighbouring_threads(
    kind: hl.Type, weights: tuple[float, ...], threads: int
) -> None:
    """Of a plain filter, whose rows begin at vectors: one that forgets soon, late, and never."""
    source, y, out = hl.ImageParam(kind, 2, "X"), hl.Func("Y"), hl.Func("out")
    edge = hl.BoundaryConditions.constant_exterior(source, hl.cast(kind, 0))
    r = hl.RDom([(0, source.width())], "r")
    y[x, c] = hl.f32(edge[x, c]) + hl.f32(0.5) * hl.f32(edge[x - 1, c])
    y[r, c] = weighted(*weights)(lambda n: y[r - n, c])
    out[x, c] = hl.cast(kind, y[x, c])
    shapes = {"X": (1, 1 << 20), "out": (1, 1 << 20)}
    kernel = hb.compile(out, target="sm_90a", schedule="auto", sizes=shapes)
    scan = kernel.source.split("__global__")[-2]
    assert "Y_crossed" in scan
    assert f"__launch_bounds__({threads}" in scan
    assert ("__syncwarp" in scan) == (threads == 32)
    for shape in ((1, 1), (2, 515), (1, 8197)):
        data = noise(*shape).astype(np.float16 if kind.bytes() == 2 else np.float32)
        found = emulation.check(kernel, sizes=shape, X=data).astype(np.float64)
        truth = wanted(data.astype(np.float32), *weights)
        assert np.linalg.norm(found - truth) <= 1e-3 * np.linalg.norm(truth)


def test_blocks_do_not_read_where_others_store() -> None:
    """What a recurrence begins with lies where another block has stored, maybe: it is not read."""
    source, y = hl.ImageParam(F32, 2, "X"), hl.Func("Y")
    r = hl.RDom([(1, source.dim(0).extent() - 1)], "r")
    y[x, c] = hl.sqrt(sum((source[hl.max(x - n, 0), c] for n in range(10)), hl.f32(20)))
    y[r, c] = y[r, c] + hl.f32(0.5) * y[r - 1, c]
    ro, rt, rl, rb = (hl.RVar(name) for name in ("ro", "rt", "rl", "rb"))
    stored(y)
    update = y.update().allow_race_conditions().split(r, rb, ro, 256).split(ro, ro, rl, 4)
    update.split(ro, ro, rt, 16).reorder(rl, rt, ro, rb, c).gpu_blocks(rb, c).gpu_threads(rt)
    kernel = hb.compile(y, target="sm_80")
    assert any(name.endswith("left") for name in intermediates(kernel))


@pytest.mark.parametrize("tiles", [1, 2])
def test_what_reads_each_output_is_stored_with_it(tiles: int) -> None:
    out, y = hl.Func("out"), cut((0.75,), tiles)
    out[x, c] = hl.cast(hl.Float(16), hl.f32(2) * y[x, c] + 1)
    kernel = hb.compile(stored(out), target="sm_80")
    scan = kernel.source.split("__global__")[2]
    assert "f16* __restrict__ out" in scan
    assert " Y[" not in scan.replace("= Y[", "").replace("? Y[", "")
    for shape in ((1, 1), (3, 64), (2, 700), (1, 2200)):
        data = noise(*shape)
        found = emulation.check(kernel, sizes=shape, X=data).astype(np.float64)
        truth = 2 * wanted(data, 0.75) + 1
        assert np.linalg.norm(found - truth) <= 1e-3 * np.linalg.norm(truth)


def test_outputs_beyond_the_recurrence_are_what_it_begins_with() -> None:
    """The reader has more elements than steps, and less."""
    out, y = hl.Func("out"), cut((0.75,))
    out[x, c] = y[x, c] * 2
    kernel = hb.compile(stored(out), target="sm_80")
    data = noise(2, 600)
    for size in (10, 599, 601, 900):
        truth = 2 * wanted(np.pad(data, ((0, 0), (0, 400))), 0.75)[:, :size]
        truth[:, 601:] = 0
        if size > 600:
            truth[:, 600] = data[:, 599]
        close(emulation.check(kernel, sizes=(2, size), X=data), truth)


def test_outputs_that_others_read_too_are_stored() -> None:
    y, first, second = cut((0.75,)), hl.Func("first"), hl.Func("second")
    first[x, c] = y[x, c] * 2
    second[x, c] = stored(first)[x, c] + y[hl.max(x - 1, 0), c]
    kernel = hb.compile(stored(second), target="sm_80")
    data = noise(2, 700)
    truth = wanted(data, 0.75)
    moved = truth[:, np.maximum(np.arange(700) - 1, 0)]
    close(emulation.check(kernel, sizes=data.shape, X=data), 2 * truth + moved)


def test_a_reader_of_other_elements_is_a_kernel_of_its_own() -> None:
    out, y = hl.Func("out"), cut((0.75,))
    out[x, c] = y[hl.max(x - 3, 0), c] * 2
    kernel = hb.compile(stored(out), target="sm_80")
    data = noise(2, 700)
    moved = wanted(data, 0.75)[:, np.maximum(np.arange(700) - 3, 0)]
    close(emulation.check(kernel, sizes=data.shape, X=data), 2 * moved)


def test_rows_under_a_condition_keep_their_start() -> None:
    source, y = hl.ImageParam(F32, 2, "X"), hl.Func("Y")
    r = hl.RDom([(1, source.dim(0).extent() - 1)], "r")
    r.where(c > 1)
    y[x, c] = source[x, c]
    y[r, c] = y[r, c] + hl.f32(0.5) * y[r - 1, c]
    ro, rt, rl, rb = (hl.RVar(name) for name in ("ro", "rt", "rl", "rb"))
    stored(y)
    update = y.update().allow_race_conditions().split(r, rb, ro, 256).split(ro, ro, rl, 4)
    update.split(ro, ro, rt, 16).reorder(rl, rt, ro, rb, c).gpu_blocks(rb, c).gpu_threads(rt)
    kernel = hb.compile(y, target="sm_80")
    data = noise(4, 700)
    truth = data.astype(np.float64)
    truth[2:] = filtered(data, 0.5)[2:]
    close(emulation.check(kernel, sizes=data.shape, X=data), truth)


@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_columns_that_blocks_share(weight: float) -> None:
    source, middle, out = hl.ImageParam(F32, 2, "X"), hl.Func("middle"), hl.Func("out")
    r = hl.RDom([(1, source.height() - 1)], "r")
    middle[x, c] = source[x, c]
    middle[x, r] = middle[x, r] + hl.f32(weight) * middle[x, r - 1]
    out[x, c] = middle[x, c] * 2
    shapes = {"X": (1 << 18, 64), "out": (1 << 18, 64)}
    assert 'hl.RVar("rb")' in hb.autoschedule(out, target="sm_80", sizes=shapes).source
    kernel = hb.compile(out, target="sm_80")
    for shape in ((3, 5), (1030, 40), (2100, 33)):
        data = noise(*shape)
        found = emulation.check(kernel, sizes=shape, X=data)
        close(found, 2 * filtered(data.T.copy(), weight).T)
