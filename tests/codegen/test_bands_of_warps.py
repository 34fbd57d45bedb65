"""Bands that differ from warp to warp: every warp has its table, and NVRTC takes every text."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

import pytest

pytest.importorskip("halide")

from bands_of_warps import MASKS, TAPS, Filter
from corpus_group_windows import Windows, windowed

import halide_bridge as hb
from selector.diagnostics import ScheduleError, UserError
from selector.runtime import nvrtc

pytestmark = pytest.mark.verified

ROWS = 4  # warps of a block


def source(f: Filter) -> str:
    return hb.compile(f.build(), target="sm_80", cache=False).source


def table_words(text: str) -> int:
    (count,) = re.findall(r"item < (\d+); item \+= 128", text)
    return int(count)


@pytest.mark.parametrize("loops", [1, 2])
@pytest.mark.parametrize(
    "other",
    [
        Filter(taps="of every fourth row"),
        Filter(taps="moved in the block"),
        Filter(mask="rows"),
        Filter(mask="taps of a row"),
        Filter(mask="taps in the block", masked="taps"),
    ],
)
def test_every_warp_has_a_table(other: Filter, loops: int) -> None:
    text = source(replace(other, loops=loops))
    assert table_words(text) == ROWS * table_words(source(Filter()))
    declared = set(re.findall(r"const int (\w+) =", text))
    fill = text[text.index("for (int item") : text.index("pack16(", text.index("for (int item"))]
    assert set(re.findall(r"\bout_s0_\w+_thread_id_\w", fill)) == set()  # a loop* stands for it
    assert set(re.findall(r"\bout_s0_\w+_thread_id_\w", text)) <= declared


def test_what_is_the_same_for_all_warps_is_there_once() -> None:
    for taps in ("of a block", "of a column of blocks"):
        assert table_words(source(Filter(taps=taps))) == table_words(source(Filter()))


def test_taps_of_a_warp_alone_are_refused() -> None:
    with pytest.raises(UserError, match="holds taps and is computed anew") as caught:
        source(Filter(taps="of a row", staged=frozenset("K"), own=True))
    assert "at the block" in caught.value.hint


def test_warpgroups_share_their_bands() -> None:
    output = windowed(Windows(groups=2, own_taps=True))
    with pytest.raises(ScheduleError, match="differ from group to group") as caught:
        hb.compile(output, target="sm_90a", cache=False)
    assert "WMMAAccumulator" in caught.value.hint


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::selector.diagnostics.PerformanceWarning")
@pytest.mark.nvrtc
def test_nvrtc_takes_every_text() -> None:
    """Filters drawn from all that they are made of: refused by us, or taken by the compiler."""
    random = Random(10)
    taken = 0
    for _ in range(18):
        f = Filter(
            random.choice([*TAPS]),
            random.choice([*MASKS]),
            random.choice(["product", "taps", "image"]),
            random.choice([1, 2]),
            frozenset(random.sample("KI", random.choice([0, 1, 1]))),
            random.random() < 0.2,
            random.choice([3, 8, 9]),
        )
        try:
            text = source(f)
        except UserError:
            continue
        nvrtc.compile_to_cubin(text, "sm_80")
        taken += 1
    assert taken >= 12
