"""Bytes of a thread's words become floats by a permutation; what is written one by one does not."""

from __future__ import annotations

import pytest

from selector.gpu.cuda.copies import store_line
from selector.gpu.ir.expressions import behind, element, number, pointer
from selector.gpu.ir.memory import Array, LoadVector, Store
from selector.gpu.ir.nodes import For, Kernel, Node
from selector.gpu.passes.unpack_bytes import unpack_bytes
from selector.gpu.simulator.data.functions import FUNCTIONS
from selector.ir.nodes import Binary, BinaryOp, Call, Cast, Expr, Var
from selector.ir.types import FLOAT32, INT8, INT32, UINT8, UINT16

I = Var("i", INT32)  # noqa: E741
BYTES = element(UINT8, pointer("near"), I)


def brought(bytes_: int = 8, first: int = 0, alignment: int = 8) -> tuple[Node, ...]:
    source = behind(pointer("image"), number(0))
    load = LoadVector(pointer("near"), number(first), source, bytes_)
    return Array("near", "u8", 8, alignment), load


def stored(value: Expr) -> Store:
    return Store(element(FLOAT32, pointer("out"), I), value)


def after(*nodes: Node) -> Store:
    """The last node's store, in a loop of its own."""
    *before, last = nodes
    kernel = Kernel(
        "k", 32, 1, (), (), (*before, For("plain", "i", number(0), number(8), None, (last,)))
    )
    changed = unpack_bytes(kernel)
    loop = changed.body[-1]
    assert isinstance(loop, For)
    (store,) = loop.body
    assert isinstance(store, Store)
    assert (changed is kernel) == (store == last)
    return store


@pytest.mark.parametrize("of", [BYTES, Cast(INT32, BYTES), Cast(UINT16, BYTES)])
def test_a_float_of_a_byte_comes_from_its_word(of: Expr) -> None:
    scaled = Binary(BinaryOp.MUL, Cast(FLOAT32, of), Var("w", FLOAT32))
    value = after(*brought(), stored(scaled)).value
    assert value == Binary(BinaryOp.MUL, Call(FLOAT32, "byte_float", (BYTES,)), Var("w", FLOAT32))
    assert store_line(stored(value)) == "out[i] = byte_float(near, i) * w;"
    assert FUNCTIONS["byte_float"](255) == 255.0


@pytest.mark.parametrize(
    "nodes",
    [
        (*brought(), Store(BYTES, number(0))),
        brought(alignment=1),
        brought(bytes_=2),
        brought(first=2),
        (Array("near", "s8", 8, 8), brought()[1]),
    ],
    ids=["written one by one", "no whole words", "a short vector", "between words", "signed"],
)
def test_other_arrays_stay(nodes: tuple[Node, ...]) -> None:
    last = stored(Cast(FLOAT32, BYTES))
    assert after(*nodes, last) == last


def test_other_numbers_stay() -> None:
    near = element(INT8, pointer("near"), I)
    for value in (Cast(INT32, BYTES), Cast(FLOAT32, near), Cast(FLOAT32, Cast(INT8, BYTES))):
        assert after(*brought(), stored(value)) == stored(value)
