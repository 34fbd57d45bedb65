"""Stores of neighbours, what lanes exchange for them included."""

from __future__ import annotations

from typing import Any

import numpy as np

from selector.gpu.ir.memory import StoreEight, StorePair, StoreQuad, StoreRun
from selector.gpu.simulator.data.machine import Machine
from selector.gpu.simulator.data.moves import stored_as
from selector.gpu.simulator.data.values import KINDS, Mask, Pointer, Threads

Marked = tuple[Any, Any]  # values, and which are made of what nobody wrote


def store_pair(m: Machine, v: Threads, node: StorePair) -> None:
    """Neighbours with one store, at a multiple of their size."""
    to = m.pointer(v, node.to)
    if node.kind:
        to = Pointer(to.space, KINDS[node.kind], to.byte)
    if len(node.values) == 1:
        to = Pointer(to.space, KINDS["u32"], to.byte)
    _store_several(m, v, to, [m.both(v, e) for e in node.values])


def store_quad(m: Machine, v: Threads, node: StoreQuad) -> None:
    """Four neighbours of each lane: two of its own, two of the lane beside it."""
    odd = v["lane"] & 1 != 0
    found = [m.both(v, e) for e in node.values]
    if not m.warps(v):
        return
    first, second = [_handed(v, odd, *found[i::2]) for i in (0, 1)]
    to = m.pointer(v, node.to) + np.where(odd, np.int64(6), np.int64(0))
    own = [_picked(odd, found[2 + i], found[i]) for i in (0, 1)]
    low = [_picked(odd, x, y) for x, y in zip((first, second), own, strict=True)]
    high = [_picked(odd, y, x) for x, y in zip((first, second), own, strict=True)]
    _store_several(m, v, to, [*low, *high])


def store_eight(m: Machine, v: Threads, node: StoreEight) -> None:
    """Each lane's own pairs: who stores them makes no difference, but that 16 bytes are aligned."""
    found = [m.both(v, e) for e in node.values]
    if not m.warps(v):
        return
    first = np.int64(2) * (v["lane"] % 4)
    for view, pairs in ((node.to, found[:2]), (node.below, found[2:])):
        start = m.pointer(v, view)
        m.memories.places(v, start + -first, 16)
        for tile, pair in enumerate(pairs):
            _store_halves(m, v, start + np.int64(8 * tile), pair)


def store_run(m: Machine, v: Threads, node: StoreRun) -> None:
    """The same of every piece, from any element on."""
    found = [m.both(v, e) for e in node.values]
    if not m.warps(v):
        return
    start = m.pointer(v, node.to)
    for i, pair in enumerate(found):
        _store_halves(m, v, start + np.int64(2 * i * node.lanes), pair)


def _store_halves(m: Machine, v: Threads, to: Pointer, pair: Marked) -> None:
    """Two elements of 16 bits that are packed, one after the other."""
    value, mask = pair
    for half in (0, 1):
        at = Pointer(to.space, KINDS["u16"], to.byte) + np.int64(half)
        m.memories.places(v, at, 2)
        m.memories.store(v, at, (value >> np.uint32(16 * half)).astype(np.uint16), mask)


def _picked(odd: Mask, a: Marked, b: Marked) -> Marked:
    """Of two values the one for odd lanes, and the one for even lanes."""
    marks = None
    if a[1] is not None or b[1] is not None:
        none = np.zeros(odd.shape, bool)
        marks = np.where(odd, none if a[1] is None else a[1], none if b[1] is None else b[1])
    return np.where(odd, a[0], b[0]), marks


def _handed(v: Threads, odd: Mask, a: Marked, b: Marked) -> Marked:
    """What the lane beside sends: odd ones the first value, even ones the second."""
    value, marks = _picked(odd, a, b)
    beside = np.arange(v.count) ^ 1
    return value[beside], None if marks is None else marks[beside]


def _store_several(m: Machine, v: Threads, to: Pointer, values: list[Marked]) -> None:
    m.memories.places(v, to, len(values) * to.element.itemsize)
    for i, (value, mask) in enumerate(values):
        m.memories.store(v, to + np.int64(i), stored_as(value, to.element), mask)
