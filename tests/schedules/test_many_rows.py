"""Many rows or products, told when the schedule is made: their blocks are numbered in line, since y
and z of a grid have room for 65,535 each.
"""

from __future__ import annotations

import re
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED

import halide_bridge as hb
from selector.ir.nodes import IntImm

pytestmark = EMULATED

F16, F32 = hl.Float(16), hl.Float(32)
i, j, b = (hl.Var(v) for v in "ijb")
LINE = (IntImm(1), IntImm(1))
Array = np.ndarray[Any, Any]


def products(kind: Any) -> hl.Func:
    a, w = hl.ImageParam(kind, 3, "a"), hl.ImageParam(kind, 3, "w")
    total, out, r = hl.Func("total"), hl.Func("out"), hl.RDom([(0, a.width())], "r")
    total[j, i, b] += hl.f32(a[r, i, b]) * hl.f32(w[j, r, b])
    out[j, i, b] = hl.cast(kind, total[j, i, b])
    return out


def softmax() -> hl.Func:
    a = hl.ImageParam(F32, 3, "a")
    peak, e, total, out = (hl.Func(v) for v in ("peak", "e", "total", "out"))
    r = hl.RDom([(0, a.width())], "r")
    peak[i, b] = hl.f32(-1e30)
    peak[i, b] = hl.max(peak[i, b], a[r, i, b])
    e[j, i, b] = hl.exp(a[j, i, b] - peak[i, b])
    total[i, b] += e[r, i, b]
    out[j, i, b] = e[j, i, b] / total[i, b]
    return out


def sizes(count: int, *, second: bool) -> dict[str, tuple[int, ...]]:
    found = {"a": (count, 16, 16), "out": (count, 16, 16)}
    return found | ({"w": (count, 16, 16)} if second else {})


CASES = {"halves": (lambda: products(F16), True), "floats": (lambda: products(F32), True),
         "rows": (softmax, False)}  # fmt: skip


@pytest.mark.parametrize("count", [60_000, 70_000])
@pytest.mark.parametrize("name", CASES)
def test_blocks_are_in_line_where_there_are_too_many(name: str, count: int) -> None:
    build, second = CASES[name]
    out = build()
    schedule = hb.autoschedule(out, target="sm_90a", sizes=sizes(count, second=second))
    in_line = count > 65535
    assert bool(re.search(r"hb\.in_line\(", schedule.source)) == in_line
    kernel = hb.compile(out, target="sm_90a")
    assert (kernel.plan.launches[-1].grid[1:] == LINE) == in_line
    random = np.random.default_rng(5)
    kind = np.float16 if name == "halves" else np.float32
    data = {v: random.standard_normal((9, 16, 16)).astype(kind) for v in ("a", "w")[: 1 + second]}
    found = check(kernel, sizes=(9, 16, 16), **data).astype(float)
    assert np.abs(found - truth(data)).max() <= (2e-2 if name == "halves" else 1e-4)


def truth(data: dict[str, Array]) -> Array:
    a = data["a"].astype(float)
    if "w" in data:
        return a @ data["w"].astype(float)
    e = np.exp(a - a.max(2, keepdims=True))
    return e / e.sum(2, keepdims=True)
