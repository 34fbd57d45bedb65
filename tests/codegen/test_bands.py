"""Banded operands in CUDA: built once per block, shared by accumulators, phases among the rows."""

from __future__ import annotations

import re

from test_emit import plan


def band_source(name: str) -> str:
    return plan(name, "sm_80").source


def test_two_accumulators_share_one_band():
    """The same taps: one table, and a lane loads each of its words once for both."""
    source = band_source("variant_two_filters_same_taps")
    assert source.count("with zeros around them") == 1
    loads = re.findall(r"= (band_\w+\[[^;]*\]);", source)
    assert loads
    assert len(loads) == len(set(loads))


def test_other_taps_are_another_band():
    source = band_source("variant_two_filters_same_image")
    assert source.count("with zeros around them") == 2


def test_a_row_of_a_band_of_phases_is_an_output_and_a_phase():
    source = band_source("variant_upsampling_by_3_5_taps_div_and_mod")
    assert "5 taps in each of 3 phases of a 12 x 24 band" in source
    assert re.search(r"const int phase = .* % 3;", source)
    assert "lane / 4 / 3" in source


def test_taps_that_a_call_checks_are_read_without_tests():
    """All phases of all taps are required by the algorithm, so that only the band is tested."""
    source = band_source("variant_upsampling_by_2_8_taps_phases")
    (line,) = (x for x in source.splitlines() if "pack16(" in x and "band_K[" in x)
    assert "K_extent" not in line
    assert "phase + " in line
