"""The best tile of sums over windows is found without all others: the same one, and soon."""

from __future__ import annotations

import random

import pytest
from clock import assert_quick

from selector.families.channels import Shape, Windows, best, ranked
from selector.families.channels.choice import _best
from selector.machine import machine_for
from selector.targets import find_target

MACHINE = machine_for(find_target("sm_90a"))
ONE = Windows()


def drawn(seed: int) -> Shape:
    rng = random.Random(seed)
    windows = [Windows(rng.choice((3, 5, 7)), rng.choice((1, 2)), rng.choice((1, 1, 2)))] * 2
    pixels = [rng.choice((7, 14, 28, 60, 112)) for _ in range(rng.choice((1, 2, 2, 3)))]
    windows = (windows * 2)[: len(pixels)]
    channels, side = rng.choice((24, 96, 144, 272, 510)), rng.random() < 0.6
    group = rng.choice((1, 1, 1, 2, 8))
    group = group if channels % group == 0 else 1
    kind, batch = rng.choice((1, 2, 4)), rng.choice((1, 4, 30))
    if side:
        extents = (channels, *pixels, batch)
        return Shape(extents, (ONE, *windows, ONE), 0, group, kind, side, rng.choice((1, 9)))
    extents = (*pixels, channels, batch)
    return Shape(extents, (*windows, ONE, ONE), len(pixels), group, kind, side)


@pytest.mark.parametrize("seed", range(60))
def test_the_best_tile_is_the_first_of_all(seed: int) -> None:
    """No tile takes less than the bound by which others are left out."""
    shape = drawn(seed)
    every = ranked(shape, MACHINE)
    assert best(shape, MACHINE) == (every[0] if every else None)


def test_a_tile_is_chosen_at_once() -> None:
    window = Windows(3, 2)
    shapes = [
        Shape((960, 60, 60, 1), (ONE, window, window, ONE), 0, 1, 2, True),
        Shape((144, 112, 112, 32), (ONE, Windows(3), Windows(3), ONE), 0, 1, 2, True),
        Shape((56, 56, 96, 32), (Windows(7), Windows(7), ONE, ONE), 2, 1, 2, False),
        *(drawn(seed) for seed in range(9)),
    ]

    def choose() -> None:
        _best.cache_clear()
        for shape in shapes:
            best(shape, MACHINE)

    assert_quick(choose, 0.02 * len(shapes))
