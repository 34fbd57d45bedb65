"""Clusters of blocks that have a row each: blocks that do not tell each other what they have found
are noticed.
"""

from __future__ import annotations

from typing import Any

import halide as hl
import numpy as np
from changed_data import data_mutants

import halide_bridge as hb
from selector.gpu.codegen.program import emit_kernels
from selector.gpu.ir.memory import StoreThere
from selector.gpu.ir.nodes import Kernel, Sync, walk
from selector.runtime.plan import Plan
from selector.simulate import simulate
from selector.targets import find_target

SHAPE = (2, 9001)
LONG = (8, 1 << 17)


def log_softmax() -> tuple[tuple[Kernel, ...], Plan]:
    a, out, total = hl.ImageParam(hl.Float(32), 2, "a"), hl.Func("out"), hl.Func("total")
    x, y, k = hl.Var("x"), hl.Var("y"), hl.RDom([(0, a.width())])
    total[y] += hl.exp(a[k, y])
    out[x, y] = a[x, y] - hl.log(total[y])
    sizes = {"a": LONG, "out": LONG}
    kernel: Any = hb.compile(out, target="sm_90a", schedule="auto", sizes=sizes)
    return emit_kernels(kernel.module, find_target("sm_90a"))


def right(kernels: tuple[Kernel, ...], plan: Plan) -> bool:
    data = np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)
    found = simulate(kernels, plan, {"a": data}, SHAPE)
    (values,) = found.outputs.values()
    wanted = data - np.log(np.exp(data.astype(float)).sum(1, keepdims=True))
    return not found.faults and bool(np.allclose(values, wanted, rtol=1e-5, atol=1e-5))


def test_each_block_has_to_tell_all_others() -> None:
    kernels, plan = log_softmax()
    (kernel,) = kernels
    assert kernel.cluster == 8
    scopes = [node.scope for node in walk(kernel.body) if isinstance(node, Sync)]
    assert scopes.count("cluster") == scopes.count("cluster_data") == 2  # of short rows, of any
    assert right(kernels, plan)
    wrong = [(what, k) for node, what, k in data_mutants(kernel) if isinstance(node, StoreThere)]
    assert len(wrong) == 4
    seen = [not right((k,), plan) for _, k in wrong]
    assert seen == [False, False, True, True]  # rows of 9001 elements go by the second
