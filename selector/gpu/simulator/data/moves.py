"""Nodes of single threads: what they declare, set, store and copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from selector.diagnostics import InternalError
from selector.gpu.ir.layouts import BYTE, CHUNK, Swizzle
from selector.gpu.ir.memory import (
    BOX_ROWS,
    Array,
    CopyAsync,
    CopyElement,
    Evaluate,
    LoadShifted,
    LoadVector,
    Point,
    Store,
    StoreChunk,
    StoreRows,
    StoreThere,
    StoreVector,
    StoreWords,
)
from selector.gpu.ir.nodes import Advance, Assign, Fence, Let, Memory, State
from selector.gpu.ir.products import SetTile
from selector.gpu.simulator.data.arithmetic import converted
from selector.gpu.simulator.data.machine import WARP, Machine
from selector.gpu.simulator.data.values import (
    BOOLEAN,
    KINDS,
    SHIFTED,
    Pointer,
    Threads,
    part_of,
    per_thread,
)
from selector.ir.nodes import Call, Expr, Var


def declare(m: Machine, v: Threads, node: Let | State) -> None:
    element = KINDS[node.kind]
    for name, e in zip(node.names, node.values, strict=True):
        value, mask = load_shifted(m, v, e) if element == SHIFTED else m.both(v, e)
        m.put(v, name, value if element == SHIFTED else _own(_as(value, element)), mask)


def _own(value: Any) -> Any:
    """A value that stays as it is when the array changes that it is an element of."""
    return value.copy() if isinstance(value, np.ndarray) and value.base is not None else value


def _as(value: Any, element: np.dtype[Any]) -> Any:
    return value if isinstance(value, Pointer) else converted(value, element)


def memory(m: Machine, v: Threads, node: Memory) -> None:
    start = np.int64(node.offset)
    if node.unit is not None:
        start = start + m.place(v, node.unit).astype(np.int64) * node.apart
    v.put(node.name, Pointer(m.memories.shared, KINDS[node.kind], start))


def point(m: Machine, v: Threads, node: Point) -> None:
    found = m.pointer(v, node.of)
    v.put(node.name, Pointer(found.space, KINDS[node.kind.removeprefix("const ")], found.byte))


def fence(m: Machine, v: Threads, node: Fence) -> None:
    if node.what == "proxy":
        m.memories.fences.fence(v)


def array(m: Machine, v: Threads, node: Array) -> None:
    shape = (v.count, node.count)
    m.put(v, node.name, np.zeros(shape, KINDS[node.kind]), np.ones(shape, bool))


def assign(m: Machine, v: Threads, node: Assign) -> None:
    value, mask = m.both(v, node.value)
    m.put(v, node.name, _own(_as(value, v[node.name].dtype)), mask)


def advance(m: Machine, v: Threads, node: Advance) -> None:
    """``slot`` and ``phase`` go on."""
    one = np.int32(1) if node.by is None else m.value(v, node.by)
    around, slot = np.divmod(v["slot"] + one, np.int32(node.stages))
    v.put("slot", slot)
    if node.phase:
        v.put(node.phase, (v[node.phase] + around).astype(v[node.phase].dtype))


# ------------------------------------------------------------------ stores


def store(m: Machine, v: Threads, node: Store) -> None:
    value, mask = m.both(v, node.value)
    match node.to:
        case Var(name):
            m.put(v, name, _own(_as(value, v[name].dtype)), mask)
        case Call(_, "element", (whole, *parts)):
            to = m.value(v, whole)
            if isinstance(to, Pointer):
                for part in parts:
                    to = to + m.place(v, part)
                m.memories.store(v, to, stored_as(value, to.element), mask)
            else:
                _set_own(m, v, node.to, value, mask)
        case _:
            raise InternalError(f"{node.to} cannot be set")


def store_there(m: Machine, v: Threads, node: StoreThere) -> None:
    """An element of another block's memory: as far from this one's as the blocks are."""
    match node.to:
        case Call(_, "element", (whole, part)):
            to = m.value(v, whole) + m.place(v, part)
        case _:
            raise InternalError(f"{node.to} is no element of shared memory")
    value, mask = m.both(v, node.value)
    block = per_thread(m.place(v, node.block), v.count)
    if (wrong := (block < 0) | (block >= m.kernel.cluster)).any():
        m.memories.fault("the cluster has no such block")
        block = np.where(wrong, 0, block)
    own = v["(block)"]
    v.put("(block)", own - v["cluster_rank"] + block)
    m.memories.store(v, to, stored_as(value, to.element), mask)
    v.put("(block)", own)


def stored_as(value: Any, element: np.dtype[Any]) -> Any:
    """As it lies in memory."""
    value = converted(value, element)
    return value.astype(np.uint8) if element == BOOLEAN else value


def _set_own(m: Machine, v: Threads, to: Call, value: Any, mask: Any) -> None:
    """An element of a thread's own array."""
    places: list[Any] = []
    whole: Expr = to
    while isinstance(whole, Call):
        *_, index = whole.args
        places.insert(0, m.place(v, index))
        whole = whole.args[0]
    assert isinstance(whole, Var)
    found, _ = v.changed(whole.name)
    at: Any = (slice(None), *places)
    if any(x.ndim for x in places):
        at = (np.arange(v.count), *(per_thread(x, v.count) for x in places))
    found[at] = converted(value, found.dtype)
    set_marks(m, v, whole.name, at, mask)


def set_marks(m: Machine, v: Threads, name: str, at: Any, mask: Any) -> None:
    """Some elements of an array that is changed where it is are made of what nobody wrote."""
    marks = v.unwritten.get(name)
    if marks is None and mask is None:
        return
    if marks is None:
        marks = np.zeros(v[name].shape, bool)
    marks[at] = False if mask is None else mask
    m.put(v, name, v[name], marks if marks.any() else None)


def store_words(m: Machine, v: Threads, node: StoreWords) -> None:
    to, wanted = m.pointer(v, node.to), m.wanted(v, node.wanted)
    words, marks = np.zeros((v.count, len(node.words)), np.uint32), np.zeros((v.count, 4), bool)
    outer = m.memories.active
    m.memories.active = wanted
    for i, e in enumerate(node.words):
        value, mask = m.both(v, e)
        words[:, i] = converted(value, np.dtype("u4"))
        marks[:, i] = False if mask is None else mask
    m.memories.active = outer
    if wanted is not None:
        words, marks = np.where(wanted[:, None], words, 0), marks & wanted[:, None]
    m.memories.store_chunk(v, to, words, marks)


def store_chunk(m: Machine, v: Threads, node: StoreChunk) -> None:
    to, source = m.value(v, node.to), m.value(v, node.source)
    if isinstance(source, Pointer):
        words, mask = m.memories.load_chunk(v, source)
    else:
        assert isinstance(node.source, Var)
        words = np.ascontiguousarray(source[:, : CHUNK // source.dtype.itemsize]).view(np.uint32)
        marks = v.mask(node.source.name)
        mask = (
            None
            if marks is None
            else np.broadcast_to(np.any(marks, axis=1, keepdims=True), words.shape)
        )
    m.memories.store_chunk(v, to, words, mask)


def load_vector(m: Machine, v: Threads, node: LoadVector) -> None:
    """Element by element; all begin at a multiple of the vector's bytes, or anywhere."""
    assert isinstance(node.to, Var)
    wanted = m.wanted(v, node.wanted)
    part = v if wanted is None else v.part(wanted)
    source: Pointer = m.value(part, node.source)
    if not node.lie:
        m.memories.places(part, source, node.bytes)
    found, _ = v.changed(node.to.name)
    first = int(per_thread(m.place(v, node.first), v.count)[0])  # alike for all
    for i in range(node.bytes // source.element.itemsize):
        value, mask = m.memories.loaded(part, source + i)
        if wanted is not None:
            value, mask = _spread(value, wanted), None if mask is None else _spread(mask, wanted)
        found[:, first + i] = value
        set_marks(m, v, node.to.name, (slice(None), first + i), mask)


def _spread(values: Any, wanted: Any) -> Any:
    """Those of the threads that wanted any, and zeros of the others."""
    found = np.zeros(wanted.shape, np.asarray(values).dtype)
    found[wanted] = values
    return found


def store_vector(m: Machine, v: Threads, node: StoreVector) -> None:
    assert isinstance(node.source, Var)
    to, source = m.value(v, node.to), m.value(v, node.source)
    marks = v.mask(node.source.name)
    m.memories.places(v, to, node.bytes)
    for i in range(node.bytes // to.element.itemsize):
        at = node.first + i
        m.memories.store(v, to + i, source[:, at], None if marks is None else marks[:, at])


def store_rows(m: Machine, v: Threads, node: StoreRows) -> None:
    """Each lane's share of a box of 16 rows."""
    to, source = m.pointer(v, node.to), m.pointer(v, node.source)
    stride, rows, columns = (m.place(v, e) for e in (node.stride, node.rows, node.columns))
    above, runs = m.place(v, node.above), m.place(v, node.runs)
    size = to.element.itemsize
    width = node.row_bytes // size
    for first in range(0, BOX_ROWS * width, WARP):
        lane: Any = first + v["lane"].astype(np.int64)
        row, column = np.divmod(lane, width)
        byte = Swizzle(node.row_bytes)(row * node.row_bytes + column * size)[BYTE]
        run, inside = np.divmod(row, node.run)
        wanted = (inside < rows) & (run < runs) & (column < columns)
        place = inside * stride + run * above
        wanted = np.broadcast_to(wanted, (v.count,))
        part = v.part(wanted)
        if part.count:
            at = Pointer(source.space, to.element, part_of(source.byte + byte, part.chosen))
            value, mask = m.memories.loaded(part, at)
            m.memories.store(part, (to + (place + column)).of(part.chosen), value, mask)


# ------------------------------------------------------------------ copies


def copy_async(m: Machine, v: Threads, node: CopyAsync) -> None:
    wanted = m.wanted(v, node.wanted)
    to, source = m.shared(m.place(v, node.to)), m.place(v, node.source)
    words, mask = m.memories.load_chunk(v, source, wanted)
    m.memories.store_chunk(v, to, words, mask, wanted)


def copy_element(m: Machine, v: Threads, node: CopyElement) -> None:
    wanted = m.wanted(v, node.wanted)
    inside = np.broadcast_to(m.holds(v, node.inside), (v.count,))
    to: Pointer = v[node.to] + m.place(v, node.index)
    source: Pointer = v[node.pointer] + m.place(v, node.source)
    asked = inside if wanted is None else inside & wanted
    outer, m.memories.active = m.memories.active, asked
    value, mask = m.memories.loaded(v, source)
    m.memories.active = outer
    mask = None if mask is None else mask & asked
    m.memories.store(v, to, np.where(asked, value, 0).astype(to.element), mask, wanted)


def load_shifted(m: Machine, v: Threads, call: Expr) -> tuple[Any, Any]:
    """``load_shifted(to, from, valid)``: a chunk on its way."""
    assert isinstance(call, Call)
    assert call.name == "load_shifted"
    to, source, valid = call.args
    return _shifted(m, v, m.value(v, to), m.value(v, source), valid)


def load_part(m: Machine, v: Threads, node: LoadShifted) -> None:
    found, mask = _shifted(m, v, v["to"], v["from"], node.valid)
    parts, _ = v.changed("parts")
    at = np.arange(v.count), per_thread(v[node.part], v.count)
    parts[at] = found
    set_marks(m, v, "parts", at, mask)


def _shifted(m: Machine, v: Threads, to: Pointer, source: Pointer, valid: Expr) -> tuple[Any, Any]:
    """As many bytes as are valid, then zeros."""
    count = per_thread(m.place(v, valid), v.count)[:, None]
    byte = per_thread(source.byte, v.count).astype(np.int64)[:, None] + np.arange(CHUNK)
    asked = np.arange(CHUNK) < count
    if (asked & ((byte < 0) | (byte >= source.space.size))).any():
        m.memories.fault(f"outside of `{source.space.name}`")
    byte = np.where(asked, np.clip(byte, 0, source.space.size - 1), 0)
    if source.space.each:
        byte = byte + v["(block)"][:, None] * source.space.each
    found = np.zeros(v.count, SHIFTED)
    bytes_, marks = m.memories.read_bytes(source, byte)
    found["bytes"] = np.where(asked, bytes_, 0)
    found["space"], found["to"] = m.memories.number(to.space), to.byte
    mask = None if marks is None else ((marks != 0) & asked).any(1)
    return found, mask if mask is not None and mask.any() else None


def evaluate(m: Machine, v: Threads, node: Evaluate) -> None:
    """A call for what it does to memory."""
    match node.call:
        case Call(_, "store_shifted", (moved,)):
            value, mask = m.both(v, moved)
            words = np.ascontiguousarray(value["bytes"]).view(np.uint32)
            marks = None if mask is None else np.broadcast_to(mask[:, None], words.shape)
            for n in np.unique(value["space"]):
                to = Pointer(m.memories.spaces[n], np.dtype("u1"), value["to"])
                m.memories.store_chunk(v, to, words, marks, value["space"] == n)
        case Call(_, "rows_awaited"):  # by the instructions that read them, too
            pass
        case _:
            raise InternalError(f"{node.call} has no meaning here")


def set_tile(m: Machine, v: Threads, node: SetTile) -> None:
    """All registers of a tile."""
    found = [m.both(v, e) for e in node.values]
    whole, _ = v.changed(node.to)
    for i, (value, mask) in enumerate(found):
        at = slice(None), node.piece, i
        whole[at] = converted(value, whole.dtype)
        set_marks(m, v, node.to, at, mask)
