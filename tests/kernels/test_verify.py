"""Kernels whose shared memory lies wrong are told, those of the corpus in ``emit/test_corpus``."""

from __future__ import annotations

import pytest

from selector.gpu.ir.expressions import times
from selector.gpu.ir.layouts import parse_layout
from selector.gpu.ir.nodes import EngineCopy, EngineStore, Kernel, Memory, Node, View
from selector.gpu.ir.verify import memory_faults
from selector.ir.nodes import IntImm


def staged(layout: str, *more: Node, offset: int = 0, bytes_: int = 16384) -> tuple[str, ...]:
    memory = Memory("a", "f16", offset, 3, bytes_, (128, 64), parse_layout(layout))
    return memory_faults(Kernel("k", "", 32, 1, (), (), (memory, *more)))


def engine(view: View) -> Node:
    return EngineCopy(view, "map", ("x", "y"), IntImm(0), 8192)


SWIZZLED = "swizzle(128) . strided(128, 2)"


def test_memory_that_lies_right_has_no_faults() -> None:
    slot = times("slot", 8192)
    assert staged(SWIZZLED, engine(View("a", slot, IntImm(8192)))) == ()
    assert staged(SWIZZLED, EngineStore(View("a"), "map", ("x",))) == ()
    assert staged("strided(2) . dealt(64, 2, 8) . strided(64, 1)", offset=48) == ()


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (staged("strided(120, 2)"), "`a`: two elements share a byte by strided(120, 2)"),
        (staged("strided(136, 2)"), "`a`: an element lies at byte 17398 of 16384"),
        (staged(SWIZZLED, offset=512), "no multiples of 1024"),
        (staged(SWIZZLED, bytes_=16384 + 128), "no multiples of 1024"),
        (staged(SWIZZLED, engine(View("b"))), "`b` is no memory"),
        (staged(SWIZZLED, engine(View("a", None, IntImm(8320)))), "a box of 8192 bytes reaches"),
        (staged(SWIZZLED, EngineStore(View("box"), "map", ("x",))), "`box` is no memory"),
    ],
)
def test_memory_that_lies_wrong_is_told(found: tuple[str, ...], fault: str) -> None:
    (told,) = found
    assert fault in told
