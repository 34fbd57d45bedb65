"""What the relations of ``rules/*.egg`` claim about values, as functions that check one row.

A relation is in ``CLAIMS`` (its rows are true statements about lanes, types or numbers; of a
question, what its answers rely on), in
``ASKS`` (a question that rules put to each other; any row is right), or in ``FACTS`` (given for the
target). A relation in none of them is an error of ``tests/rules/test_soundness.py``: nothing that
rules derive goes unchecked.

A function's row has its output last. Symbols, memory and hence all values come in several versions,
shape (WORLDS, lanes); a claim holds if it holds in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd, prod
from typing import cast

import numpy as np

from selector.eqsat.valuation import Array, World
from selector.intrinsics.calls import lanes, matrix
from selector.intrinsics.functions import unpack_vnni
from selector.ir import arithmetic
from selector.ir.types import INT32, Kind, Type, limits

Row = tuple[object, ...]
Claim = Callable[[World, Row], bool]

ASKS: Mapping[str, str] = {
    "want": "write a vector as a ramp of n parts",
    "demand": "a tile whose extents make the lanes",
    "demand-packed": "a tile in groups",
    "demand-phased": "a tile of four levels",
    "phases": "where a period of the columns may be",
    "factor": "a stride as unit times constant",
    "statement": "the statements of the scope",
}
"""Relations that put questions or name things; their rows say nothing about values. What answers
rely on is proved of every rule that asks (``selector.workbench.prove``)."""

FACTS: Mapping[str, str] = {
    "instruction": "shapes and types, from the records",
    "part": "shapes, types and distance of windows, from the records",
    "packing": "order of the second factor, from the records",
    "configurable": "tiles of any size, from the records",
}
"""Relations whose rows are given; ``tests/intrinsics`` checks the records."""


def same(a: Array, b: Array) -> bool:
    """Whether two values agree lane by lane, in all worlds; one NaN is as good as another."""
    return a.shape == b.shape and bool(np.all(agreeing(a, b)))


def agreeing(a: Array, b: Array) -> Array:
    """Where two values of one shape agree."""
    return (a == b) | ((a != a) & (b != b))


def _ints(*values: object) -> tuple[int, ...]:
    return tuple(int(cast(int, v)) for v in values)


def _scalars(world: World, classes: Sequence[object]) -> list[Array] | None:
    """The classes' values as (WORLDS, 1), or None if one is no int32 scalar."""
    if any(world.type(c) != INT32 for c in classes):
        return None
    return [world.of(c).astype(np.int64) for c in classes]


def _affine(world: World, base: object, steps: Sequence[object], digits: Array) -> Array | None:
    """base + sum of digit * step over all lanes, in the type of the base; ``digits`` is
    (steps, lanes). What is no integer has equal parts only. None where types do not go together."""
    kind, strides = world.type(base), [world.of(s) for s in steps]
    if kind.lanes != 1 or any(world.type(s) not in (kind, INT32) for s in steps):
        return None
    start = np.broadcast_to(world.of(base), (len(world.of(base)), digits.shape[1]))
    if not kind.is_integer:
        return None if any(map(np.any, strides)) else start
    total = start.astype(np.int64)
    for digit, step in zip(digits, strides, strict=True):
        total = total + digit[None, :] * step.astype(np.int64)
    return arithmetic.cast(total, kind)


def _digits(*extents: int) -> Array:
    """The digits of every lane, outermost first: (extents, lanes)."""
    return np.indices(extents).reshape(len(extents), -1)


def _is_affine(world: World, e: object, base: object, steps: Row, digits: Array) -> bool:
    expected = _affine(world, base, steps, digits)
    typed = world.type(e).element == world.type(base)
    return typed and expected is not None and same(world.of(e), expected)


def _tile(world: World, row: Row) -> bool:
    e, m, n, k, base, *steps = row
    return _is_affine(world, e, base, tuple(steps), _digits(*_ints(m, n, k)))


def _phased(world: World, row: Row) -> bool:
    e, m, q, p, k, base, *steps = row
    return _is_affine(world, e, base, tuple(steps), _digits(*_ints(m, q, p, k)))


def _tile_packed(world: World, row: Row) -> bool:
    e, m, n, k, g, base, along_m, along_n, inside, groups = row
    rows, columns, depth, packing = _ints(m, n, k, g)
    if packing < 1 or depth % packing:
        return False
    digits = _digits(rows, columns, depth // packing, packing)
    return _is_affine(world, e, base, (along_m, along_n, groups, inside), digits)


def _total(world: World, products: Array, kind: object) -> Array:
    """Sums of products (int64 or float64) as values of a type: integers wrap around."""
    return arithmetic.cast(products, Type.parse(str(kind)))


def _wide(values: Array) -> Array:
    return values.astype(np.float64 if values.dtype.kind == "f" else np.int64)


def _typed(world: World, pairs: Sequence[tuple[object, object]]) -> bool:
    return all(str(world.type(cls).element) == kind for cls, kind in pairs)


def _product(world: World, row: Row) -> bool:
    reduction, a, b, count, depth, kind = row
    total, terms = _ints(count, depth)
    scalar = Type.parse(str(kind))
    left, right = (arithmetic.cast(world.of(c), scalar) for c in (a, b))
    if left.shape != right.shape or left.shape[1] != total * terms:
        return False
    # in the product's own type: a narrow one may wrap, and so may its sum
    products = (_wide(left) * _wide(right)).astype(arithmetic.dtype_of(scalar))
    sums = _wide(products).reshape(len(left), total, terms).sum(axis=-1)
    return _typed(world, [(reduction, kind)]) and same(
        world.of(reduction), _total(world, sums, kind)
    )


def _block(world: World, row: Row) -> bool:
    """Extents of a block, or of its parts, make all lanes."""
    extents = _ints(*row[1:])
    return min(extents) > 0 and prod(extents) == world.type(row[0]).lanes


def _grouped_block(world: World, row: Row) -> bool:
    """A block whose terms are whole groups of more than one."""
    depth, packing = _ints(row[3], row[4])
    return packing > 1 and depth % packing == 0 and _block(world, row[:4])


def _band_mask(world: World, row: Row) -> bool:
    """A block with phases, and a band that goes forth or back."""
    stride, dilation, direction = _ints(*row[5:8])
    return min(stride, dilation) > 0 and direction in (1, -1) and _block(world, row[:5])


def _multiplied(world: World, r: object, left: Array, right: Array, types: Row) -> bool:
    """r = left * right for (WORLDS, M, K) and (WORLDS, K, N), taken in the type of r."""
    scalar = Type.parse(str(types[2]))
    left, right = arithmetic.cast(left, scalar), arithmetic.cast(right, scalar)
    expected = _total(world, lanes(_wide(left) @ _wide(right)), types[2])
    return same(world.of(r), expected) and _typed(world, [(r, types[2])])


def _matmul(world: World, row: Row) -> bool:
    r, m, n, k, a, b, *types = row
    rows, columns, depth = _ints(m, n, k)
    left, right = matrix(world.of(a), rows, depth), matrix(world.of(b), depth, columns)
    return _typed(world, [(a, types[0]), (b, types[1])]) and _multiplied(
        world, r, left, right, tuple(types)
    )


def _packed_matmul(world: World, row: Row) -> bool:
    r, m, n, k, g, a, b, *types = row
    rows, columns, depth, packing = _ints(m, n, k, g)
    groups = -(-depth // packing)
    if world.type(b).lanes != groups * packing * columns:
        return False
    left = matrix(world.of(a), rows, depth)
    right = unpack_vnni(world.of(b), depth, columns, packing)
    return _typed(world, [(a, types[0]), (b, types[1])]) and _multiplied(
        world, r, left, right, tuple(types)
    )


def _dense_rows(world: World, row: Row) -> bool:
    """The same lanes, in a temporary or in rows that are dense in memory."""
    a, dense = row
    return same(world.of(a), world.of(dense)) and any(
        _is_dense(world, n.name, n.args)
        for n in world.graph.classes[dense]  # type: ignore[index]
    )


def _is_dense(world: World, name: str, args: Row) -> bool:
    if name == "Materialize":
        return True
    if name != "Matrix":
        return False
    return bool(np.all(world.of(args[5]) == 1)) or args[6] == 1


def _split(world: World, row: Row) -> bool:
    p, m, n, k, _, a, b = row
    rows, columns, depth = _ints(m, n, k)
    left, right = matrix(world.of(a), rows, depth), matrix(world.of(b), depth, columns)
    both = np.logical_and(left[:, :, None, :], np.swapaxes(right, -1, -2)[:, None, :, :])
    return same(world.of(p), both.reshape(len(both), -1))


def _packed_split(world: World, row: Row) -> bool:
    """p[m, n, k] = pB[k / packing, n, k % packing]."""
    p, m, n, k, g, packed = row
    rows, columns, depth, packing = _ints(m, n, k, g)
    right = np.swapaxes(unpack_vnni(world.of(packed), depth, columns, packing), -1, -2)
    everywhere = np.repeat(right[:, None, :, :], rows, axis=1)
    return depth % packing == 0 and same(world.of(p), everywhere.reshape(len(right), -1))


def _band_split(world: World, row: Row) -> bool:
    p, m, q, ph, k, stride, dilation, direction, image, taps = row
    rows, outputs, phases, depth, st, d = _ints(m, q, ph, k, stride, dilation)
    height = d * (depth - 1) + st * (outputs - 1) + 1
    i, j, phase, r = _digits(rows, outputs, phases, depth)
    tap = r if direction == 1 else depth - 1 - r
    left, right = matrix(world.of(image), rows, height), matrix(world.of(taps), phases, depth)
    both = np.logical_and(left[:, i, st * j + d * tap], right[:, phase, tap])
    return st > 0 and d > 0 and same(world.of(p), both)


def _convolve(world: World, row: Row) -> bool:
    i, j, m, q, ph, k, base, unit, along_m, stride, dilation, direction, index = row
    rows, outputs, phases, depth, st, d = _ints(m, q, ph, k, stride, dilation)
    if st <= 0 or d <= 0 or direction not in (1, -1):
        return False
    row_of, output, phase, r = _digits(rows, outputs, phases, depth)
    tap = r if direction == 1 else depth - 1 - r
    walk = np.array([row_of, st * output + d * tap])
    taps = matrix(world.of(index), phases, depth)[:, phase, tap]
    return _is_affine(world, i, base, (along_m, unit), walk) and same(world.of(j), taps)


def _convolve_rows(world: World, row: Row) -> bool:
    i, m, n, k, base, unit, along_n, stride, dilation = row
    rows, columns, depth, st, d = _ints(m, n, k, stride, dilation)
    row_of, column, r = _digits(rows, columns, depth)
    walk = np.array([column, st * row_of + d * r])
    return st > 0 and d > 0 and _is_affine(world, i, base, (along_n, unit), walk)


def _scaled(world: World, row: Row) -> bool:
    scalars = _scalars(world, row[:2])
    return scalars is not None and same(scalars[0], scalars[1] * _ints(row[2])[0])


def _divided(world: World, row: Row) -> bool:
    """e = divisor * quotient + remainder, with 0 <= remainder <= most < divisor."""
    e, divisor, quotient, remainder, most = row
    by, bound = _ints(divisor, most)
    rest = world.of(remainder).astype(np.int64)
    total = by * world.of(quotient).astype(np.int64) + rest
    if not world.type(e) == world.type(quotient) == world.type(remainder):
        return False
    small = bool(np.all(rest >= 0)) and bool(np.all(rest <= bound)) and bound < by
    return small and same(world.of(e).astype(np.int64), total)


def _zero(world: World, row: Row) -> bool:
    return not np.any(world.of(row[0]))


_PRECISION = {"float16": (11, 5), "bfloat16": (8, 8), "float32": (24, 8), "float64": (53, 11)}


def _embeds(_: World, row: Row) -> bool:
    narrow, wide = (Type.parse(str(t)) for t in row)
    if narrow.is_float and wide.is_float:
        pairs = zip(_PRECISION[str(narrow)], _PRECISION[str(wide)], strict=True)
        return all(a <= b for a, b in pairs)
    if not narrow.is_integer:
        return False
    if wide.is_float:
        return narrow.bits - (narrow.kind is Kind.INT) <= _PRECISION[str(wide)][0] < 25
    low, high = limits(wide)
    return low <= limits(narrow)[0] and limits(narrow)[1] <= high


def _product_fits(world: World, row: Row) -> bool:
    operand, result = (Type.parse(str(t)) for t in row)
    if not (operand.is_integer and result.is_integer):
        return False
    low, high = limits(operand)
    products = (low * low, low * high, high * high)
    return limits(result)[0] <= min(products) and max(products) <= limits(result)[1]


def _gcd(_: World, row: Row) -> bool:
    a, b, divisor = _ints(*row)
    return gcd(a, b) == divisor


def _lanes(world: World, row: Row) -> bool:
    return world.type(row[0]).lanes == row[1]


CLAIMS: Mapping[str, Claim] = {
    "lanes": _lanes,
    "gcd": _gcd,
    "want-gcd": lambda _, row: min(_ints(*row)) > 0,
    "want-divided": lambda _, row: _ints(row[1])[0] > 0,
    "mask": lambda world, row: _block(world, row[:4]),
    "packed-mask": _grouped_block,
    "band-mask": _band_mask,
    "zero": _zero,
    "embeds": _embeds,
    "product-fits": _product_fits,
    "tile": _tile,
    "phased": _phased,
    "tile-packed": _tile_packed,
    "product": _product,
    "block": _block,
    "columns": _block,
    "split": _split,
    "band-split": _band_split,
    "packed-split": _packed_split,
    "scaled": _scaled,
    "divided": _divided,
    "convolve": _convolve,
    "convolve-rows": _convolve_rows,
    "matmul": _matmul,
    "packed-matmul": _packed_matmul,
    "stored-matmul": _packed_matmul,
    "dense-rows": _dense_rows,
}
"""What each relation or function claims."""
