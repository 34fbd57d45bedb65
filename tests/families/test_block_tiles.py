"""What the tiles of blocks of threads cost."""

from __future__ import annotations

from selector.families.blocks import LANES, Factor, Sums, Tile, cycles, ranked
from selector.machine import machine_named

H200 = machine_named("H200")
assert H200 is not None


def best(sums: Sums) -> Tile:
    assert H200 is not None
    return min(ranked(sums, H200), key=lambda ranked: ranked[0])[1]


def test_large_products_have_large_tiles_and_small_ones_more_blocks() -> None:
    large, small = best(Sums(4096, 4096, 1, 4096)), best(Sums(512, 512, 1, 512))
    assert large.n * large.m > small.n * small.m
    assert min(large.extents) >= 64 > min(small.extents)


def test_a_tile_is_not_much_larger_than_what_there_is() -> None:
    tile = best(Sums(8, 8, 10000, 64))
    assert tile.threads == LANES
    assert tile.extents[0] <= 16


def test_rows_of_taps_are_written_out_whole() -> None:
    tile = Tile(4, 4, 32, 8)
    assert tile.written_out((21, 21)) == 3
    assert tile.written_out((64, 5)) == 1
    assert tile.written_out((3, 3)) == 3


def test_what_slides_costs_less() -> None:
    assert H200 is not None
    image, taps = Factor(True, True, True, 81), Factor(False, False)
    window = Sums(3840, 2160, 1, 81, (image, taps), (9, 9))
    apart = Sums(3840, 2160, 1, 81, (Factor(True, True), taps), (9, 9))
    tile = Tile(4, 4, 32, 8)
    assert cycles(window, tile, H200) < cycles(apart, tile, H200)


def test_long_terms_and_wide_sums_have_small_tiles() -> None:
    plain = best(Sums(4096, 4096, 1, 4096))
    assert plain.n * plain.m == 128
    for work, registers, most in ((2, 1, 32), (1, 2, 32), (4, 1, 16), (100, 4, 8)):
        tile = best(Sums(4096, 4096, 1, 4096, work=work, registers=registers))
        assert tile.n * tile.m == most
    assert Tile(4, 4, 32, 8).written_out((21, 21), work=3) == 1


def test_two_runs_of_sums_are_for_whole_rounds_of_long_products() -> None:
    """Of 3072 x 3072 the last round would have half of the blocks, one of them alone."""
    for extent, terms, n in ((2048, 2048, 8), (4096, 4096, 8), (3072, 3072, 4), (4096, 128, 4)):
        assert best(Sums(extent, extent, 1, terms)).n == n


def test_some_narrow_tiles_cover_what_a_wide_one_goes_beyond() -> None:
    """Of 65 results 128 would be computed."""
    assert best(Sums(65, 65536, 2, 128)).extents[0] == 32
    assert best(Sums(128, 65536, 2, 128)).extents[0] == 128
