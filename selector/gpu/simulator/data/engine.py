"""Copies of the engine: boxes of tensor maps and runs of bytes, in and out.

A box is copied where it is asked for. Outside of the array it reads zeros and stores nothing (PTX
ISA, "Out-of-bounds access"); rows of 32, 64 or 128 bytes lie swizzled in shared memory.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from selector.gpu.ir.layouts import BYTE, LINE, Swizzle
from selector.gpu.ir.memory import CopyRun, EngineCopy, EngineStore
from selector.gpu.simulator.data.barriers import Barriers
from selector.gpu.simulator.data.machine import Boxes, Machine
from selector.gpu.simulator.data.values import Array, Index, Pointer, Threads, per_thread
from selector.ir.tf32 import to_tf32

_SWIZZLED = (32, 64, 128)
_GRAIN = 16


def _inside(boxes: Boxes, at: tuple[int, ...]) -> tuple[Index, Array]:
    """The place of each element of a box in the array, innermost last, and whether it has one."""
    box = boxes.map.box
    place = np.zeros(box[::-1], np.int64)
    inside = np.ones(box[::-1], bool)
    for d, (start, extent, stride) in enumerate(
        zip(at, boxes.extents, (1, *boxes.strides), strict=True)
    ):
        shape = [1] * len(box)
        shape[len(box) - 1 - d] = box[d]
        i = (start + boxes.map.step(d) * np.arange(box[d])).reshape(shape)
        place = place + i * stride
        inside = inside & (i >= 0) & (i < extent)
    first = int(boxes.to.byte) // boxes.to.element.itemsize
    return np.where(inside, place + first, 0).reshape(-1), inside.reshape(-1)


def _places(m: Machine, boxes: Boxes, start: int, block: int) -> Index | None:
    """Where elements of a box lie in shared memory: numbers of elements from the begin of all
    blocks' on; None where it does not fit.
    """
    shared, size = m.memories.shared, boxes.map.type.bytes
    row = boxes.map.row_bytes
    if start % (LINE if row in _SWIZZLED else _GRAIN):
        m.memories.fault("a box begins between two lines")
        return None
    if start < 0 or start + boxes.map.bytes > shared.size:
        m.memories.fault("a box lies outside of shared memory")
        return None
    byte = start + np.arange(prod(boxes.map.box)) * size
    byte = Swizzle(row)(byte)[BYTE] if row in _SWIZZLED else byte
    return (byte + block * shared.each) // size


def _boxes(m: Machine, name: str, rank: int) -> Boxes | None:
    boxes = m.maps.get(name)
    if boxes is None:
        m.memories.fault(f"there is no map `{name}`")
    elif rank != len(boxes.map.box):
        m.memories.fault(f"`{name}` has {len(boxes.map.box)} dimensions")
    else:
        return boxes
    return None


def copy(m: Machine, barriers: Barriers, v: Threads, node: EngineCopy) -> None:
    """A box to the same place of all blocks that it is for, where it counts as bytes that came."""
    boxes = _boxes(m, node.map, len(node.at))
    if boxes is None:
        return
    start = per_thread(m.pointer(v, node.to).byte, v.count)
    at = [per_thread(m.place(v, e), v.count) for e in node.at]
    barrier = per_thread(m.place(v, node.barrier), v.count)
    block, rank = v["(block)"], per_thread(v["cluster_rank"], v.count)
    for i in range(v.count):
        place, inside = _inside(boxes, tuple(int(x[i]) for x in at))
        found = boxes.to.space.typed(boxes.to.element)[place]
        found = np.where(inside, found, 0).astype(found.dtype)
        found = to_tf32(found, even=True) if boxes.map.become else found
        marks = boxes.to.space.unwritten
        if marks is not None:
            marks = (boxes.to.space.marks(found.dtype.itemsize)[place] != 0) & inside
        for to in _blocks(node.blocks, int(block[i]), int(rank[i])):
            places = _places(m, boxes, int(start[i]), to)
            if places is not None:
                shared = m.memories.shared
                m.memories.asynchronous(places * found.dtype.itemsize)
                shared.typed(found.dtype)[places] = found
                taken = shared.marks(found.dtype.itemsize)
                taken[places] = (
                    0 if marks is None else np.where(marks, np.iinfo(taken.dtype).max, 0)
                )
            barriers.land(to, int(barrier[i]), found.nbytes)


def _blocks(mask: int, block: int, rank: int) -> list[int]:
    if not mask:
        return [block]
    return [block - rank + n for n in range(mask.bit_length()) if mask >> n & 1]


def store(m: Machine, v: Threads, node: EngineStore) -> None:
    """The part of a box that lies in the array."""
    boxes = _boxes(m, node.map, len(node.at))
    if boxes is None:
        return
    start = per_thread(m.pointer(v, node.source).byte, v.count)
    at = [per_thread(m.place(v, e), v.count) for e in node.at]
    shared, element = m.memories.shared, boxes.to.element
    for i in range(v.count):
        place, inside = _inside(boxes, tuple(int(x[i]) for x in at))
        places = _places(m, boxes, int(start[i]), int(v["(block)"][i]))
        if places is None:
            continue
        place, places = place[inside], places[inside]
        m.memories.asynchronous(places * element.itemsize)
        boxes.to.space.typed(element)[place] = shared.typed(element)[places]
        marks = shared.marks(element.itemsize)[places]
        if marks.any():
            m.memories.first = m.memories.first or m.here()
            m.memories.report(f"`{boxes.to.space.name}` gets what nobody wrote")
        if boxes.to.space.unwritten is not None:
            boxes.to.space.marks(element.itemsize)[place] = marks


def run(m: Machine, barriers: Barriers, v: Threads, node: CopyRun) -> None:
    """Bytes of each thread, in pieces of 16."""
    to = per_thread(m.place(v, node.to), v.count)
    source: Pointer = m.place(v, node.source)
    length = per_thread(m.place(v, node.bytes), v.count)
    barrier = per_thread(m.place(v, node.barrier), v.count)
    begin = per_thread(source.byte, v.count)
    for i in range(v.count):
        barriers.expect(int(v["(block)"][i]), int(barrier[i]), int(length[i]))
        _run(m, int(v["(block)"][i]), int(to[i]), source, int(begin[i]), int(length[i]))
        barriers.land(int(v["(block)"][i]), int(barrier[i]), int(length[i]))


def _run(m: Machine, block: int, to: int, source: Pointer, begin: int, length: int) -> None:
    shared = m.memories.shared
    if (to | begin | length) % _GRAIN:
        m.memories.fault("a run begins or ends between two chunks")
    if min(to, begin) < 0 or to + length > shared.size or begin + length > source.space.size:
        m.memories.fault(f"outside of `{source.space.name}` or of shared memory")
        return
    at = block * shared.each + to
    m.memories.asynchronous(np.arange(at, at + length))
    found, marks = m.memories.read_bytes(source, np.arange(begin, begin + length))
    shared.data[at : at + length] = found
    unwritten: Any = shared.unwritten
    unwritten[at : at + length] = 0 if marks is None else marks
