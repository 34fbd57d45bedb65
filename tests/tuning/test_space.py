"""Spaces: their order, what is refused, and how configurations reach a schedule."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from selector.diagnostics import UserError
from selector.tuning.space import MOST_POINTS, points_of


@dataclass(frozen=True)
class Tile:
    n: int
    shape: tuple[int, int] = (1, 2)


def test_a_product_in_the_order_it_is_written() -> None:
    points = points_of({"n": (2, 1), "m": ("ab", "c")})
    assert [p.settings for p in points] == [{"n": n, "m": m} for n in (2, 1) for m in ("ab", "c")]
    assert [p.index for p in points] == [0, 1, 2, 3]
    assert str(points[0]) == "n=2, m=ab"


def test_configurations_are_called_as_they_are_given() -> None:
    (named,) = points_of({"n": [3]})
    assert named.call(lambda n: n + 1) == 4
    (tile,) = points_of([Tile(5)])
    assert tile.call(lambda t: t.n) == 5
    assert tile.settings == {"n": 5, "shape": [1, 2]}
    (number,) = points_of([7])
    assert (number.call(lambda x: x), number.settings) == (7, {"configuration": 7})
    (mapping,) = points_of([{"n": 1, "m": 2}])
    assert mapping.call(lambda n, m: n + m) == 3


def test_refused_and_repeated_ones_are_left_out() -> None:
    points = points_of({"n": (1, 2, 2), "m": (1, 2)}, where=lambda n, m: n != m)
    assert [p.settings for p in points] == [{"n": 1, "m": 2}, {"n": 2, "m": 1}]
    assert [p.index for p in points] == [0, 1]


def test_a_shuffled_order_is_that_of_its_seed() -> None:
    space = {"n": range(50)}
    once, again, other = (points_of(space, shuffle=seed) for seed in (1, 1, 2))
    assert once == again
    assert [p.settings for p in once] != [p.settings for p in other]
    assert sorted(p.settings["n"] for p in other) == list(range(50))
    assert [p.index for p in once] == list(range(50))


@pytest.mark.parametrize(
    ("space", "what"),
    [
        ({}, None),
        ([], "no configuration"),
        ({"n": ()}, "no configuration"),
        ({"n": 3}, "choices of 'n' are 3"),
        ({"n": "abc"}, "choices of 'n' are 'abc'"),
        ({"n": range(1000), "m": range(1000)}, f"more than {MOST_POINTS}"),
    ],
)
def test_spaces_that_are_none(space: object, what: str | None) -> None:
    if what is None:  # no names: the one configuration without settings
        assert len(points_of(space)) == 1  # type: ignore[arg-type]
        return
    with pytest.raises(UserError, match=what):
        points_of(space)  # type: ignore[arg-type]
