"""What one product hands to the next stays in registers, where it lies as the next one wants it."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("halide")

import halide as hl
from corpus_registers import chain

import halide_bridge as hb
from casestudies.dct_denoise import CASE
from casestudies.dct_denoise.problem import BENCHMARK
from selector.diagnostics import ScheduleError

pytestmark = pytest.mark.verified


def blocks_of(side: str) -> tuple[dict[int, tuple[int, int]], list[tuple[str, list[int]]]]:
    """The 8 x 8 block (row, column) of ``kept`` in each register, and the registers of ``kept`` in
    the instructions of the second product by accumulator.
    """
    source = hb.compile(chain(side), target="sm_90a").source
    held: dict[int, tuple[int, int]] = {}
    for number, tile, low in re.findall(r"kept\[(\d+)\] = .*?first\[(\d+)\]\[(\d)\]", source):
        held[int(number)] = (2 * (int(tile) // 4) + int(low) // 2, int(tile) % 4)
    uses = [
        (match[1], [int(n) for n in re.findall(r"kept\[(\d+)\]", match[0])])
        for match in re.finditer(r"mma_\w+\((second\[\d+\]), .*\);", source)
    ]
    return held, uses


def test_blocks_of_a() -> None:
    """Rows 0-7 and 8-15 of the first depth block, then of the second (PTX ISA, m16n8k16)."""
    held, uses = blocks_of("a")
    assert sorted(held.values()) == [(row, column) for row in range(4) for column in range(4)]
    assert len(uses) == 16
    for accumulator, registers in uses:
        row = 2 * (int(re.findall(r"\d+", accumulator)[0]) // 4)
        places = [held[n] for n in registers]
        depth = places[0][1]
        assert depth % 2 == 0
        assert places == [(row + h, depth + d) for d in (0, 1) for h in (0, 1)]


def test_blocks_of_b() -> None:
    """Columns of B are rows of what is kept; one block for each depth."""
    held, uses = blocks_of("b")
    assert len(uses) == 16
    for accumulator, registers in uses:
        column = int(re.findall(r"\d+", accumulator)[0]) % 4
        places = [held[n] for n in registers]
        depth = places[0][1]
        assert places == [(column, depth), (column, depth + 1)]


def test_no_memory_and_no_barrier() -> None:
    kept, staged = (
        hb.compile(chain("a", memory), target="sm_90a").source
        for memory in (hl.MemoryType.Register, hl.MemoryType.GPUShared)
    )
    assert "smem" not in kept
    assert "__sync" not in kept
    assert "smem" in staged


def test_the_transpose_is_refused() -> None:
    with pytest.raises(ScheduleError, match="`kept` cannot go from product to product") as caught:
        hb.compile(chain("b", across=True), target="sm_90a")
    assert "neighbours along its columns" in caught.value.why
    assert "GPUShared" in caught.value.hint
    hb.compile(chain("b", hl.MemoryType.GPUShared, across=True), target="sm_90a")


def test_a_number_that_all_elements_read_is_loaded_once() -> None:
    """Once for each statement, not for each element: a threshold, for instance."""
    source = hb.compile(CASE.scheduled(BENCHMARK[0], "tensor", "sm_90a"), target="sm_90a").source
    loads = [line for line in source.splitlines() if "T[0]" in line]
    kept = [line for line in source.splitlines() if re.match(r"\s*cored\w*\[\d+\] = ", line)]
    assert 4 * len(loads) == len(kept)
    assert all(line.strip().startswith("const f16 T") for line in loads)
