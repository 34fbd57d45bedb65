"""Products beside zeros, run as they are emitted, with NaN in all memory that nobody wrote: what
nobody wrote is never multiplied by them. And the check that says so of every kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from verified import EMULATED, Verified, text_of

pytest.importorskip("halide")

import halide as hl
from c_programs import executable
from emulation import run
from unwritten_programs import (
    Program,
    accumulate,
    across_rows,
    down_columns,
    filter_bank,
    in_phases,
    interleaved,
    masked,
    masked_in_tiles,
    runs_of_taps,
    unrolled_taps,
)

import halide_bridge as hb
from selector.diagnostics import InternalError
from selector.gpu.codegen import placement, unwritten
from selector.intrinsics.unwritten import Contents

PROGRAMS: dict[str, Callable[[], Program]] = {
    "5 taps down columns": down_columns,
    "9 taps down columns": partial(down_columns, taps=9),
    "bytes down columns": partial(down_columns, "s8"),
    "unsigned bytes down columns": partial(down_columns, "u8", 9),
    "8 channels": interleaved,
    "16 channels": partial(interleaved, channels=16),
    "16 channels of bytes": partial(interleaved, "s8", 16),
    "rows with padding": across_rows,
    "rows of 256 with padding": partial(across_rows, width=256),
    "every second row with padding": partial(across_rows, dilation=2),
    "padding in a ring": partial(across_rows, stages=3),
    "padding in turns": partial(across_rows, stages=1),
    "padding by warps": partial(across_rows, by_warps=True),
    "padding by warps in a ring": partial(across_rows, stages=2, by_warps=True),
    "rows of bytes": partial(across_rows, "s8", 256),
    "mask of a staged left operand": masked,
    "mask inside 16 bytes": partial(masked, count=9, depth=16),
    "mask of two staged operands": partial(masked, staged="AB"),
    "mask of a staged right operand": partial(masked, staged="B"),
    "three runs of taps": runs_of_taps,
    "aligned runs of taps": partial(runs_of_taps, run=8),
    "runs of bytes": partial(runs_of_taps, "s8"),
    "stride and dilation of 2": partial(runs_of_taps, count=1, stride=2, dilation=2),
    "runs at stride and dilation of 2": partial(runs_of_taps, stride=2, dilation=2),
    "four phases": in_phases,
    "two phases": partial(in_phases, taps=6, phases=2),
    "filter bank": filter_bank,
    "filter bank of two warps": partial(filter_bank, warps=2),
    "short filters of two warps": partial(filter_bank, taps=10, warps=2),
    "taps 2 elements apart": unrolled_taps,
    "taps 6 elements apart": partial(unrolled_taps, step=6),
    "taps 4 bytes apart": partial(unrolled_taps, "s8", 16, 4),
}


def error(found: np.ndarray, truth: np.ndarray) -> float:
    assert found.shape == truth.shape
    assert np.isfinite(found.astype(float)).all()
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


@pytest.mark.slow
@EMULATED
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_nobody_wrote_does_not_matter(name: str, verified: Verified) -> None:
    program = PROGRAMS[name]()
    kernel, inputs = hb.compile(program.output, target="sm_90a"), program.inputs()
    if verified(text_of(kernel), str(kernel.module), *(a.tobytes() for a in inputs.values())):
        return
    truth = program.truth(*inputs.values())
    assert error(run(kernel, sizes=program.size, **inputs), truth) < 1e-6
    assert error(kernel.interpret(sizes=program.size, **inputs), truth) < 1e-6


def starting_as_nan(source: str) -> str:
    """The C, whose memory is NaN before anything is written there."""
    local = r"(_Alignas\(64\) \w+ (\w+)\[\d+\];)"
    source, locals_ = re.subn(local, r"\1 memset(\2, 255, sizeof \2);", source)
    taken = r"(\*restrict (\w+) = memory_take\((.*)\);)"
    source, heap = re.subn(taken, r"\1 memset(\2, 255, \3);", source)
    assert locals_ + heap
    return source


@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("staged", ["A", "B", "AB"])
@pytest.mark.parametrize("count", [9, 16])
def test_masks_of_tiles(staged: str, count: int, by_rows: bool) -> None:
    """A packed operand keeps its mask; beside its zeros a staged one is zero."""
    program = masked_in_tiles(count, staged=staged, by_rows=by_rows)
    kernel, inputs = hb.compile(program.output, target="amx"), program.inputs()
    truth = program.truth(*inputs.values())
    assert error(kernel.interpret(sizes=program.size, **inputs), truth) < 1e-6
    run_c = executable(replace(kernel.plan, source=starting_as_nan(kernel.source)))
    found = np.full(program.size, np.nan, np.float32)
    run_c([], inputs, out=found)
    assert error(found, truth) < 1e-6


@pytest.mark.parametrize(("count", "rest"), [(9, 23), (16, 16), (32, 0)])
def test_tiles_zero_what_a_mask_leaves_and_no_more(count: int, rest: int) -> None:
    program = masked_in_tiles(count)
    source = hb.compile(program.output, target="amx").source
    assert re.findall(r"A_im_in_sums_zero < (\d+);", source) == ([str(rest)] if rest else [])


def body(kernel: hb.CompiledKernel) -> str:
    return kernel.source.split("__global__")[1]


def test_zeros_are_written_once_and_only_where_nobody_writes() -> None:
    """Three rows of 136 elements, of which 128 are staged: the padding of the last is not read."""
    text = body(hb.compile(across_rows().output, target="sm_80"))
    assert text.count("= to_f16(0.0f)") == 1
    (head,) = re.findall(r"for \(int i = \(int\)threadIdx.x; i < (\d+); i \+= 64\)", text)
    assert int(head) == 3 * 8
    zeros, copies, barrier = (text.index(x) for x in ("to_f16(0.0f)", "copy16(", "__syncthreads"))
    assert zeros < barrier < copies
    for program in (down_columns(), runs_of_taps(), in_phases(), masked(count=9, depth=16)):
        assert "to_f16(0.0f)" not in body(hb.compile(program.output, target="sm_80"))


@pytest.mark.parametrize("make", [across_rows, masked])
def test_a_kernel_that_forgets_its_zeros_is_refused(
    make: Callable[[], Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "write_zeros", lambda *args: None)
    with pytest.raises(InternalError, match=r"multiplies what nobody wrote in `[AI]_im_in_sums`"):
        hb.compile(make().output, target="sm_80")


def chosen() -> hl.Func:
    """Halves down columns, summed as halves where a row is not too far down: a choice that is no
    mask, so that the operand is computed, from staged rows that are 24 elements apart.
    """
    x, y, xi, xo, yi, yo = (hl.Var(n) for n in ["x", "y", "xi", "xo", "yi", "yo"])
    image, taps = hl.ImageParam(hl.Float(16), 2, "I"), hl.ImageParam(hl.Float(16), 1, "K")
    t, half = hl.RDom([(0, 3)], "t"), hl.Float(16)
    sums, out = hl.Func("sums"), hl.Func("output")
    sums[x, y] = hl.cast(half, 0)
    inside = hl.cast(hl.Int(64), y) <= hl.cast(hl.Int(64), 20)
    sums[x, y] += hl.select(inside, image[x, y + t.x] * taps[t.x], hl.cast(half, 0))
    out[x, y] = sums[x, y]
    out.split(x, xo, xi, 16).split(y, yo, yi, 16).reorder(xi, yi, xo, yo)
    out.vectorize(xi).vectorize(yi).gpu_blocks(xo, yo)
    sums.bound_extent(x, 16).bound_extent(y, 16).compute_at(out, xo)
    accumulate(sums, t.x, x, y)
    image.in_(sums).compute_at(out, xo).store_in(hl.MemoryType.GPUShared)
    return out


def test_what_a_computed_operand_loads_beside_a_band_is_a_number() -> None:
    kernel = hb.compile(chosen(), target="sm_80")
    assert "one by one" in str(kernel.report)
    draw = np.random.default_rng(7).integers
    seen, taps = (draw(-3, 4, shape).astype(np.float16) for shape in ((35, 33), (3,)))
    truth = sum(seen[i : i + 33].astype(float) * taps[i] for i in range(3))
    truth[21:] = 0
    for found in (run(kernel, I=seen, K=taps), kernel.interpret(I=seen, K=taps)):
        np.testing.assert_array_equal(found.astype(float), truth)


def test_a_kernel_that_forgets_the_zeros_of_what_it_computes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement, "write_zeros", lambda *args: None)
    with pytest.raises(InternalError, match=r"multiplies what nobody wrote in `I_im_in_sums`"):
        hb.compile(chosen(), target="sm_80")


@pytest.mark.parametrize("make", [down_columns, runs_of_taps])
def test_a_kernel_that_reads_past_the_depth_is_refused(
    make: Callable[[], Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if every element past a depth were known to be a number."""
    monkeypatch.setattr(unwritten, "_settled", lambda operand, context: operand)
    with pytest.raises(InternalError, match="multiplies what nobody wrote in `I_im_in_sums`"):
        hb.compile(make().output, target="sm_80")


def test_rows_that_end_inside_16_bytes_are_read_element_by_element(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Windows that ldmatrix reads whole need the end of the last 16 bytes."""
    assert "< 15 ?" not in body(hb.compile(runs_of_taps(run=8).output, target="sm_80"))
    found = unwritten.staged_contents

    def short(*args: object) -> Contents | None:
        known = found(*args)  # type: ignore[arg-type]
        if known is not None:
            known.written[-1] = False
        return known

    monkeypatch.setattr(placement, "staged_contents", short)
    assert "< 15 ?" in body(hb.compile(runs_of_taps(run=8).output, target="sm_80"))
