"""What is wrong with a kernel, seen without running it: so far, how its shared memory lies, and its
products (``verify_products``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from selector.gpu.ir.layouts import (
    BYTE,
    GROUP_ROWS,
    Composed,
    Layout,
    Swizzle,
    is_injective,
    sizes,
)
from selector.gpu.ir.nodes import EngineCopy, EngineStore, Kernel, Memory, View, walk
from selector.gpu.ir.verify_products import product_faults
from selector.ir.nodes import IntImm


def memory_faults(kernel: Kernel) -> tuple[str, ...]:
    """Layouts in which two elements share a byte, or one lies past its memory; swizzles that begin
    between their repetitions; boxes of the copy engine from or to no memory, or past its end;
    operands of products that lie otherwise than these read them.
    """
    declared: dict[str, Memory] = {}
    found: list[str] = []
    for node in walk(kernel.body):
        match node:
            case Memory():
                declared[node.name] = node
                found += (f"`{node.name}`: {fault}" for fault in _faults(node))
            case EngineCopy(to=view, bytes=bytes_):
                found += _outside(view, bytes_, declared)
            case EngineStore(source=view):
                found += _outside(view, 0, declared)
            case _:
                pass
    return (*found, *product_faults(kernel))


def _faults(memory: Memory) -> Iterator[str]:
    injective, reach = _seen(memory.layout, memory.extents)
    if not injective:
        yield f"two elements share a byte by {memory.layout}"
    if reach > memory.bytes:
        yield f"an element lies at byte {reach - 1} of {memory.bytes}"
    starts = [memory.offset, memory.apart, memory.bytes if memory.stages > 1 else 0]
    match memory.layout:
        case Composed(Swizzle(row)) if any(x % (GROUP_ROWS * row) for x in starts):
            yield f"{memory.layout} begins at {starts}, no multiples of {GROUP_ROWS * row}"
        case _:
            pass


def _outside(view: View, bytes_: int, declared: dict[str, Memory]) -> Iterator[str]:
    memory = declared.get(view.memory)
    if memory is None:
        yield f"`{view.memory}` is no memory"
    elif (view.at.value if isinstance(view.at, IntImm) else 0) + bytes_ > memory.bytes:
        yield f"`{view.memory}`: a box of {bytes_} bytes reaches past its {memory.bytes}"


@cache
def _seen(layout: Layout, extents: tuple[int, ...]) -> tuple[bool, int]:
    """Whether elements have bytes of their own, and how far these reach."""
    return is_injective(layout, *extents), sizes(layout, *extents)[BYTE]
