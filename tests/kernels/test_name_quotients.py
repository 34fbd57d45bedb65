"""What many stores multiply by is divided once, where nothing changes its operands meanwhile."""

from __future__ import annotations

import pytest

from selector.gpu.ir.expressions import element, number, pointer
from selector.gpu.ir.layouts import Strided
from selector.gpu.ir.memory import Store, StorePair
from selector.gpu.ir.nodes import Body, If, Kernel, Let, Local, Node, Sync
from selector.gpu.ir.products import Fragment
from selector.gpu.ir.views import View
from selector.gpu.passes.name_quotients import OFTEN, name_quotients
from selector.ir.nodes import Binary, BinaryOp, Expr, FloatImm, Var
from selector.ir.types import BOOL, FLOAT32

TOTAL, MIXED = (Fragment(name, "float", (2,), Strided(())) for name in ("total", "mixed"))
ONE, RAGGED = FloatImm(1.0, FLOAT32), Var("ragged", BOOL)


def held(name: str, index: int) -> Expr:
    return element(FLOAT32, pointer(name), number(index))


def quotient(of: Expr, numerator: Expr = ONE) -> Expr:
    return Binary(BinaryOp.DIV, numerator, of)


def stores(factor: Expr, count: int = OFTEN, to: str = "p") -> Body:
    value = Binary(BinaryOp.MUL, factor, held("mixed", 0))
    return tuple(StorePair(View(to, index=number(n)), (value, value)) for n in range(count))


def kernel(*body: Node) -> Kernel:
    return Kernel("k", 32, 1, (), (), (TOTAL, MIXED, *body))


def test_a_quotient_of_many_stores_stands_before_their_tests() -> None:
    one = quotient(held("total", 0))
    guarded = tuple(If(RAGGED, stores(one, 1)) for _ in range(2))
    tested = If(RAGGED, (Local(stores(one)),), guarded)
    name = Var("quotient0", FLOAT32)
    named = tuple(If(RAGGED, stores(name, 1)) for _ in range(2))
    assert name_quotients(kernel(tested)).body[2:] == (
        Let("float", ("quotient0",), (one,)),
        If(RAGGED, (Local(stores(name)),), named),
    )


@pytest.mark.parametrize(
    "body",
    [
        stores(quotient(held("total", 0)), OFTEN - 1),  # it is an element's own
        stores(quotient(Var("x", FLOAT32))),  # who declares it?
        stores(quotient(held("p", 1))),  # it may be stored meanwhile
        stores(quotient(held("total", 0), FloatImm(0.0, FLOAT32))),  # -0 is equal, and another
    ],
)
def test_others_stay(body: Body) -> None:
    before = kernel(*body)
    assert name_quotients(before) is before


def test_what_changes_an_operand_parts_the_stores() -> None:
    one = quotient(held("total", 0))
    half = stores(one, OFTEN // 2)
    change = Store(held("total", 0), ONE)
    assert name_quotients(kernel(*half, change, *half)).body[2:] == (*half, change, *half)
    twice = name_quotients(kernel(*stores(one), change, *stores(one))).body
    lets = [(n, x.names) for n, x in enumerate(twice) if isinstance(x, Let)]
    assert lets == [(2, ("quotient0",)), (4 + OFTEN, ("quotient1",))]


def test_it_is_not_divided_before_threads_have_met() -> None:
    one = quotient(held("total", 0))
    after = name_quotients(kernel(Sync("block"), *stores(one))).body
    assert [type(x) for x in after[2:4]] == [Sync, Let]


def test_a_name_is_none_that_the_kernel_has() -> None:
    one = Binary(BinaryOp.MUL, quotient(held("total", 0)), Var("quotient0", FLOAT32))
    assert (
        Let("float", ("quotient1",), (quotient(held("total", 0)),))
        in name_quotients(kernel(*stores(one))).body
    )
