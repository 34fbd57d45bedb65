"""Vectors of a thread are computed where they are read."""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED, Verified, text_of

import halide_bridge as hb
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Block,
    Broadcast,
    Expr,
    FloatImm,
    For,
    ForKind,
    IntImm,
    Load,
    Memory,
    Ramp,
    Stmt,
    Store,
    Var,
)
from selector.ir.traverse import walk_stmt
from selector.ir.types import FLOAT32
from selector.lowering.forwarded import forward

F4 = FLOAT32.with_lanes(4)
OWN, HERE = Ramp(IntImm(0), IntImm(1), 4), Ramp(Var("i"), IntImm(1), 4)
ZEROS = Broadcast(FloatImm(0.0, FLOAT32), 4)


def plus(a: Expr, b: Expr) -> Expr:
    return Binary(BinaryOp.ADD, a, b)


def thread(*stmts: Stmt, memory: Memory = Memory.AUTO) -> Stmt:
    body = Allocate("s", F4, (IntImm(4),), memory, Block(stmts))
    return For("i", IntImm(0), IntImm(8), ForKind.GPU_THREAD, body)


SUM = Load(F4, "s", OWN)
BEGIN = Store("s", OWN, ZEROS)
MORE = Store("s", OWN, plus(SUM, Load(F4, "a", HERE)))
END = Store("out", HERE, SUM)


def test_a_sum_stands_where_it_is_read() -> None:
    found = forward(thread(BEGIN, MORE, MORE, END))
    (store,) = (s for s in walk_stmt(found) if isinstance(s, Store))
    a = Load(F4, "a", HERE)
    assert store == Store("out", HERE, plus(plus(ZEROS, a), a))


@pytest.mark.parametrize(
    "s",
    [
        thread(END, BEGIN),
        thread(BEGIN, Store("out", HERE, Load(F4, "s", Ramp(IntImm(1), IntImm(1), 4)))),
        thread(BEGIN, Store("s", Ramp(IntImm(3), IntImm(-1), 4), SUM), END),
        thread(BEGIN, MORE, Store("a", HERE, ZEROS), END),
        thread(BEGIN, For("k", IntImm(0), IntImm(3), ForKind.SERIAL, MORE), END),
        thread(BEGIN, MORE, END, memory=Memory.GPU_SHARED),
        thread(BEGIN, *[MORE] * 500, END),
    ],
)
def test_what_is_read_otherwise_stays(s: Stmt) -> None:
    assert forward(s) == s


@EMULATED
@pytest.mark.parametrize("shape", [(3, 7), (20, 260)])
def test_short_sums_of_neighbours_share_what_they_read(
    shape: tuple[int, int], verified: Verified
) -> None:
    a, f, out = hl.ImageParam(hl.Float(32), 2, "a"), hl.Func("f"), hl.Func("out")
    x, y, r = hl.Var("x"), hl.Var("y"), hl.RDom([(0, 3), (0, 3)], "r")
    f[x, y] = hl.sqrt(a[x, y] + 1)
    f.compute_root().gpu_tile(x, y, hl.Var("u"), hl.Var("v"), 16, 8)
    here = f[x + r.x, y + r.y]
    out[x, y] = hl.sum(here) * hl.sum(here * here)
    schedule = hb.autoschedule(out, target="sm_90a")
    assert "4 neighbours each" in schedule.report
    kernel = hb.compile(out, target="sm_90a")
    assert not any("sum[" in line for line in kernel.source.splitlines())
    data = np.random.default_rng(3).random((shape[0] + 2, shape[1] + 2)).astype(np.float32)
    v = np.lib.stride_tricks.sliding_window_view(np.sqrt(data + 1), (3, 3))
    wanted = v.sum((2, 3)) * (v * v).sum((2, 3))
    assert np.allclose(kernel.interpret(a=data, sizes=shape), wanted, rtol=1e-4)
    if not verified(text_of(kernel), repr(shape)):
        assert np.allclose(check(kernel, a=data, sizes=shape), wanted, rtol=1e-4)
