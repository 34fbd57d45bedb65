"""Products whose sums overlap their addend are found in machine code, and refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

import halide_bridge as hb
from casestudies.common.registry import find_case
from casestudies.conv2d import CASE
from selector.diagnostics import ScheduleError
from selector.families.windows import Tiling
from selector.runtime import nvrtc
from selector.runtime.sums import Overlap, overlaps

SHIFTED = 0x00A00000142479F0, 0x000FE20008000818  # HGMMA.64x48x16.F32 R36, gdesc[UR20], R24
KEPT = 0x00800000081C79F0, 0x000FE2000800081C  # HGMMA.64x40x16.F32 R28, gdesc[UR8], R28
APART = 0x00400000141879F0, 0x000FE20008000868  # HGMMA.64x24x16.F32 R24, gdesc[UR20], R104
FRESH = 0x00000000046879F0, 0x000FE2000C0008FF  # HGMMA.64x8x16.F32 R104, gdesc[UR4], RZ
FROM_REGISTERS = 0x41E0000478187DF0, 0x000FE20008700820  # R24, R120, gdesc[UR4], R32


def cubin(*instructions: tuple[int, int]) -> bytes:
    """An ELF file with one section of instructions."""
    code = b"".join(word.to_bytes(8, "little") for pair in instructions for word in pair)
    names = b"\0.text.kernel\0"
    sections = [(0, 64, len(names)), (1, 64 + len(names), len(code))]
    table = b"".join(
        name.to_bytes(4, "little") + bytes(20) + at.to_bytes(8, "little")
        + size.to_bytes(8, "little") + bytes(24)
        for name, at, size in sections
    )  # fmt: skip
    head = bytearray(64)
    head[40:48] = (64 + len(names) + len(code)).to_bytes(8, "little")
    head[58:64] = b"".join(n.to_bytes(2, "little") for n in (64, 2, 0))
    return bytes(head) + names + code + table


def test_sums_that_overlap_their_addend_are_found() -> None:
    assert overlaps(cubin(KEPT, SHIFTED, APART)) == [Overlap(36, 24, 24)]
    assert overlaps(cubin(FROM_REGISTERS)) == [Overlap(24, 32, 64)]


def test_others_are_not() -> None:
    assert overlaps(cubin(KEPT, APART, FRESH)) == []


def test_such_machine_code_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*_: object) -> tuple[bytes, str]:
        return cubin(KEPT, SHIFTED), ""

    monkeypatch.setattr(nvrtc, "compiled", compiled)
    with pytest.raises(ScheduleError, match="overwrites sums") as raised:
        nvrtc.compile_to_cubin("", "sm_90a")
    assert "fewer rows" in str(raised.value)


@pytest.mark.nvrtc
def test_a_filter_with_more_rows_of_outputs_than_of_taps_is_kept_apart() -> None:
    """It was wrong on an H200, and refused, while lanes that no block has began with anything."""
    case = find_case("conv2d")
    problem = next(p for p in case.small if p.name.startswith("conv2d-k16-clamp"))
    problem = replace(problem, taps=5)
    tiling = Tiling("group", 512, 1, 16, 4, segments=1, stages=1)
    assert CASE.tuning is not None
    kernel = hb.compile(CASE.tuning.schedule(problem, tiling), target="sm_90a")
    code = "\n".join(nvrtc.sass(kernel.cubin()).values())
    assert all(nvrtc.count_instructions(code, ("HGMMA",)).values())
