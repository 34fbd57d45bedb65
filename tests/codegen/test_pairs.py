"""What is computed in f16 behind an accumulator is computed on pairs."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("halide")

import halide as hl
from corpus_registers import chain

import halide_bridge as hb
from selector.gpu.codegen.epilogues.pairs import pair_of
from selector.gpu.cuda.expressions import spell
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Call,
    Cast,
    Compare,
    CompareOp,
    Expr,
    FloatImm,
    Select,
    Var,
)
from selector.ir.types import BOOL, FLOAT16, FLOAT32, UINT32

X, Y = Var("x", FLOAT16), Var("y", FLOAT16)
ZERO, MINUS_ZERO = FloatImm(0.0, FLOAT16), FloatImm(-0.0, FLOAT16)


def text(e: Expr) -> str | None:
    def packed(x: Expr) -> Expr:
        halves = (Var(f"{x.name}{n}", FLOAT16) for n in (0, 1)) if isinstance(x, Var) else ()
        return Call(UINT32, "pack16", tuple(halves))

    found = pair_of(e, packed)
    return None if found is None else spell(found)


def test_operators() -> None:
    assert text(Binary(BinaryOp.ADD, X, Y)) == "pair_add(pack16(x0, x1), pack16(y0, y1))"
    assert text(Call(FLOAT16, "abs", (X,))) == "pair_abs(pack16(x0, x1))"
    product = Binary(BinaryOp.MUL, X, Binary(BinaryOp.MAX, Y, X))
    assert text(product) == "pair_mul(pack16(x0, x1), pair_max(pack16(y0, y1), pack16(x0, x1)))"


def test_selects() -> None:
    less = Compare(CompareOp.LT, X, Y)
    mask = "pair_lt(pack16(x0, x1), pack16(y0, y1))"
    assert text(Select(less, X, ZERO)) == f"{mask} & pack16(x0, x1)"
    assert text(Select(less, ZERO, X)) == f"~{mask} & pack16(x0, x1)"
    both = f"pair_select({mask}, pack16(x0, x1), pack16(y0, y1))"
    assert text(Select(less, X, Y)) == both
    assert str(text(Select(less, X, MINUS_ZERO))).startswith("pair_select")


@pytest.mark.parametrize(
    "e",
    [
        X,
        Cast(FLOAT16, Binary(BinaryOp.ADD, Var("a", FLOAT32), Var("b", FLOAT32))),
        Binary(BinaryOp.DIV, X, Y),
        Select(Compare(CompareOp.LT, Var("a", FLOAT32), Var("b", FLOAT32)), X, Y),
        Select(Compare(CompareOp.NE, X, Y), X, Y),
        Select(Var("flag", BOOL), X, Y),
    ],
)
def test_what_is_not_of_f16_stays_scalar(e: Expr) -> None:
    assert text(e) is None


def test_a_read_out_in_f16() -> None:
    source = hb.compile(chain("a", half=True), target="sm_90a").source
    kept = [line for line in source.splitlines() if re.match(r"\s*kept\[\d+\] = ", line)]
    assert len(kept) == 16
    assert all("pair_mul(pair_max(" in line for line in kept)
    staged = hb.compile(chain("a", hl.MemoryType.GPUShared, half=True), target="sm_90a").source
    assert staged.count("*(u32*)(") == 16
