"""Kernels run with numbers: what comes out is what the interpreter says, and each mistake of the
seeded ones in what lies where is seen, in the numbers or as what nobody wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from changed_data import data_mutants
from corpus import CORPUS
from corpus_case import output_shapes, random_inputs
from emulation.agreement import assert_close
from verified import Verified

import halide_bridge as hb
from selector.eqsat.select import select
from selector.gpu.codegen.program import emit_kernels
from selector.gpu.ir.memory import Store
from selector.gpu.ir.nodes import Kernel
from selector.gpu.ir.text import print_kernels
from selector.ir.nodes import Var
from selector.ir.simplify import float_constant
from selector.ir.traverse import walk_expr
from selector.runtime.interpret import interpret_plan
from selector.runtime.plan import Plan
from selector.simulate import Simulated, simulate
from selector.targets import find_target

# A program of the corpus, its target, a size whose rows are chunks and one whose are not.
FORMS = (
    ("product_mma", "sm_80", (72, 104), (65, 67)),
    ("product_stages_3_75", "sm_80", (72, 104), (65, 67)),
    ("row_warp", "sm_80", (264, 5), (517, 3)),
    ("window_rows_in_turn", "sm_80", (136, 5), (131, 5)),
    ("table_96_by_32_stages_3", "sm_80", (64, 36), (61, 37)),
    ("loop_3_4", "sm_80", (200, 3), (131, 19)),
    ("ring_plain_2_64", "sm_90a", (528, 3), (531, 3)),
    ("boxes_nn", "sm_90a", (72, 104), (65, 67)),
    ("boxes_deep", "sm_90a", (72, 104), (65, 67)),
    ("groups_layout_nn_mapped", "sm_90a", (200, 136), (197, 131)),
    ("groups_narrowed_mapped", "sm_90a", (200, 136), (197, 131)),
    ("groups_self_fed_two_mapped", "sm_90a", (200, 136), (197, 131)),
    ("groups_teams_three_mapped", "sm_90a", (200, 136), (197, 131)),
    ("groups_cluster_lasting_mapped", "sm_90a", (200, 136), (197, 131)),
    ("groups_teams_cluster_mapped", "sm_90a", (200, 136), (197, 131)),
    ("group_windows_halves_of_edges_unaligned", "sm_90a", (1024, 48), (517, 19)),
)
NAMES = [form[0] for form in FORMS]
# Its rows begin inside of the image: the engine writes nowhere where threads have stored zeros.
UNNEEDED = {("ring_plain_2_64", "all like it are missing")}
EVERY = 9  # of so many mutants one is tried, but at night
CHUNK = 16  # elements to whose multiples rows are padded


@dataclass(frozen=True, slots=True)
class Call:
    """Arrays for a program, the shapes of its outputs, and what a device has for them."""

    inputs: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    options: dict[str, bool]


@dataclass(frozen=True, slots=True)
class Program:
    """The kernels of a program, its plan, and calls that come to all that differs in them."""

    kernels: tuple[Kernel, ...]
    plan: Plan
    module: Any
    calls: tuple[Call, ...]
    elements: dict[str, str]

    def run(self, call: Call, last: Kernel | None = None) -> Simulated:
        """With another kernel than its last one, perhaps."""
        kernels = self.kernels if last is None else (*self.kernels[:-1], last)
        return simulate(kernels, self.plan, call.inputs, call.shapes, **call.options)


def padded(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same with rows that begin at chunks."""
    columns = array.shape[-1]
    room = np.zeros((*array.shape[:-1], -(-columns // CHUNK) * CHUNK), array.dtype)
    room[..., :columns] = array
    return room[..., :columns]


def program(name: str) -> Program:
    _, target, whole, ragged = FORMS[NAMES.index(name)]
    case = CORPUS[name]
    lowered = hb.lower(case.build(), target=target, name=name)
    module = select(lowered, find_target(target), True, case.only).module
    kernels, plan = emit_kernels(module, find_target(target))

    def call(size: tuple[int, ...], *, chunks: bool, **options: bool) -> Call:
        arrays = random_inputs(case, lowered, size, 7)
        arrays = {n: padded(a) for n, a in arrays.items()} if chunks else arrays
        shapes = output_shapes(lowered, size)
        return Call({**arrays, **case.scalars}, shapes, options)

    calls = (
        call(whole, chunks=True),
        call(whole, chunks=True, maps=False),
        call(ragged, chunks=False),
        call(ragged, chunks=False, flags=False),
    )
    elements = {b.name: str(b.type) for b in lowered.buffers if b.name in calls[0].shapes}
    return Program(kernels, plan, module, calls, elements)


def differs(one: Simulated, other: Simulated) -> bool:
    return bool(one.faults) or any(
        not np.array_equal(x, other.outputs[name]) for name, x in one.outputs.items()
    )


def is_nobodys(node: Any, p: Program) -> bool:
    """Whether it is a zero that a thread keeps in place of an element that an argument has not: of
    a result that leaves for nowhere.
    """
    if not (isinstance(node, Store) and float_constant(node.value) == 0):
        return False
    names = {e.name.rstrip("_0123456789") for e in walk_expr(node.to) if isinstance(e, Var)}
    return not names.isdisjoint(p.calls[0].inputs)


def unseen(p: Program, every: int, seed: int) -> Iterator[str]:
    """Mistakes, of nodes that somebody comes to, that no call shows; each other one is an empty
    string.
    """
    right = [p.run(call) for call in p.calls]
    for call, found in zip(p.calls, right, strict=True):
        assert found.faults == ()
        wanted = interpret_plan(p.plan, p.module, (), call.inputs, call.shapes)
        assert_close({**found.outputs} | _named(wanted, found), found.outputs, p.elements, 1e-2)
    reached = frozenset[int]().union(*(found.reached for found in right))
    mutants = [
        m for m in data_mutants(p.kernels[-1])
        if id(m[0]) in reached and (p.plan.name, m[1]) not in UNNEEDED and not is_nobodys(m[0], p)
    ]  # fmt: skip
    for node, what, mutant in mutants[seed % min(every, len(mutants)) :: every]:
        calls = ((c, r) for c, r in zip(p.calls, right, strict=True) if id(node) in r.reached)
        seen = any(differs(p.run(c, mutant), r) for c, r in calls)
        yield "" if seen else f"{what}: {node}"


def _named(wanted: Any, found: Simulated) -> dict[str, Any]:
    return wanted if isinstance(wanted, dict) else dict.fromkeys(found.outputs, wanted)


SEEN = pytest.mark.verified(
    "selector/gpu", "selector/simulate.py", "selector/ir/interpreter.py",
    "tests/gpu/corpus_case.py", "tests/kernels/changed.py", "tests/kernels/changed_data.py",
)  # fmt: skip


@SEEN
@pytest.mark.parametrize("name", NAMES)
def test_mistakes_of_data_are_seen(name: str, verified: Verified) -> None:
    p = program(name)
    if verified(p.plan.source, print_kernels(p.kernels)):
        return
    tried = [*unseen(p, EVERY, len(name))]
    assert tried
    assert not [what for what in tried if what]


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_all_mistakes_of_data_are_seen(name: str) -> None:
    assert not [what for what in unseen(program(name), 1, 0) if what]
