"""What a recurrence begins with is taken from where the kernel before takes it, and stored once."""

from __future__ import annotations

import emulation
import halide as hl
import numpy as np
import pytest
from test_scans import F32, close, noise

import halide_bridge as hb

pytestmark = pytest.mark.verified

x, c = hl.Var("x"), hl.Var("c")
STARTS = {
    "copied": lambda s: s(0),
    "a numerator": lambda s: hl.f32(0.5) * s(0) + hl.f32(0.25) * s(1) - s(2),
    "a root": lambda s: hl.sqrt(hl.abs(s(0))),
}


def filtered(start: str, first: int = 1, feedback: float = 0.75, row: int | None = None) -> hl.Func:
    """``Y``: of a start, then a recurrence, cut for blocks; of one row only if that is said."""
    source, y = hl.ImageParam(F32, 2, "X"), hl.Func("Y")
    edge = hl.BoundaryConditions.repeat_edge(source)
    r = hl.RDom([(first, source.dim(0).extent() - first)], "r")
    at = STARTS[start]
    y[x, c] = at(lambda n: edge[x - n, c]) if start == "a numerator" else at(lambda _: source[x, c])
    row_of = c if row is None else row
    y[r, row_of] = y[r, row_of] + hl.f32(feedback) * y[r - 1, row_of]
    ro, rt, rl, rb = (hl.RVar(name) for name in ("ro", "rt", "rl", "rb"))
    xo, xi = hl.Var("xo"), hl.Var("xi")
    y.compute_root().split(x, xo, xi, 32).gpu_blocks(xo, c).gpu_threads(xi)
    update = y.update().allow_race_conditions().split(r.x, rb, ro, 256).split(ro, ro, rl, 4)
    update.split(ro, ro, rt, 16)
    if row is None:
        update.reorder(rl, rt, ro, rb, c).gpu_blocks(rb, c).gpu_threads(rt)
    else:
        update.reorder(rl, rt, ro, rb).gpu_blocks(rb).gpu_threads(rt)
    return y


def truth(data: np.ndarray, start: str, first: int = 1, feedback: float = 0.75) -> np.ndarray:
    wide = data.astype(np.float64)

    def at(n: int) -> np.ndarray:
        return wide[:, np.maximum(np.arange(wide.shape[1]) - n, 0)]

    found = {
        "copied": lambda: wide.copy(),
        "a numerator": lambda: 0.5 * at(0) + 0.25 * at(1) - at(2),
        "a root": lambda: np.sqrt(np.abs(wide)),
    }[start]()
    for t in range(first, wide.shape[1]):
        found[:, t] += feedback * found[:, t - 1]
    return found


def scans(kernel: object) -> str:
    """The text of the kernels behind the first."""
    return str(kernel.source).split("__global__", 2)[2]


@pytest.mark.parametrize("start", STARTS)
def test_a_start_is_read_by_the_recurrence(start: str) -> None:
    kernel = hb.compile(filtered(start), target="sm_80")
    assert " X[" in scans(kernel) or "(X[" in scans(kernel)
    for shape in ((1, 1), (2, 3), (3, 255), (2, 257), (1, 1500)):
        data = noise(*shape)
        close(emulation.check(kernel, sizes=data.shape, X=data), truth(data, start))


def test_the_first_elements_are_left_to_the_kernel_before() -> None:
    """All that lie before the recurrence, more than a block's; and its grid is theirs."""
    kernel = hb.compile(filtered("copied", first=40), target="sm_80")
    data = noise(2, 1000)
    found = emulation.check(kernel, sizes=data.shape, X=data)
    close(found, truth(data, "copied", first=40))
    assert "X" in scans(kernel)


def test_rows_that_the_recurrence_leaves_out_keep_their_start() -> None:
    kernel = hb.compile(filtered("copied", row=1), target="sm_80")
    data = noise(3, 700)
    wanted = data.astype(np.float64)
    wanted[1] = truth(data, "copied")[1]
    close(emulation.check(kernel, sizes=data.shape, X=data), wanted)
    assert "X[" not in scans(kernel)


def test_a_start_of_many_loads_is_computed_once() -> None:
    source, y = hl.ImageParam(F32, 2, "X"), hl.Func("Y")
    edge = hl.BoundaryConditions.repeat_edge(source)
    r = hl.RDom([(1, source.dim(0).extent() - 1)], "r")
    y[x, c] = sum((edge[x - n, c] for n in range(1, 10)), edge[x, c])
    y[r, c] = y[r, c] + hl.f32(0.5) * y[r - 1, c]
    ro, rt, rl = (hl.RVar(name) for name in ("ro", "rt", "rl"))
    xo, xi = hl.Var("xo"), hl.Var("xi")
    y.split(x, xo, xi, 32).gpu_blocks(xo, c).gpu_threads(xi)
    update = y.update().allow_race_conditions().split(r.x, ro, rl, 4).split(ro, ro, rt, 16)
    update.reorder(rl, rt, ro, c).gpu_blocks(c).gpu_threads(rt)
    assert "X[" not in scans(hb.compile(y, target="sm_80"))


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("first", [1, 40])
def test_who_reads_what_lies_beside_a_recurrence_computes_it(start: str, first: int) -> None:
    """Before its first step, and behind its last; nothing is stored for that."""
    out = hl.Func("out")
    out[x, c] = filtered(start, first, 0.3)[x, c] * 2
    xo, xi = hl.Var("xo"), hl.Var("xi")
    out.compute_root().split(x, xo, xi, 64).gpu_blocks(xo, c).gpu_threads(xi)
    kernel = hb.compile(out, target="sm_80")
    assert not kernel.plan.intermediates
    assert len(kernel.plan.launches) == 2
    for shape in ((1, 1), (2, 39), (3, 300), (2, 700)):
        data = noise(*shape)
        close(emulation.check(kernel, sizes=shape, X=data), 2 * truth(data, start, first, 0.3))


def test_what_others_read_too_is_stored() -> None:
    y, first, second = filtered("copied"), hl.Func("first"), hl.Func("second")
    first[x, c] = y[x, c] * 2
    second[x, c] = first[x, c] + y[hl.max(x - 1, 0), c]
    xo, xi = hl.Var("xo"), hl.Var("xi")
    for f in (first, second):
        f.compute_root().split(x, xo, xi, 64).gpu_blocks(xo, c).gpu_threads(xi)
    kernel = hb.compile(second, target="sm_80")
    data = noise(2, 700)
    found = truth(data, "copied")
    moved = found[:, np.maximum(np.arange(700) - 1, 0)]
    close(emulation.check(kernel, sizes=data.shape, X=data), 2 * found + moved)
