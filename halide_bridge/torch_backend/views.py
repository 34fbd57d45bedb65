"""Operators that move elements: indices of the result to those of the operand."""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import halide

from halide_bridge.torch_backend.pointwise import converted
from halide_bridge.torch_backend.values import (
    Extent,
    Making,
    Value,
    axis,
    computed,
    constant,
    is_one,
    rule,
    unsupported,
)

hl: Any = halide


@rule("alias", "clone")
def same(m: Making, x: Value, **_: Any) -> Value:
    del m
    return x


@rule("permute")
def permute(m: Making, x: Value, dims: Sequence[int]) -> Value:
    order = [axis(d, x.rank) for d in dims]

    def turned(v: Value) -> Value:
        return v.seen(m.shape(), lambda i: [i[order.index(d)] for d in range(x.rank)])

    if x.levels is None:
        return turned(x)
    place = None if x.levels.axis is None else order.index(x.levels.axis)
    levels = replace(x.levels, stored=turned(x.levels.stored), axis=place)
    return replace(turned(x), levels=levels)


@rule("t")
def t(m: Making, x: Value) -> Value:
    return permute(m, x, range(x.rank)[::-1])  # pyright: ignore[reportReturnType]


@rule("transpose")
def transpose(m: Making, x: Value, first: int, second: int) -> Value:
    order = list(range(x.rank))
    a, b = axis(first, x.rank), axis(second, x.rank)
    order[a], order[b] = order[b], order[a]
    return permute(m, x, order)  # pyright: ignore[reportReturnType]


@rule("expand")
def expand(m: Making, x: Value, sizes: Any, **_: Any) -> Value:
    del sizes
    shape = m.shape()
    extra = len(shape) - x.rank
    return x.seen(
        shape, lambda i: [0 if is_one(n) else j for j, n in zip(i[extra:], x.shape, strict=True)]
    )


@rule("unsqueeze", "squeeze")
def thin(m: Making, x: Value, dim: Any = None) -> Value:
    del dim
    return reshape(m, x)  # pyright: ignore[reportReturnType]


@rule("view", "reshape", "_unsafe_view")
def reshape(m: Making, x: Value, sizes: Any = None) -> Value:
    """Axes of one come and go; others match in groups with as many elements, within which there is
    one number of the element.
    """
    del sizes
    shape = m.shape()
    groups = _groups(x.shape, shape)
    if groups is None:
        raise unsupported("sizes of a reshape that are not known")

    def index(i: Sequence[Any]) -> list[Any]:
        found: list[Any] = [0] * x.rank
        for ours, theirs in groups:
            for d, e in zip(ours, _split([i[d] for d in theirs], [shape[d] for d in theirs],
                                         [x.shape[d] for d in ours]), strict=True):  # fmt: skip
                found[d] = e
        return found

    return x.seen(shape, index)


def _groups(
    own: Sequence[Extent], new: Sequence[Extent]
) -> list[tuple[list[int], list[int]]] | None:
    """Axes of both (without those of one) that have the same elements, group by group."""
    a = [d for d, n in enumerate(own) if not is_one(n)]
    b = [d for d, n in enumerate(new) if not is_one(n)]
    found: list[tuple[list[int], list[int]]] = []
    while a or b:
        if not a or not b:
            return None
        ours, theirs = [a.pop(0)], [b.pop(0)]
        if _equal(own[ours[0]], new[theirs[0]]):
            found.append((ours, theirs))
            continue
        if not _known([own[d] for d in (*ours, *a)]) or not _known([new[d] for d in (*theirs, *b)]):
            found.append((ours + a, theirs + b))
            return found
        count, wanted = own[ours[0]], new[theirs[0]]
        while count != wanted:
            if count < wanted and a:
                count *= own[a[0]]
                ours.append(a.pop(0))
            elif b:
                wanted *= new[b[0]]
                theirs.append(b.pop(0))
            else:
                return None
        found.append((ours, theirs))
    return found


def _known(extents: Sequence[Extent]) -> bool:
    return all(isinstance(n, int) for n in extents)


def _equal(a: Extent, b: Extent) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return not isinstance(a, int) and not isinstance(b, int) and str(a) == str(b)


def _split(index: Sequence[Any], extents: Sequence[Extent], own: Sequence[Extent]) -> list[Any]:
    """An index into axes of other extents with as many elements."""
    if len(own) == len(index) == 1:
        return list(index)
    number: Any = 0
    for i, n in zip(index, extents, strict=True):
        number = i if isinstance(number, int) and number == 0 else number * n + i
    found: list[Any] = []
    for d in range(len(own)):
        inner: Any = 1
        for n in own[d + 1 :]:
            inner = inner * n
        part = number if isinstance(inner, int) and inner == 1 else number / inner
        found.append(part % own[d] if d else part)
    return found


@rule("slice")
def slice_(
    m: Making, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    del end
    d = axis(dim, x.rank)
    first = _begin(0 if start is None else start, x.shape[d])
    return x.seen(m.shape(), lambda i: [*i[:d], i[d] * step + first, *i[d + 1 :]])


def _begin(start: Any, extent: Extent) -> Any:
    if not isinstance(start, int):
        return start
    if isinstance(extent, int):
        return max(0, min(start + extent if start < 0 else start, extent))
    return hl.max(extent + start, 0) if start < 0 else hl.min(extent, start) if start else 0


@rule("select")
def select(m: Making, x: Value, dim: int, index: Any) -> Value:
    d = axis(dim, x.rank)
    at = x.shape[d] + index if isinstance(index, int) and index < 0 else index
    return x.seen(m.shape(), lambda i: [*i[:d], at, *i[d:]])


@rule("split_with_sizes")
def split_with_sizes(m: Making, x: Value, sizes: Sequence[Any], dim: int = 0) -> tuple[Value, ...]:
    d, first, found = axis(dim, x.rank), 0, list[Value]()
    for number, n in enumerate(sizes):
        begin = first
        found.append(x.seen(m.shape(number), lambda i, b=begin: [*i[:d], i[d] + b, *i[d + 1 :]]))
        first = first + n
    return tuple(found)


@rule("getitem")
def getitem(m: Making, several: Sequence[Value], number: int) -> Value:
    del m
    return several[number]


@rule("flip")
def flip(m: Making, x: Value, dims: Sequence[int]) -> Value:
    turned = {axis(d, x.rank) for d in dims}
    return x.seen(
        m.shape(), lambda i: [x.shape[d] - 1 - j if d in turned else j for d, j in enumerate(i)]
    )


@rule("cat")
def cat(m: Making, tensors: Sequence[Value], dim: int = 0) -> Value:
    """One after the other: each where the index is in it, read at an index that it has."""
    parts = [t for t in tensors if not (t.rank == 1 and t.shape[0] == 0)]
    d = axis(dim, parts[0].rank)

    def at(index: Sequence[Any]) -> Any:
        value, last = None, 0
        begins = list[Any]()
        for part in parts:
            begins.append(last)
            last = last + part.shape[d]
        for part, begin in zip(reversed(parts), reversed(begins), strict=True):
            inside = hl.clamp(index[d] - begin, 0, part.shape[d] - 1)
            own = converted(part.at([*index[:d], inside, *index[d + 1 :]]), part.dtype, m.dtype)
            value = (
                own if value is None else hl.select(index[d] < begin + part.shape[d], own, value)
            )
        return value

    return Value(m.dtype, m.shape(), at)


@rule("constant_pad_nd")
def constant_pad_nd(m: Making, x: Value, pad: Sequence[int], number: float = 0) -> Value:
    """Beyond the edges a number; what is cut off is negative."""
    before = [0] * x.rank
    for k in range(0, len(pad), 2):
        before[x.rank - 1 - k // 2] = pad[k]
    moved = {x.rank - 1 - k // 2 for k in range(0, len(pad), 2) if pad[k] or pad[k + 1]}

    def at(index: Sequence[Any]) -> Any:
        places, inside = list(index), None
        for d in sorted(moved):
            i = index[d] - before[d]
            within = (i >= 0) & (i < x.shape[d])
            inside = within if inside is None else inside & within
            places[d] = hl.clamp(i, 0, x.shape[d] - 1)
        value = x.at(places)
        return value if inside is None else hl.select(inside, value, constant(number, m.dtype))

    return Value(m.dtype, m.shape(), at)


@rule("full", "full_like", "zeros_like", "ones_like")
def full(m: Making, like: Any, number: float = 0, **_: Any) -> Value:
    del like
    value = 1 if m.op.startswith("aten.ones") else number
    return Value(m.dtype, m.shape(), lambda _: constant(value, m.dtype))


@rule("prims.iota")
def iota(m: Making, length: Any, *, start: int = 0, step: int = 1, **_: Any) -> Value:
    del length
    kind = computed(m.dtype)
    return Value(m.dtype, m.shape(), lambda i: hl.cast(kind, i[0] * step + start))


@rule("upsample_nearest2d")
def upsample_nearest2d(m: Making, x: Value, size: Any = None, *scales: Any) -> Value:
    """By whole factors."""
    del size, scales
    shape = m.shape()
    pairs = [(shape[d], x.shape[d]) for d in (2, 3)]
    if not all(isinstance(a, int) and isinstance(b, int) and a % b == 0 for a, b in pairs):
        raise unsupported("a factor of magnification that is no whole number")
    down, across = (a // b for a, b in pairs)
    return x.seen(shape, lambda i: [i[0], i[1], i[2] / down, i[3] / across])
