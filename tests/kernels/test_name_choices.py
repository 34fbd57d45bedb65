"""A choice with a function in an arm is computed once, as is a guarded load that stores side by
side have in common; what is computed on a condition stays there.
"""

from __future__ import annotations

import pytest

from selector.gpu.ir.expressions import element, pointer
from selector.gpu.ir.memory import Store
from selector.gpu.ir.nodes import Kernel, Let, Local, Node
from selector.gpu.passes.name_choices import MOST, name_choices
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Call,
    Compare,
    CompareOp,
    Expr,
    FloatImm,
    Select,
    Var,
)
from selector.ir.traverse import walk_expr
from selector.ir.types import FLOAT32, INT32

X, I = Var("x", FLOAT32), Var("i", INT32)  # noqa: E741
ZERO = FloatImm(0.0, FLOAT32)


def below(e: Expr, limit: Expr = ZERO) -> Expr:
    return Compare(CompareOp.LT, e, limit)


def both(a: Expr, b: Expr) -> Expr:
    return Binary(BinaryOp.ADD, a, b)


def power(e: Expr, name: str = "powf") -> Expr:
    return Select(below(e), e, Call(FLOAT32, name, (e, FloatImm(2.4, FLOAT32))))


def loaded(name: str, index: Expr = I) -> Expr:
    there = Compare(CompareOp.LT, index, Var("width", INT32))
    return Select(there, element(FLOAT32, pointer(name), index), ZERO)


def stored(*values: Expr, to: str = "out") -> tuple[Node, ...]:
    places = (both(I, Var(f"n{n}", INT32)) for n in range(len(values)))
    return tuple(
        Store(element(FLOAT32, pointer(to), at), v) for at, v in zip(places, values, strict=True)
    )


def changed(*nodes: Node) -> tuple[Node, ...]:
    kernel = Kernel("k", 32, 1, (), (), nodes, shared=0, alignment=128)
    after = name_choices(kernel)
    if after.body == nodes:
        assert after is kernel
    return after.body


def names(*nodes: Node) -> dict[str, Expr]:
    """What has a name now."""
    (local,) = changed(*nodes)
    assert isinstance(local, Local)
    lets = [node for node in local.body if isinstance(node, Let)]
    assert len(local.body) == len(lets) + len(nodes)
    return {let.names[0]: let.values[0] for let in lets}


def test_a_choice_of_a_function_is_computed_once() -> None:
    one = power(X)
    assert names(*stored(both(one, Binary(BinaryOp.MUL, one, X)))) == {"value0": one}
    assert names(*stored(one, both(one, X))) == {"value0": one}  # channels of a pixel
    inner = both(one, X)
    assert names(*stored(inner, power(inner)))["value0"] == inner  # and what it has, with it
    found = names(*stored(both(one, inner), inner))
    assert found == {"value0": one, "value1": both(Var("value0", FLOAT32), X)}


@pytest.mark.parametrize("name", ["rsqrtf", "floorf", "sqrtf"])
def test_what_is_one_instruction_is_left_to_the_compiler(name: str) -> None:
    nodes = stored(both(power(X, name), power(X, name)))
    assert changed(*nodes) == nodes


def test_what_one_arm_computes_stays_there() -> None:
    twice = both(power(X), power(X))
    nodes = stored(Select(below(Var("y", FLOAT32)), twice, ZERO))
    assert changed(*nodes) == nodes
    assert names(*nodes, *stored(power(X))) == {"value0": power(X)}  # it is computed anyway


def test_guarded_loads_are_shared_by_stores_side_by_side() -> None:
    load = loaded("a")
    alone = stored(both(load, load))
    assert changed(*alone) == alone
    assert names(*stored(load, both(load, X))) == {"value0": load}


def test_what_is_stored_there_is_loaded_again() -> None:
    nodes = stored(both(loaded("out"), X), both(loaded("out"), X))
    assert changed(*nodes) == nodes
    sums = [both(e, loaded("a")) for e in (loaded("out"), loaded("out"))]
    assert names(*stored(*sums)) == {"value0": loaded("a")}


def test_a_name_is_none_that_is_there() -> None:
    nodes = stored(both(power(X), Var("value0", FLOAT32)), power(X))
    assert names(*nodes) == {"value1": power(X)}
    (local,) = changed(*nodes)
    assert isinstance(local, Local)
    stores = [node for node in local.body if isinstance(node, Store)]
    assert not any(isinstance(e, Select) for s in stores for e in walk_expr(s.value))


def test_more_than_there_are_registers_for_have_no_names() -> None:
    for count, named in ((MOST, True), (MOST + 1, False)):
        loads = [loaded(f"a{n}") for n in range(count)]
        nodes = stored(*loads, *loads)
        assert (changed(*nodes) != nodes) == named
