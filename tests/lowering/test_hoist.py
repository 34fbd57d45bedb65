"""Temporaries are filled outside the loops that do not need them, and every number stays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import selector.intrinsics  # noqa: F401  (meanings of calls)
from selector.ir.interpreter import interpret
from selector.ir.module import Module
from selector.ir.nodes import Allocate, ExprVar, For, ForKind, Stmt
from selector.ir.parser import parse_module
from selector.ir.traverse import stmt_children, walk_all_exprs, walk_stmt
from selector.ir.verify import verify
from selector.lowering.hoist import hoist

HEAD = """module t
input I: int32 [(0, I.extent.0, 1)]
output out: int32 [(0, out.extent.0, 1)]
"""


def module(body: str) -> Module:
    result = parse_module(f"{HEAD}body {{\n{body}\n}}\n", "t.vir")
    verify(result)
    return result


def nested(store: str, *loops: str) -> str:
    """``y 4`` is a loop of y over 4, ``parallel y 4`` a parallel one; outermost first."""
    for loop in reversed(loops):
        *kind, name, extent = loop.split()
        store = f"{' '.join(kind) or 'for'} ({name}, 0, {extent}) {{\n{store}\n}}"
    return store


def around(s: Stmt, inside: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """The loops around each allocation, outermost first."""
    found = {s.name: inside} if isinstance(s, Allocate) else {}
    if isinstance(s, For):
        inside = (*inside, s.name)
    for child in stmt_children(s):
        found |= around(child, inside)
    return found


def placed(m: Module) -> tuple[Module, tuple[str, ...]]:
    """The hoisted module and the loops around its first temporary."""
    hoisted = hoist(m)
    verify(hoisted)
    assert not any(isinstance(e, ExprVar) for e in walk_all_exprs(hoisted.body))
    same_numbers(m, hoisted)
    return hoisted, next(iter(around(hoisted.body).values()))


def same_numbers(before: Module, after: Module) -> None:
    data = np.random.default_rng(3).integers(-99, 99, 64).astype(np.int32)
    results = [interpret(m, {"I": data}, sizes={"out": (4096,)})["out"] for m in (before, after)]
    assert np.array_equal(*results)
    assert np.any(results[0])


def reading(index: str, at: str) -> str:
    """A store of 4 lanes of a temporary made of I."""
    return f"out[ramp({at}, 1, 4)] = ExprVar(I[ramp({index}, 2, 4)])"


@pytest.mark.parametrize(
    ("loops", "index", "outside", "copies"),
    [
        (("y 4", "x 5", "k 3"), "x + k", (), {"x", "k"}),
        (("y 4", "x 5", "k 3"), "y + k", ("y",), {"k"}),
        (("y 4", "x 5", "k 3"), "k", (), {"k"}),
        (("y 4", "x 5", "k 3"), "y + x + k", ("y", "x", "k"), set()),
        (("y 4", "x 5", "k 3"), "y", ("y",), set()),
        (("y 4", "x 5", "k 3"), "7", (), set()),
    ],
)
def test_a_temporary_leaves_the_loops_that_it_does_not_need(
    loops: tuple[str, ...], index: str, outside: tuple[str, ...], copies: set[str]
) -> None:
    program = module(nested(reading(index, "4*(y*15 + x*3 + k)"), *loops))
    hoisted, found = placed(program)
    assert found == outside
    filling = {x.name.split(".I")[0] for x in walk_stmt(hoisted.body) if ".I" in _loop_name(x)}
    assert filling == copies


def _loop_name(s: Stmt) -> str:
    return s.name if isinstance(s, For) else ""


def test_what_a_parallel_loop_shares_is_filled_in_parallel() -> None:
    program = module(nested(reading("x + k", "4*(y*15 + x*3 + k)"), "parallel y 4", "x 5", "k 3"))
    hoisted, _ = placed(program)
    kinds = {x.name: x.kind for x in walk_stmt(hoisted.body) if isinstance(x, For)}
    assert kinds["x.I.packed"] is ForKind.PARALLEL
    assert kinds["k.I.packed"] is ForKind.SERIAL


def test_a_buffer_is_read_after_it_is_written() -> None:
    filling = nested("t[i + y] = I[i] + y", "i 8")
    using = nested("out[ramp(4*(y*5 + x), 1, 4)] = ExprVar(t[ramp(y, 1, 4)])", "x 5")
    text = nested(f"allocate t[int32 * 16] in Heap\n{filling}\n{using}", "y 4")
    hoisted = hoist(module(text))
    same_numbers(module(text), hoisted)
    assert around(hoisted.body)["t.packed"] == ("y",)


def test_a_buffer_that_changes_in_the_loop_is_read_there() -> None:
    text = (
        "allocate t[int32 * 4] in Heap\nt[ramp(0, 1, 4)] = x4(1)\n"
        + nested(
            "t[ramp(0, 1, 4)] = t[ramp(0, 1, 4)] + x4(y)\n"
            "out[ramp(4*y, 1, 4)] = ExprVar(t[ramp(0, 1, 4)])",
            "y 4",
        )
    )  # fmt: skip
    hoisted = hoist(module(text))
    same_numbers(module(text), hoisted)
    assert around(hoisted.body)["t.packed"] == ("y",)


def test_loops_of_other_loops_extents_are_not_copied_together() -> None:
    loops = ("y 4", "x 3", "k x+1")
    _, found = placed(module(nested(reading("x + k", "4*(y*15 + x*3 + k)"), *loops)))
    assert found == ("y", "x", "k")


def test_equal_temporaries_are_one() -> None:
    body = f"{reading('x', '4*(y*5 + x)')}\n{reading('x', '400 + 4*(y*5 + x)')}"
    hoisted, _ = placed(module(nested(body, "y 4", "x 5")))
    assert len(around(hoisted.body)) == 1


def test_conditions_and_lets_stay_outside() -> None:
    body = f"let a = x*2\nif (y < 2) {{\n{reading('a', '4*(y*5 + x)')}\n}}"
    _, found = placed(module(nested(body, "y 4", "x 5")))
    assert found == ()


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A nest of up to four loops and two temporaries that use some of their variables."""
    names = draw(st.permutations(["a", "b", "c", "d"]))[: draw(st.integers(1, 4))]
    loops = [
        f"{draw(st.sampled_from(['', 'parallel ']))}{n} {draw(st.integers(1, 3))}" for n in names
    ]
    place = " + ".join(f"{n}*{4 * 3**i}" for i, n in enumerate(names))
    stores = ""
    for offset in (0, 400):
        used = draw(st.lists(st.sampled_from(names), unique=True))
        index = " + ".join([*used, str(draw(st.integers(0, 3)))])
        stores += reading(index, f"{place} + {offset}") + "\n"
    return nested(stores, *loops)


@settings(deadline=None, max_examples=60)
@given(programs())
def test_any_nest_keeps_its_numbers(text: str) -> None:
    before = module(text)
    after = hoist(before)
    verify(after)
    same_numbers(before, after)
