"""How many blocks of threads of their own the compiler is told to make room for
(``passes.budget_registers``).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from selector.gpu.ir.expressions import element, pointer
from selector.gpu.ir.lane_maps import ACCUMULATOR
from selector.gpu.ir.memory import Array, Store
from selector.gpu.ir.nodes import For, If, Kernel, Let, Node
from selector.gpu.ir.parameters import Parameter
from selector.gpu.ir.products import Fragment
from selector.gpu.passes.budget_registers import budget_registers
from selector.gpu.passes.start_early import crowd
from selector.ir.nodes import Binary, BinaryOp, Compare, CompareOp, Expr, IntImm, Select, Var
from selector.ir.types import FLOAT32
from selector.targets import TARGETS, Multiprocessor

HOPPER, ADA = (TARGETS[name].multiprocessor for name in ("sm_90a", "sm_89"))
WHOLE = Compare(CompareOp.GE, Var("n"), IntImm(0))
OWN, READ = (element(FLOAT32, pointer(name), 0) for name in ("a", "out"))


def holding(words: int, *nodes: Node, threads: int = 256) -> Kernel:
    """A thread has so many words in arrays, two branches one of two arrays."""
    parts = [(Array("b", "float", words - 2),), (Array("c", "u8", 4 * (words - 2)),)]
    body = (Array("a", "f16", 4), If(WHOLE, *parts), *nodes)
    return Kernel("k", threads, 1, (Parameter("write", FLOAT32, "out"),), (), body)


def told(given: Kernel, multiprocessor: Multiprocessor | None = HOPPER) -> int:
    return budget_registers(
        given, resident=1, shared_memory=227 << 10, multiprocessor=multiprocessor
    ).resident


def times(count: Expr, value: Expr) -> For:
    return For("plain", "i", IntImm(0), count, None, (Store(OWN, value),))


@pytest.mark.parametrize(
    ("words", "blocks"),
    [(3, 8), (20, 8), (21, 0), (24, 0), (25, 6), (36, 6), (37, 0), (49, 4), (72, 4), (73, 0)],
)
def test_the_words_that_threads_hold_say_it(words: int, blocks: int) -> None:
    assert told(holding(words)) == blocks


def test_blocks_that_are_told_fill_a_multiprocessor() -> None:
    assert told(holding(8, threads=64)) == 32
    assert told(holding(8, threads=1024)) == 2
    assert told(holding(50, threads=1024)) == 0  # one alone is what there is anyway
    assert told(holding(8, threads=32)) == 0
    assert told(holding(8), ADA) == told(holding(30), ADA) == 6
    assert told(holding(8), None) == 0


def test_what_shares_memory_or_multiplies_is_told_nothing() -> None:
    assert told(replace(holding(8), shared=1024)) == 0
    assert told(holding(8, Fragment("f", "float", (8,), ACCUMULATOR))) == 0


def test_elements_that_a_thread_computes_with_as_it_loads_them_are_counted() -> None:
    added = Binary(BinaryOp.ADD, OWN, READ)
    assert told(holding(8, Store(OWN, added))) == 8
    assert told(holding(8, times(IntImm(4), added))) == 8
    assert told(holding(8, times(IntImm(20), added))) == 0
    assert told(holding(8, Let("float", ("v",), (added,)))) == 8
    assert told(holding(13, times(Var("n"), added))) == 0  # 8 for an unknown number
    assert told(holding(30, times(IntImm(4), added))) == 6
    assert told(holding(30, times(IntImm(20), added))) == 0


@pytest.mark.parametrize("value", [READ, Select(WHOLE, READ, OWN)])
def test_elements_that_are_loaded_into_arrays_are_not(value: Expr) -> None:
    assert told(holding(8, times(IntImm(20), value))) == 8


def test_a_number_that_nobody_asked_for_has_no_say_in_what_starts_early() -> None:
    """It is for registers: a block that takes all memory finds as much beside it as before."""
    earlier, later = holding(8), replace(holding(8), shared=226 << 10)
    assert HOPPER is not None
    given = replace(earlier, resident=told(earlier))
    assert given.resident == 8
    assert crowd(given, later, HOPPER) == crowd(earlier, later, HOPPER) == 0
    assert crowd(given, later, HOPPER, asked=8) == 8


def test_no_more_blocks_are_asked_for_than_threads_fit() -> None:
    for threads, blocks in ((32, 32), (256, 8), (1024, 2)):
        kernel = holding(8, threads=threads)
        assert budget_registers(kernel, resident=32, shared_memory=227 << 10).resident == blocks
