"""Each element of a block has its own registers and place; the rest is made legal once."""

from __future__ import annotations

import pytest

from selector.gpu.codegen.arrangement import Arrangement
from selector.gpu.codegen.context import HostValues, Indices, KernelContext
from selector.gpu.codegen.epilogues.element_values import LaneNumber
from selector.gpu.codegen.epilogues.elements import (
    COLUMN,
    ROW,
    AccumulatorElement,
    ElementScalar,
    ElementValues,
)
from selector.gpu.codegen.epilogues.regions import Accumulator, Region, RowRegisters
from selector.gpu.codegen.epilogues.row_registers import RowElement
from selector.gpu.codegen.scalars.names import Names
from selector.gpu.codegen.shared_memory import Layouts, SharedMemory
from selector.gpu.cuda.expressions import spell
from selector.ir.nodes import Binary, BinaryOp, Call, Cast, Expr, FloatImm, Var
from selector.ir.types import BFLOAT16, FLOAT16, FLOAT32, Type
from selector.targets import find_target


def scalar(*, swapped: bool = False, half: bool = False, summed: bool = False) -> ElementScalar:
    target, layouts = find_target("sm_90a"), Layouts()
    shared = SharedMemory("k", target, layouts)
    context = KernelContext("k", target, Names(), Arrangement(), Indices(), HostValues(), shared)
    context.registers.accumulators["acc"] = Accumulator("acc", 4, {}, half)
    context.registers.rows["most"] = RowRegisters("most", 16)
    return ElementScalar(context, Region(0, 32, 32, swapped), summed=summed)


def text(at: ElementScalar, e: Expr) -> str:
    return spell(at.value(e))


def product(a: Expr, b: Expr) -> Expr:
    return Binary(BinaryOp.MUL, a, b)


@pytest.mark.parametrize(
    ("swapped", "places"),
    [(False, ["g * (q * 2)", "(g + 24) * (q * 2 + 9)"]),
     (True, ["q * 2 * g", "(q * 2 + 9) * (g + 24)"])],
)  # fmt: skip
def test_coordinates(swapped: bool, places: list[str]) -> None:
    at = scalar(swapped=swapped)
    value = product(ROW, COLUMN)
    assert [text(at.at(e), value) for e in ((0, 0, 0), (1, 1, 3))] == places


def test_registers() -> None:
    at = scalar()
    acc = at.leaf(AccumulatorElement("acc", FLOAT32), FLOAT32)
    assert [text(at.at(e), acc) for e in ((0, 1, 2), (1, 0, 1))] == ["acc[1][2]", "acc[4][1]"]
    at = scalar(half=True)
    assert text(at.at((0, 1, 3)), at.leaf(AccumulatorElement("acc", FLOAT16), FLOAT16)) == (
        "half_of(acc[1][1], 1)"
    )


def test_rows_and_numbers() -> None:
    at = scalar()
    row = at.leaf(RowElement("most", 0, FLOAT32), FLOAT32)
    assert [text(at.at(e), row) for e in ((0, 3, 1), (0, 0, 2), (1, 2, 3))] == [
        "most[0]", "most[1]", "most[3]",
    ]  # fmt: skip
    number = at.leaf(LaneNumber("place", 1, -1, ""), FLOAT32)
    times = at.leaf(LaneNumber("place", 0, 2, "step"), FLOAT32)
    assert [text(at.at(e), number) for e in ((0, 0, 0), (0, 1, 1))] == ["place", "place + -9.0f"]
    assert text(at.at((0, 1, 1)), times) == "place + step * 18.0f"


def test_equal_leaves_are_one_variable() -> None:
    at = scalar()
    first, again = (at.leaf(AccumulatorElement("acc", FLOAT32), FLOAT32) for _ in range(2))
    assert first == again
    assert at.leaf(RowElement("most", 0, FLOAT32), FLOAT32) != at.leaf(
        RowElement("most", 16, FLOAT32), FLOAT32
    )


def test_what_elements_have_alike_is_made_legal_once(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []
    get = Names.get

    def counted(self: Names, name: str) -> str:
        printed.append(name)
        return get(self, name)

    monkeypatch.setattr(Names, "get", counted)
    at = scalar()
    alike = product(Var("left", FLOAT32), Var("right", FLOAT32))
    value = product(at.leaf(AccumulatorElement("acc", FLOAT32), FLOAT32), alike)
    values = [at.at((0, 0, e)).value(value) for e in range(4)]
    assert [spell(v) for v in values] == [f"acc[0][{e}] * (left * right)" for e in range(4)]
    products = [v.b for v in values if isinstance(v, Binary)]
    assert all(p is products[0] for p in products)
    assert printed == ["left", "right"]


def test_zeros_keep_their_sign() -> None:
    at = scalar()
    zero, minus_zero = FloatImm(0.0, FLOAT32), FloatImm(-0.0, FLOAT32)
    x = Var("input", FLOAT32)
    assert text(at, product(x, zero)) == "input * 0.0f"
    assert text(at, product(x, minus_zero)) == "input * -0.0f"


@pytest.mark.parametrize(
    ("name", "rounded", "pair"),
    [
        ("exp_f32", FLOAT16, "round_pair(exp_rounded(acc[0][2]), exp_rounded(acc[0][3]))"),
        ("exp_f32", BFLOAT16, "round_pair_bf16(exp_rounded(acc[0][2]), exp_rounded(acc[0][3]))"),
        ("sqrt_f32", FLOAT16, "pack16(to_f16(sqrtf(acc[0][2])), to_f16(sqrtf(acc[0][3])))"),
    ],
)
def test_a_function_is_as_precise_as_what_it_is_rounded_to(
    name: str, rounded: Type, pair: str
) -> None:
    at = scalar()
    value = Call(FLOAT32, name, (at.leaf(AccumulatorElement("acc", FLOAT32), FLOAT32),))
    found = ElementValues(Cast(rounded, value), None, at).pair((0, 0, 2))
    assert spell(found) == pair


def test_functions_of_f16_are_rounded_too() -> None:
    at = scalar(half=True)
    value = Call(FLOAT16, "exp_f16", (at.leaf(AccumulatorElement("acc", FLOAT16), FLOAT16),))
    first, second = (f"exp_rounded(to_f32(half_of(acc[0][1], {e})))" for e in (0, 1))
    found = ElementValues(value, None, at).pair((0, 0, 2))
    assert spell(found) == f"round_pair({first}, {second})"


@pytest.mark.parametrize(("summed", "name"), [(True, "exp2_rounded"), (False, "exp2f")])
def test_a_term_is_as_precise_as_its_sum(summed: bool, name: str) -> None:
    at = scalar(summed=summed)
    acc = at.leaf(AccumulatorElement("acc", FLOAT32), FLOAT32)
    power = Call(FLOAT32, "pow_f32", (FloatImm(2.0, FLOAT32), acc))
    assert text(at.at((0, 0, 1)), power) == f"{name}(acc[0][1])"
    exponential = Call(FLOAT32, "exp_f32", (acc,))
    assert text(at.at((0, 0, 1)), exponential) == "expf(acc[0][1])"
