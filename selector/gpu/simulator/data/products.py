"""Fragments, and the instructions that load and multiply them, for all warps at once.

Which lane has which element, and where an operand lies in memory, is asked of ``lane_maps`` and
``descriptors``: the simulator has no idea of its own of either. An instruction reads memory where
it stands; that it may do so later is what ``protocol`` looks at.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from selector.diagnostics import InternalError
from selector.gpu.ir.descriptors import byte_read
from selector.gpu.ir.expressions import packed
from selector.gpu.ir.lane_maps import ACCUMULATOR, LEFT, RIGHT
from selector.gpu.ir.layouts import BYTE, CHUNK, Strided, Swizzle, places
from selector.gpu.ir.products import (
    BYTE_PAIRS,
    FLOAT8,
    Descriptor,
    Fragment,
    InMemory,
    InRegisters,
    LoadFragment,
    MatrixRows,
    Mma,
    Operand,
    Record,
    Register,
)
from selector.gpu.simulator.data.functions import from_bf16
from selector.gpu.simulator.data.machine import WARP, Machine
from selector.gpu.simulator.data.moves import set_marks
from selector.gpu.simulator.data.values import KINDS, Array, Matrix, Pointer, Threads, per_thread
from selector.ir.float8 import from_bytes
from selector.ir.tf32 import to_tf32
from selector.ir.types import Type

_ELEMENTS = {"f16": "f2", "bf16": "u2", "s8": "i1", "u8": "u1", "tf32": "f4"} | dict.fromkeys(
    FLOAT8, "u1"
)


def fragment(m: Machine, v: Threads, node: Fragment) -> None:
    shape = (v.count, *node.registers)
    m.put(v, node.name, np.zeros(shape, KINDS[node.kind]), np.ones(shape, bool))


def matrix_rows(m: Machine, v: Threads, node: MatrixRows) -> None:
    start = m.pointer(v, node.view)
    lane = v["lane"].astype(np.int64)
    at = m.place(v, node.first) + (lane & 7) * m.place(v, node.step)
    which = (lane >> 3 & 1, lane >> 4)
    for number, apart in zip(which, node.apart, strict=False):
        at = at + number * apart
    v.put(node.name, (start + at).byte)


def descriptor(m: Machine, v: Threads, node: Descriptor) -> None:
    start = m.pointer(v, node.view).byte
    v.put(node.name, Matrix(start, node.leading, node.stride, node.swizzle))


# ------------------------------------------------------------------ loads


def load_fragment(m: Machine, v: Threads, node: LoadFragment) -> None:
    match node.how:
        case "word":
            name = node.registers[0].name
            p: Pointer = v[node.base] + np.int64(node.at)
            m.put(v, name, *m.memories.loaded(v, p))
        case "ldmatrix" | "ldmatrix_trans":
            _load_matrices(m, v, node)
        case "byte_word":
            _load_word(m, v, node)
        case how if how in BYTE_PAIRS:
            _load_bytes(m, v, node)
        case _:
            name = node.registers[0].name
            m.put(v, name, *m.both(v, packed(*node.elements)))


def _load_bytes(m: Machine, v: Threads, node: LoadFragment) -> None:
    """Two bytes as two f16, where the condition holds."""
    name, (condition,) = node.registers[0].name, node.elements or (None,)
    wanted = np.ones(v.count, bool) if condition is None else m.value(v, condition)
    found, marks = np.zeros(v.count, np.uint32), np.zeros(v.count, bool)
    some = v.part(np.broadcast_to(wanted, v.count))
    if some.count:
        kind = np.uint8 if node.how.endswith("odd") else np.uint16
        read, marks[some.chosen] = _bytes_at(m, some, node, np.dtype(kind), 2)
        parts = read.view(np.int8 if node.how.startswith("s8") else np.uint8)
        found[some.chosen] = parts.astype(np.float16).view(np.uint32).reshape(-1)
    m.put(v, name, found, marks if marks.any() else None)


def _load_word(m: Machine, v: Threads, node: LoadFragment) -> None:
    """Four bytes; of the words that they lie in, others may be nobody's."""
    read, marks = _bytes_at(m, v, node, np.dtype(np.uint8), 4)
    found = np.ascontiguousarray(read).view(np.uint32).reshape(-1)
    m.put(v, node.registers[0].name, found, marks if marks.any() else None)


def _bytes_at(
    m: Machine, v: Threads, node: LoadFragment, kind: np.dtype[Any], count: int
) -> tuple[Array, Array]:
    """So many bytes of each thread, by elements of a kind; which threads' nobody wrote."""
    p: Pointer = v[node.base] + np.int64(node.at)
    places = [Pointer(p.space, kind, p.byte + n) for n in range(0, count, kind.itemsize)]
    m.memories.met, marks = False, np.zeros(v.count, bool)
    read = [np.broadcast_to(m.memories.load(v, at), v.count) for at in places]
    for at in places if m.memories.met else ():
        marks |= m.memories.marks(v, at)
    return np.stack(read, axis=-1), marks


def _load_matrices(m: Machine, v: Threads, node: LoadFragment) -> None:
    """Matrix i of 8 rows of 16 bytes to register i; lane l has word l % 4 of row l / 4."""
    warps, count = m.warps(v), len(node.registers)
    if not warps:
        for register in node.registers:
            m.put(v, register.name, np.zeros(v.count, np.uint32), np.ones(v.count, bool))
        return
    lanes = v.part(v["lane"] < 8 * count)  # the others' addresses are not asked for
    at = m.shared(lanes[node.base] + node.at)
    words, mask = m.memories.load_chunk(lanes, at)
    across = node.how == "ldmatrix_trans"
    found = _dealt(words.reshape(warps, count, 8, 4), across)
    masks = None if mask is None else _marked(mask.reshape(warps, count, 8, 4), across)
    for i, register in enumerate(node.registers):
        marks = None if masks is None or not masks[:, i].any() else masks[:, i].reshape(-1)
        m.put(v, register.name, found[:, i].reshape(-1), marks)


def _dealt(rows: Array, across: bool) -> Array:
    """Words by warp, matrix and lane."""
    if across:
        halves = np.ascontiguousarray(rows).view(np.uint16).swapaxes(2, 3)
        rows = np.ascontiguousarray(halves).view(np.uint32)
    return rows.reshape(*rows.shape[:2], WARP)


def _marked(marks: Array, across: bool) -> Array:
    """The same of what nobody wrote: of a word, if it is of one of its halves."""
    if across:
        halves = np.repeat(marks, 2, axis=3).swapaxes(2, 3)
        marks = halves[..., ::2] | halves[..., 1::2]
    return marks.reshape(*marks.shape[:2], WARP)


# ------------------------------------------------------------------ operands


@cache
def _where(layout: Strided, rows: int, columns: int, registers: int) -> tuple[Array, ...]:
    """Of a matrix in registers: the lane of all (of the group), the register, a byte's place."""
    found = places(layout, rows, columns)
    lane = found["lane"] + WARP * found.get("warp", 0) * (rows > 16)
    register = found["register"]
    if register.max() >= registers:
        raise InternalError(f"{rows} x {columns} has no room in {registers} registers")
    return lane, register, found.get(BYTE, np.zeros_like(lane))


def _in_registers(
    m: Machine,
    v: Threads,
    registers: tuple[Register, ...],
    layout: Strided,
    rows: int,
    depth: int,
    size: int,
) -> tuple[Array, Any]:
    """Elements of each unit by row and depth, and which nobody wrote."""
    threads = WARP if rows <= 16 else 4 * WARP
    words = np.stack([per_thread(_register(v, r)[0], v.count) for r in registers], -1)
    bytes_ = np.ascontiguousarray(words).view(np.uint8).reshape(-1, threads * len(registers) * 4)
    lane, register, byte = _where(layout, rows, depth * size, len(registers))
    at = ((lane * len(registers) + register) * 4 + byte)[:, ::size]
    found = bytes_[:, at[..., None] + np.arange(size)]
    masks = [_register(v, r)[1] for r in registers]
    if all(mask is None for mask in masks):
        return found, None
    none = np.zeros(v.count, bool)
    marks = np.stack([none if mask is None else mask for mask in masks], -1)
    return found, marks.reshape(-1, threads * len(registers))[:, at // 4]


def _register(v: Threads, r: Register) -> tuple[Any, Any]:
    """One, or one of an array of them."""
    value, mask = v[r.name], v.mask(r.name)
    if r.index is not None:
        value = value[:, r.index]
        mask = None if mask is None else mask[:, r.index]
    return value, mask if mask is not None and mask.any() else None


@cache
def _bytes_of(steps: tuple[int, int, int], rows: int, depth: int, size: int, across: bool) -> Array:
    """Where each element of an operand in memory lies, before chunks are turned."""
    row, column = np.indices((rows, depth))
    first, second = (column, row * size) if across else (row, column * size)
    return byte_read(steps, first, second)


def _in_memory(
    m: Machine, v: Threads, x: InMemory, rows: int, depth: int, size: int
) -> tuple[Array, Any]:
    """The same of one that a descriptor names."""
    groups = m.groups(v)
    d: Matrix = v[x.descriptor]
    start = per_thread(d.start, v.count).reshape(groups, -1)
    if (start != start[:, :1]).any():
        m.memories.fault("threads of a group name several operands")
    steps = d.leading, d.stride, d.swizzle
    at = start[:, 0].astype(np.int64)[:, None, None] + x.at
    at = at + _bytes_of(steps, rows, depth, size, x.across)
    if d.swizzle:
        at = Swizzle(d.swizzle)(at)[BYTE]
    shared = m.memories.shared
    low, high = int(at.min()), int(at.max()) + size
    if low < 0 or high > shared.size or (start % CHUNK).any():
        m.memories.fault("an operand lies outside of shared memory, or between two chunks")
        at = np.zeros_like(at)
    block = v["(block)"].reshape(groups, -1)[:, :1, None]
    at = at + block * shared.each
    m.memories.asynchronous(at)
    found = shared.typed(np.dtype(f"u{size}"))[at // size]
    bytes_ = np.ascontiguousarray(found)[..., None].view(np.uint8)
    assert shared.unwritten is not None
    if not shared.unwritten.reshape(-1, shared.each)[:, low:high].any():
        return bytes_, None
    marks = shared.marks(size)[at // size] != 0
    if not marks.any():
        return bytes_, None
    m.memories.first = m.memories.first or m.here()
    return bytes_, marks


def _numbers(bytes_: Array, kind: str, as_they_are: bool) -> Array:
    """Elements as what they are multiplied in; single floats, where they are taken ``as_they_are``,
    without the bits that nobody has rounded.
    """
    found = np.ascontiguousarray(bytes_).view(_ELEMENTS[kind])[..., 0]
    if kind in FLOAT8:
        return from_bytes(found, Type.parse(kind))
    if kind == "bf16":
        return from_bf16(found)
    if kind == "tf32" and as_they_are:
        return (found.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    if kind == "tf32":  # the instruction's wrapper rounds
        return to_tf32(found)
    return found.astype(np.float32 if kind[0] == "f" else np.int32)


# ------------------------------------------------------------------ products


def multiply(m: Machine, v: Threads, node: Mma) -> None:
    r = node.record
    units = m.groups(v) if r.asynchronous else m.warps(v)
    if not units:
        return
    a, no_a = _operand(m, v, node.a, LEFT, r.m, r)
    b, no_b = _operand(m, v, node.b, RIGHT, r.n, r)
    left, right = _numbers(a, r.a, r.asynchronous), _numbers(b, r.b, r.asynchronous)
    product = np.matmul(left, right.swapaxes(1, 2))
    marks = _spread(no_a, no_b, product.shape)
    _add(m, v, node, product, marks)


def _operand(
    m: Machine, v: Threads, x: Operand, layout: Strided, rows: int, r: Record
) -> tuple[Array, Any]:
    match x:
        case InRegisters(registers):
            return _in_registers(m, v, registers, layout, rows, r.k, r.bytes)
        case InMemory():
            return _in_memory(m, v, x, rows, r.k, r.bytes)


def _spread(no_a: Any, no_b: Any, shape: tuple[int, ...]) -> Any:
    """The elements of a product that something nobody wrote is a factor of."""
    if no_a is None and no_b is None:
        return None
    rows = np.zeros((*shape[:2], 1), bool) if no_a is None else no_a.any(2)[..., None]
    columns = np.zeros((shape[0], 1, shape[2]), bool) if no_b is None else no_b.any(2)[:, None]
    return rows | columns


def _add(m: Machine, v: Threads, node: Mma, product: Array, marks: Any) -> None:
    """To the tiles of the fragment from ``piece`` on."""
    r = node.record
    whole, mask = v.changed(node.to)
    pieces = slice(node.piece, node.piece + r.n // 8)
    lane, register, _ = _where(ACCUMULATOR, r.m, r.n, r.n // 2)
    threads, halves = WARP if r.m <= 16 else 4 * WARP, r.c == "f16"
    old = whole[:, pieces].reshape(-1, threads, whole[0, pieces].size)
    old = old.view(np.float16) if halves else old
    if node.how == "fresh":
        new = np.empty_like(old)
        new[:, lane, register] = product.astype(old.dtype)
    else:
        new = old.copy()
        new[:, lane, register] = (old[:, lane, register].astype(product.dtype) + product).astype(
            old.dtype
        )
    new = new.view(np.uint32) if halves else new
    whole[:, pieces] = new.reshape(whole[:, pieces].shape)
    if mask is None and marks is None:
        return
    lost = np.zeros(old.shape, bool)
    if marks is not None:
        lost[:, lane, register] = marks
    lost = lost[..., ::2] | lost[..., 1::2] if halves else lost
    lost = lost.reshape(whole[:, pieces].shape)
    if mask is not None and node.how != "fresh":
        lost = lost | mask[:, pieces]
    set_marks(m, v, node.to, (slice(None), pieces), lost)
