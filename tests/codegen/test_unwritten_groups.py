"""What wgmma reads in shared memory, operand form by operand form: all of it is known to be a
number, or the kernel is refused; and what nobody writes is zeroed, which the text shows when it is
run with NaN in all memory that nobody wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

pytest.importorskip("halide")

import halide as hl
from corpus import CORPUS
from corpus_group_windows import Windows, windowed
from corpus_groups import Groups, product
from emulation import check
from unwritten_programs import Program, padded_windows, partly_staged

import halide_bridge as hb
from selector.diagnostics import InternalError, ScheduleError
from selector.gpu.codegen import placement, unwritten
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.warpgroups.core_bands import CoreBands
from selector.gpu.codegen.warpgroups.part_products import PartBands
from selector.intrinsics.regions import Marks
from selector.intrinsics.unwritten import Contents
from selector.ir.nodes import Allocate, IntImm

pytestmark = pytest.mark.verified

PANELS: dict[str, Groups] = {
    "along the depth": Groups(layout="nt", stages=1),
    "across the depth": Groups(layout="tn", stages=1),
    "of several panels": Groups(block=(128, 128), groups=(1, 2), stages=1),
    "of bytes": Groups((hl.Int(8), hl.Int(32)), "nt", step=128, vector=(16, 32), stages=1,
                       result=(hl.Int(32),)),
    "in a ring": Groups(stages=3),
    "in a ring of threads": Groups(wide=True, stages=3),
    "in a ring that lasts": Groups(lasting=1),
    "in a ring that feeds itself": Groups(self_fed=True),
}  # fmt: skip
WINDOWS: dict[str, Windows] = {
    "rows": Windows(),
    "rows in a ring": Windows(groups=2, segments=3, stages=2),
    "pairs of rows": Windows(taps=7, tap_rows=3, rows=3),
    "strips": Windows(taps=16, tap_rows=4, stride=2),
    "parts": Windows(stride=2, step=2, part=True),
    "phases": Windows(taps=8, phases=2),
}


def row_left_out(marks: Marks, pitch: int) -> None:
    rows = marks.reshape(-1, pitch)
    rows[np.flatnonzero(rows.any(axis=1))[-1]] = False


def extent_reduced(marks: Marks, pitch: int) -> None:
    """By 16 columns: the last 8 of windows may be read by nobody, where rows are paired."""
    rows = marks.reshape(-1, pitch)
    rows[:, np.flatnonzero(rows.any(axis=0))[-16:]] = False


MUTATIONS = (row_left_out, extent_reduced)


def mutate(
    monkeypatch: pytest.MonkeyPatch, buffer: str, change: Callable[[Marks, int], None]
) -> None:
    """As if what fills a buffer left some of it out, and nobody zeroed that."""
    found = unwritten.staged_contents

    def less(s: Allocate, context: KernelContext) -> Contents | None:
        known = found(s, context)
        if known is None or s.name != buffer or s.type.is_integer:
            return known
        pitch = s.extents[0]
        assert isinstance(pitch, IntImm)
        change(known.written, pitch.value)
        return known

    monkeypatch.setattr(placement, "staged_contents", less)


def refused(output: hl.Func, buffer: str) -> None:
    with pytest.raises(InternalError, match=f"`.*` multiplies what nobody wrote in `{buffer}`"):
        hb.compile(output, target="sm_90a")


@pytest.mark.parametrize("change", MUTATIONS)
@pytest.mark.parametrize("operand", ["A", "B"])
@pytest.mark.parametrize("form", [form for form in PANELS if "bytes" not in form])
def test_panels_that_are_not_filled_are_refused(
    form: str, operand: str, change: Callable[[Marks, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = {"A": "left", "B": "right"}[operand] if PANELS[form].wide else f"{operand}_im_in_mm"
    mutate(monkeypatch, staged, change)
    refused(product(PANELS[form]), staged)


@pytest.mark.parametrize("form", PANELS)
def test_panels_that_are_filled_are_not_zeroed(form: str) -> None:
    assert "to_f16(0.0f);" not in body(hb.compile(product(PANELS[form]), target="sm_90a"))


@pytest.mark.parametrize("change", MUTATIONS)
@pytest.mark.parametrize("form", WINDOWS)
def test_windows_that_are_not_filled_are_refused(
    form: str, change: Callable[[Marks, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch, "I_im_in_conv", change)
    refused(windowed(WINDOWS[form]), "I_im_in_conv")


@pytest.mark.parametrize("form", WINDOWS)
def test_windows_that_are_filled_are_not_zeroed(form: str) -> None:
    assert "to_f16(0.0f);" not in body(hb.compile(windowed(WINDOWS[form]), target="sm_90a"))


@pytest.mark.parametrize("form", WINDOWS)
def test_bands_that_are_not_filled_are_refused(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every loop that fills bands stopped one short."""
    whole, part = CoreBands._filled, PartBands._filled
    monkeypatch.setattr(
        CoreBands,
        "_filled",
        lambda self, place, pitch, count, chunks: whole(self, place, pitch, count, chunks - 1),
    )
    monkeypatch.setattr(
        PartBands, "_filled", lambda self, first, count: part(self, first, count - 1)
    )
    refused(windowed(WINDOWS[form]), "K")


PROGRAMS: dict[str, Callable[[], Program]] = {
    "padding of rows": padded_windows,
    "padding of strips": partial(padded_windows, stride=2),
    "padding in a ring": partial(padded_windows, stages=2),
    "padding of strips in a ring": partial(padded_windows, stride=2, stages=2),
    "padding of blocks that stay": partial(padded_windows, stages=2, lasting=True),
    "panels": partly_staged,
}


def body(kernel: hb.CompiledKernel) -> str:
    return kernel.source.split("__global__")[1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_nobody_wrote_is_zeroed_first(name: str) -> None:
    """Each slot once, before the barrier after which anybody copies or multiplies; a fence tells
    wgmma and the copy engine.
    """
    program = PROGRAMS[name]()
    kernel, inputs = hb.compile(program.output, target="sm_90a"), program.inputs()
    text = body(kernel)
    zeros = [m.start() for m in re.finditer(r"= to_f16\(0\.0f\);", text)]
    assert len(zeros) == (2 if "ring" in name or "stay" in name else 1)
    after = text[zeros[-1] :]
    assert re.match(r"[^;]*;\s*\}\s*async_fence\(\);\s*(__syncthreads\(\)|group_sync\()", after)
    for word in ("barrier_init(", "copy16(", "bulk_copy(", "for (int turn"):
        assert word not in text[: zeros[-1]]
    truth = program.truth(*inputs.values())
    found = check(kernel, sizes=program.size, **inputs)
    assert np.linalg.norm(found - truth) < 1e-6 * np.linalg.norm(truth)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_kernel_that_forgets_its_zeros_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "write_zeros", lambda *args: None)
    refused(PROGRAMS[name]().output, "left" if name == "panels" else "I_im_in_sums")


def test_panels_have_no_room_for_what_no_definition_computes() -> None:
    """24 columns are staged, so that rows take 64 bytes; the product reads 128. That is the
    program's own: whoever reads `hl.undef` learns of it.
    """
    with pytest.raises(ScheduleError, match="what no definition of `left` computes") as caught:
        hb.compile(partly_staged(24).output, target="sm_90a")
    assert "the first 24 elements are written, and 48 are read" in caught.value.why
    assert "a value wherever it is read" in caught.value.hint
    assert caught.value.where is not None
    assert caught.value.where.func == "sums"


def test_rows_that_start_inside_16_bytes_are_refused() -> None:
    """522 elements: descriptors of the second row would name the 16 bytes that it starts in."""
    with pytest.raises(ScheduleError, match=r"cannot be read by wgmma.* as windows"):
        hb.compile(padded_windows(taps=9, align=3).output, target="sm_90a")


def test_rows_that_windows_leave_are_refused() -> None:
    with pytest.raises(ScheduleError, match=r"reach 536 .* into its rows, of which 528 are staged"):
        hb.compile(padded_windows(align=8).output, target="sm_90a")


def test_what_is_filled_once_for_all_turns_stays() -> None:
    """Weights that lasting blocks copy before their first turn, in rows with padding."""
    case = CORPUS["layers_lasting"]
    kernel = hb.compile(case.build(), target="sm_90a", name="lasting")
    assert "K_im_in_conv" in body(kernel)
    assert "to_f16(0.0f);" not in body(kernel)
