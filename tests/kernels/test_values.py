"""A number of a kernel's control is the same for one thread and for several at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from selector.gpu.ir import expressions as e
from selector.gpu.ir.values import value_of, values_of
from selector.ir.nodes import Call, Expr
from selector.ir.types import INT32

X = np.arange(-40, 40)
Y = X[::-1] // 3 + 1


@pytest.mark.parametrize("what", [
    e.minus(e.times("x", 3), "y"),
    e.plus(e.quotient("x", 5), e.remainder("x", 5)),
    e.chosen(e.less("x", "y"), e.least("x", 3), e.most("y", "x")),
    e.as_number(e.both(e.less("x", 9), e.at_least("y", 2))),
    e.as_number(e.either(e.negated(e.flag("x")), e.equal("x", "y"))),
    e.as_number(e.below("x", 9)),
    e.unsigned("x"),
    e.masked(e.shifted("x", 2), 7),
    Call(INT32, "anew", (e.greater("x", "y"),)),
    e.place("panel_index", 64, 8, 2, 128, index=e.masked("x", 511)),
    e.place("strip_column", 64, 2, 8, index=e.masked("x", 63)),
], ids=str)  # fmt: skip
def test_of_one_and_of_several(what: Expr) -> None:
    alone, together = value_of(what), values_of(what)
    values: Any = together({"x": X, "y": Y})
    assert [alone({"x": int(x), "y": int(y)}) for x, y in zip(X, Y, strict=True)] == [*values]


def test_a_number_without_a_sign_is_no_small_one() -> None:
    assert not value_of(e.below("x", 9))({"x": -1})
