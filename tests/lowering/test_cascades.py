"""Recurrences that follow each other: one kernel, whose threads hand outputs on in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import emulation
import halide as hl
import numpy as np
import pytest
from test_scan_memory import stored
from test_scans import F32, close, filtered, noise, weighted

import halide_bridge as hb

pytestmark = pytest.mark.verified

x, c, xo, xi = (hl.Var(name) for name in ("x", "c", "xo", "xi"))
Numbers = Sequence[float]


def split(y: hl.Func, r: hl.RDom, tiles: int, steps: int, threads: int) -> None:
    """Over blocks of ``tiles``, threads and steps; one block for a row if there are no tiles."""
    ro, rt, rl, rb = (hl.RVar(name) for name in ("ro", "rt", "rl", "rb"))
    y.compute_root().split(x, xo, xi, 64).gpu_blocks(xo, c).gpu_threads(xi)
    update = y.update().allow_race_conditions()
    if tiles:
        update.split(r, rb, ro, threads * steps * tiles).split(ro, ro, rl, steps)
        update.split(ro, ro, rt, threads).reorder(rl, rt, ro, rb, c).gpu_blocks(rb, c)
    else:
        update.split(r, ro, rl, steps).split(ro, ro, rt, threads).reorder(rl, rt, ro, c)
        update.gpu_blocks(c)
    update.gpu_threads(rt)


def chained(
    sections: Sequence[tuple[Numbers, Numbers]],
    tiles: int = 1,
    steps: int = 8,
    threads: int = 32,
    apart: int = 1,
) -> list[hl.Func]:
    """Sections, each of which reads the one before; ``apart``: elements between those that its
    numerator multiplies.
    """
    source = hl.ImageParam(F32, 2, "X")
    signal, made = hl.BoundaryConditions.constant_exterior(source, hl.f32(0)), list[hl.Func]()
    for number, (above, below) in enumerate(sections):
        y, r = hl.Func(f"Y{number}"), hl.RDom([(0, source.dim(0).extent())], f"r{number}")
        back = 1 if number == 0 else apart
        y[x, c] = sum((hl.f32(w) * signal[x - back * n, c] for n, w in enumerate(above)), hl.f32(0))
        y[r, c] = weighted(*below)(lambda n, y=y, r=r: y[r - n, c])
        split(y, r, tiles, steps, threads)
        signal = y
        made.append(y)
    return made


def truth(data: np.ndarray, sections: Sequence[tuple[Numbers, Numbers]], apart: int = 1) -> Any:
    """In float64, with zeros before the first sample."""
    found = data.astype(np.float64)
    for number, (above, below) in enumerate(sections):
        wide, back = np.zeros_like(found), 1 if number == 0 else apart
        for n, w in enumerate(above):
            wide[:, n * back :] += w * found[:, : found.shape[1] - n * back]
        padded = np.pad(wide, ((0, 0), (len(below), 0)))
        found = filtered(padded, *below)[:, len(below) :]
    return found


def kernel_of(sections: Sequence[tuple[Numbers, Numbers]], **how: int) -> Any:
    out = hl.Func("out")
    out[x, c] = 2 * chained(sections, **how)[-1][x, c]
    return hb.compile(stored(out), target="sm_80")


def is_one(kernel: Any) -> bool:
    """Whether a kernel takes what comes in to what goes out."""
    heads = [part.split("{")[0] for part in kernel.source.split("__global__")[1:]]
    return any("__restrict__ X" in head and "__restrict__ out" in head for head in heads)


PAIRS = [((0.5, 0.25, 0.125), (0.5, -0.3)), ((1.0, -0.5, 0.25), (0.8, -0.4))]


@pytest.mark.parametrize(
    ("sections", "how"),
    [
        (PAIRS, {}),
        (PAIRS, {"tiles": 2}),
        (PAIRS, {"tiles": 0}),
        ([*PAIRS, ((0.7, 0.2), (0.3,)), ((1.0,), (-0.4,))], {"steps": 4, "threads": 64}),
        ([((1.0,), (0.5,)), ((0.5, 0.5), (0.4, 0.1, -0.2, 0.1)), PAIRS[0]], {}),
    ],
)
def test_sections_are_one_kernel(sections: Any, how: dict[str, int]) -> None:
    kernel = kernel_of(sections, **how)
    assert is_one(kernel)
    for shape in ((1, 1), (2, 3), (1, 255), (2, 257), (1, 1100)):
        data = noise(*shape)
        close(emulation.check(kernel, sizes=shape, X=data), 2 * truth(data, sections))


def test_few_threads_run_ahead() -> None:
    """About 120 steps, until both sections have forgotten, by 16 of 32 threads: each has 8."""
    _, *kernels = kernel_of(PAIRS).source.split("__global__")
    (fused,) = (part for part in kernels if "__restrict__ X" in part and "__restrict__ out" in part)
    few = "if ((int)threadIdx.x < 16)"
    assert few in fused
    assert all(few not in part for part in kernels if part is not fused)


def test_more_results_than_samples_are_computed_one_by_one() -> None:
    """There, what a section begins with lies behind it, and is made of outputs before."""
    kernel, data = kernel_of(PAIRS), noise(2, 600)
    assert is_one(kernel)
    (_, (above, _)) = PAIRS
    for size in (1, 300, 600, 601, 700):
        found = emulation.check(kernel, sizes=(2, size), X=data)
        close(found[:, :600], 2 * truth(data, PAIRS)[:, :size])
        if size > 600:
            first = truth(data, PAIRS[:1])
            start = PAIRS[0][0][1] * data[:, -1] + PAIRS[0][0][2] * data[:, -2]
            close(
                found[:, 600],
                2 * (above[0] * start + above[1] * first[:, -1] + above[2] * first[:, -2]),
            )


@pytest.mark.parametrize(
    ("sections", "apart"),
    [
        ([((1.0,), (0.5,)), ((0.5, 0.25, 0.125), (0.5, -0.3))], 1),  # two outputs back, of order 1
        ([PAIRS[0], ((1.0, 0.5), (0.5, -0.3))], -1),  # the output behind
        ([((1.0,), (1.0,)), PAIRS[1]], 1),  # a sum that forgets nothing
        ([((1.0,), (0.5,)), ((1.0,), (1 - 2**-9,))], 1),  # one that does so after more than a tile
    ],
)
def test_what_stays_apart(sections: Any, apart: int) -> None:
    kernel = kernel_of(sections, apart=apart)
    assert not is_one(kernel)
    if apart == 1:
        data = noise(2, 700)
        close(emulation.check(kernel, sizes=data.shape, X=data), 2 * truth(data, sections))


def test_sections_that_others_read_are_stored() -> None:
    first, second = chained(PAIRS)
    out = hl.Func("out")
    out[x, c] = second[x, c] + first[x, c]
    kernel = hb.compile(stored(out), target="sm_80")
    assert not is_one(kernel)
    data = noise(2, 700)
    want = truth(data, PAIRS) + truth(data, PAIRS[:1])
    close(emulation.check(kernel, sizes=data.shape, X=data), want)


def test_sections_of_other_splits_stay_apart() -> None:
    source, first, second, out = hl.ImageParam(F32, 2, "X"), *map(hl.Func, ("Y0", "Y1", "out"))
    signal = hl.BoundaryConditions.constant_exterior(source, hl.f32(0))
    for y, read, steps in ((first, signal, 8), (second, first, 16)):
        r = hl.RDom([(0, source.dim(0).extent())], f"r{steps}")
        y[x, c] = read[x, c] * hl.f32(0.5)
        y[r, c] = weighted(0.5)(lambda n, y=y, r=r: y[r - n, c])
        split(y, r, 1, steps, 32)
    out[x, c] = 2 * second[x, c]
    kernel = hb.compile(stored(out), target="sm_80")
    assert not is_one(kernel)
    data = noise(2, 700)
    want = 2 * truth(data, [((0.5,), (0.5,))] * 2)
    close(emulation.check(kernel, sizes=data.shape, X=data), want)
