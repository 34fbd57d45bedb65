"""Kernels whose shared memory lies wrong are told; of the corpus in ``codegen/test_corpus``."""

from __future__ import annotations

import pytest

from selector.gpu.ir.expressions import address, number, place, plus, remainder, times
from selector.gpu.ir.layouts import parse_layout
from selector.gpu.ir.memory import CopyAsync, EngineCopy, EngineStore, Map, Point
from selector.gpu.ir.nodes import Kernel, Let, Memory, Node
from selector.gpu.ir.verify import memory_faults
from selector.gpu.ir.views import View
from selector.ir.nodes import Expr, IntImm, Var
from selector.ir.types import FLOAT16

EXTENTS, STRIDES = (Var("A.extent.0"), Var("A.extent.1")), (Var("A.stride.1"),)
AT = (number("x"), number("y"))


def staged(
    layout: str,
    *more: Node,
    offset: int = 0,
    bytes_: int = 16384,
    box: tuple[int, ...] = (64, 64),
) -> tuple[str, ...]:
    taken = Map("map", "A", FLOAT16, EXTENTS, STRIDES, box)
    memory = Memory("a", "f16", offset, 3, bytes_, (128, 64), parse_layout(layout))
    return memory_faults(Kernel("k", 32, 1, (), (taken,), (memory, *more)))


def engine(view: View, bytes_: int = 8192, name: str = "map") -> Node:
    return EngineCopy(view, name, AT, IntImm(0), bytes_)


FROM = number("from")
X4, X8 = (Let("int", ("x",), (times("i", n),)) for n in (4, 8))


def chunk(index: Expr) -> tuple[Node, ...]:
    """One that goes to an element of a memory."""
    to = place("panel_index", 64, 128, 2, 128, index=index)
    return Point("to", "f16", View("a", index=to)), CopyAsync(address("to"), FROM, "past")


def laid(row: int) -> tuple[Node, ...]:
    """A pointer into panels of rows of so many bytes."""
    index = place("panel_index", 64, 128, 2, row, index=number("x"))
    return (Point("to", "f16", View("a", index=index)),)


SWIZZLED = "swizzle(128) . strided(128, 2)"
SLOT = View("a", times("slot", 8192), IntImm(8192))


def test_memory_that_lies_right_has_no_faults() -> None:
    assert staged(SWIZZLED, engine(SLOT)) == ()
    assert staged(SWIZZLED, EngineStore(View("a"), "map", AT)) == ()
    assert staged(SWIZZLED, X8, *chunk(number("x"))) == ()
    assert staged(SWIZZLED, *chunk(remainder(times("x", 8), 24))) == ()
    assert staged("strided(2) . dealt(64, 2, 8) . strided(64, 1)", offset=48) == ()


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (staged("strided(120, 2)"), "`a`: two elements share a byte by strided(120, 2)"),
        (staged("strided(136, 2)"), "`a`: an element lies at byte 17398 of 16384"),
        (staged(SWIZZLED, offset=512), "no multiples of 1024"),
        (staged(SWIZZLED, bytes_=16384 + 128), "no multiples of 1024"),
        (staged(SWIZZLED, engine(View("b"))), "`b` is no memory"),
        (staged(SWIZZLED, engine(View("a", None, IntImm(9216)))), "a box of 8192 bytes reaches"),
        (staged(SWIZZLED, EngineStore(View("box"), "map", AT)), "`box` is no memory"),
        (staged(SWIZZLED, engine(SLOT, name="other")), "`other` is no map"),
        (staged(SWIZZLED, engine(SLOT, 4096)), "4096 bytes are awaited of a box of 8192"),
        (staged(SWIZZLED, EngineStore(View("a"), "map", AT[:1])), "a box 1 coordinates"),
        (staged(SWIZZLED, engine(View("a", None, IntImm(16)))), "a box begins at no multiple"),
        (staged(SWIZZLED, engine(View("a", number("x")))), "no multiple of 1024"),
        (staged("strided(128, 2)", engine(SLOT)), "is not how `map` has rows of 128"),
        (staged(SWIZZLED, CopyAsync(address("a", times("x", 4)), FROM, "past")), "a chunk begins"),
        (staged(SWIZZLED, *chunk(plus(times("x", 8), 4))), "a chunk begins at no multiple of 16"),
        (staged(SWIZZLED, *chunk(remainder(times("x", 8), 20))), "no multiple of 16"),
        (staged(SWIZZLED, *chunk(remainder(times("x", 12), 24))), "no multiple of 16"),
        (
            staged(SWIZZLED, Let("int", ("x",), (times("i", 4),)), *chunk(number("x"))),
            "no multiple",
        ),
        (staged(SWIZZLED, *laid(row=64)), "`a` lies otherwise: swizzle(128)"),
        (
            staged(SWIZZLED, Point("to", "f16", View("a", index=number("x")))),
            "is pointed into as if",
        ),
        (staged(SWIZZLED, box=(64, 512)), "`map`: no box has (64, 512) elements"),
        (staged(SWIZZLED, box=(20, 64)), "rows of 40 bytes are no chunks of 16"),
        (staged(SWIZZLED, box=(64,)), "2 extents, 1 strides, a box of 1"),
    ],
)
def test_memory_that_lies_wrong_is_told(found: tuple[str, ...], fault: str) -> None:
    (told,) = found
    assert fault in told
