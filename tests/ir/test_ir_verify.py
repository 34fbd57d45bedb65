"""The verifier accepts what is right and names what is wrong."""

from __future__ import annotations

import pytest

from selector.diagnostics import InternalError
from selector.ir.module import Module
from selector.ir.nodes import (
    Allocate,
    Block,
    BufferParam,
    Evaluate,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    LetStmt,
    Load,
    Memory,
    Ramp,
    Role,
    ScalarParam,
    Stmt,
    Store,
    Var,
)
from selector.ir.parser import parse_expr, parse_module
from selector.ir.remarks import Requirement
from selector.ir.types import BOOL, FLOAT16, FLOAT32
from selector.ir.verify import verify

ZERO = IntImm(0)
TYPES = {"I": FLOAT32, "acc": FLOAT32, "f": FLOAT32}
HEADER = """
module m
input I: float32 [(0, I.extent.0, 1), (0, 8, I.stride.1)]
output out: float32 [(0, out.extent.0, 1)]
scalar gain: float32
require I dim 1 from 0 to out.extent.0
"""


def module(body: Stmt) -> Module:
    base = parse_module(HEADER + "body {\n}")
    return Module(base.name, base.buffers, base.scalars, body, base.requirements)


def e(text: str) -> Expr:
    return parse_expr(text, TYPES)


def loop(kind: ForKind, body: Stmt, name: str = "x") -> Stmt:
    return For(name, ZERO, IntImm(4), kind, body)


def allocate(body: Stmt, name: str = "acc", *extents: Expr) -> Stmt:
    return Allocate(name, FLOAT32, extents or (IntImm(8),), Memory.REGISTER, body)


STORE = Store("out", ZERO, e("1.0f"))


@pytest.mark.parametrize(
    "body",
    [
        STORE,
        Block(()),
        loop(ForKind.GPU_BLOCK, loop(ForKind.GPU_THREAD, loop(ForKind.GPU_LANE, STORE), "y")),
        loop(ForKind.GPU_THREAD, loop(ForKind.GPU_THREAD, loop(ForKind.SERIAL, STORE))),
        allocate(Store("acc", e("ramp(0, 1, 8)"), e("I[ramp(I.stride.1, 1, 8)]")), "acc"),
        Block((allocate(Block(())), allocate(Block(())))),
        LetStmt("t", e("1.0f"), Store("out", ZERO, Var("t", FLOAT32))),
        Store("out", e("out.extent.0 - 1"), e("(let q = I[0] in q*q)")),
        Store("out", ZERO, Var("gain", FLOAT32), e("1 < 2")),
    ],
)
def test_right(body: Stmt) -> None:
    verify(module(body))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (Store("out", Var("z"), e("1.0f")), "the unknown variable `z`"),
        (Store("nowhere", ZERO, e("1.0f")), "a store to the unknown buffer `nowhere`"),
        (Store("I", ZERO, e("1.0f")), "a store to the input `I`"),
        (Store("out", ZERO, e("1")), "`out` holds float32, the value is int32"),
        (Store("out", ZERO, Load(FLOAT16, "I", ZERO)), "`I` holds float32, the load is float16"),
        (Store("out", ZERO, Load(FLOAT32, "J", ZERO)), "a load from the unknown buffer `J`"),
        (Store("out", e("1.0f"), e("1.0f")), "an index of type float32"),
        (Store("out", ZERO, Load(FLOAT32, "I", e("1.0f"))), "an index of type float32"),
        (Store("out", ZERO, Load(FLOAT32, "I", Var("z"))), "the unknown variable `z`"),
        (Store("out", ZERO, Var("gain")), "`gain` is float32, used as int32"),
        (Evaluate(Ramp(ZERO, IntImm(1 << 31), 2)), "2147483648 is no literal of int32"),
        (IfThenElse(ZERO, STORE), "a condition of type int32"),
        (
            loop(ForKind.GPU_THREAD, loop(ForKind.GPU_BLOCK, STORE)),
            "a gpu_block loop inside a gpu_thread",
        ),
        (
            loop(ForKind.GPU_LANE, loop(ForKind.GPU_THREAD, STORE)),
            "a gpu_thread loop inside a gpu_lane",
        ),
        (
            For("x", e("1.0f"), ZERO, ForKind.SERIAL, STORE),
            "the minimum of `x` is float32, not int32",
        ),
        (For("x", ZERO, Var("x"), ForKind.SERIAL, STORE), "the unknown variable `x`"),
        (allocate(allocate(STORE)), "`acc` is allocated where that name is taken"),
        (allocate(STORE, "out"), "`out` is allocated where that name is taken"),
        (allocate(STORE, "acc", ZERO), "`acc` has an extent of 0"),
        (allocate(STORE, "acc", e("2.0f")), "an extent of `acc` is float32"),
        (Allocate("a", FLOAT32, (), Memory.HEAP, STORE, 0), "an allocation with 0 stages"),
        (Allocate("a", FLOAT32.with_lanes(2), (), Memory.HEAP, STORE), "an allocation of vectors"),
        (Block((allocate(Block(())), Store("acc", ZERO, e("1.0f")))), "unknown buffer `acc`"),
        (Block((loop(ForKind.SERIAL, STORE), Evaluate(Var("x")))), "the unknown variable `x`"),
    ],
)
def test_wrong(body: Stmt, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        verify(module(body))


def test_parameters() -> None:
    base = module(STORE)
    twice = Module("m", (*base.buffers, base.buffers[0]), (), STORE)
    with pytest.raises(InternalError, match="two parameters named `I`"):
        verify(twice)
    vector = BufferParam("v", FLOAT32.with_lanes(4), (), Role.INPUT)
    with pytest.raises(InternalError, match="the parameter `v` is a vector"):
        verify(Module("m", (vector,), (), Block(())))
    with pytest.raises(InternalError, match="two parameters named `I`"):
        verify(Module("m", base.buffers, (ScalarParam("I", BOOL),), STORE))
    wrong = Requirement("I", 2, ZERO, ZERO)
    with pytest.raises(InternalError, match="dimension 2 of `I`, which has none"):
        verify(Module("m", base.buffers, base.scalars, STORE, (wrong,)))
