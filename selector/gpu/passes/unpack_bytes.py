"""Bytes that a thread has brought as words become floats straight from these.

A compiler takes a byte out of its word by shifts and masks, and converts it where a quarter of a
multiprocessor's threads can at a time. One permutation of the word's bytes puts 0x4B00 and 0 in
front of the byte: a float that is 2^23 more than it.
"""

from __future__ import annotations

from dataclasses import replace

from selector.gpu.ir.memory import Array, LoadVector
from selector.gpu.ir.nodes import Body, Kernel, Node, walk
from selector.gpu.passes.rebuilt import rebuilt, with_values
from selector.ir.nodes import Call, Cast, Expr, IntImm, Var
from selector.ir.traverse import map_expr, walk_expr
from selector.ir.types import FLOAT32, UINT8

WORD, BITS = 4, 8  # bytes of a word, and bits of a byte


def unpack_bytes(kernel: Kernel) -> Kernel:
    """The kernel with bytes of such arrays unpacked."""
    arrays = _words(kernel.body)
    if not arrays:
        return kernel

    def changed(e: Expr) -> Expr:
        match e:
            case Cast(t, value) if t == FLOAT32 and _is_byte(byte := _widened(value), arrays):
                return Call(t, "byte_float", (map_expr(byte, changed),))
            case _:
                return map_expr(e, changed)

    def of(node: Node) -> Body:
        return (with_values(node, changed),)

    body = rebuilt(kernel.body, of)
    return kernel if body is kernel.body else replace(kernel, body=body)


def _words(body: Body) -> frozenset[str]:
    """Arrays of bytes that are written by whole words only."""
    arrays, others = set[str](), set[str]()
    for node in walk(body):
        match node:
            case Array(name, kind, _, alignment):
                whole = kind == "u8" and alignment >= WORD
                (arrays if whole else others).add(name)
            case LoadVector(Var(name), IntImm(first), _, bytes_) if (
                first % WORD == bytes_ % WORD == 0
            ):
                pass
            case _ if isinstance(to := getattr(node, "to", None), Expr):
                others |= {e.name for e in walk_expr(to) if isinstance(e, Var)}
            case _:
                pass
    return frozenset(arrays - others)


def _widened(e: Expr) -> Expr:
    """What a number of more bits is."""
    while isinstance(e, Cast) and e.type.is_integer and e.type.bits > BITS:
        e = e.value
    return e


def _is_byte(e: Expr, arrays: frozenset[str]) -> bool:
    match e:
        case Call(t, "element", (Var(name), _)):
            return name in arrays and t == UINT8
        case _:
            return False
