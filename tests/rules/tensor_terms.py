"""Terms of tensor programs of any extents: products, convolutions, predicates, updates.

An index is a walk: a base and, for each digit of the lanes, a stride. Extents of 1 and strides of 0
are written as Halide would, nothing and a broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

Level = tuple[str, int]
"""A stride (a term, ``(Int 0)`` for none) and an extent."""


def number(value: int) -> str:
    return f"(Int {value})"


def symbol(name: str, times: int = 1) -> str:
    return f'(Sym "{name}")' if times == 1 else f'(Bop "*" (Sym "{name}") (Int {times}))'


def walk(base: str, levels: Sequence[Level]) -> str:
    """A nest of ramps, levels outermost first."""
    for stride, count in reversed(levels):
        if count == 1:
            continue
        base = f"(Broadcast {base} {count})" if stride == "(Int 0)" else _ramp(base, stride, count)
    return base


def _ramp(base: str, stride: str, count: int) -> str:
    return f"(Ramp {base} {stride} {count})"


def everywhere(scalar: str, lanes: int) -> str:
    return scalar if lanes == 1 else f"(Broadcast {scalar} {lanes})"


def both(*predicates: str) -> str:
    """A conjunction, from the left."""
    total, *rest = predicates
    for p in rest:
        total = f'(Bop "&&" {total} {p})'
    return total


@dataclass(frozen=True)
class Operand:
    """A factor: element type, strides along the digits, base, predicates."""

    kind: str
    strides: tuple[str, ...]
    base: str = '(Sym "a")'
    masks: tuple[str, ...] = ()
    buffer: str = "A"


@dataclass(frozen=True)
class Product:
    """acc[m, n, k] sums of A * B; ``extents`` outermost first, the last ``depth`` of them are
    reduced."""

    a: Operand
    b: Operand
    extents: tuple[int, ...]
    result: str = "float32"
    location: str = "wmma"
    swapped: bool = False
    acc_left: bool = True
    depth: int = 1

    @property
    def lanes(self) -> int:
        return prod(self.extents)

    @property
    def outputs(self) -> int:
        return prod(self.extents[: -self.depth])

    def mask(self, strides: Sequence[str], limit: str, base: str = '(Sym "t")', op: str = "<",
             right: bool = False) -> str:  # fmt: skip
        """A comparison of a walk over the digits with a scalar."""
        moving = walk(base, list(zip(strides, self.extents, strict=True)))
        sides = (
            (everywhere(limit, self.lanes), moving)
            if right
            else (moving, everywhere(limit, self.lanes))
        )
        return f'(Cmp "{op}" {sides[0]} {sides[1]})'

    def factor(self, operand: Operand) -> str:
        index = walk(operand.base, list(zip(operand.strides, self.extents, strict=True)))
        mask = both(*operand.masks) if operand.masks else f"(Always {self.lanes})"
        load = f'(Load "{operand.kind}" "{operand.buffer}" {index} {mask})'
        return load if operand.kind == self.result else f'(Cast "{self.result}" {load})'

    @property
    def reduction(self) -> str:
        factors = (self.factor(self.a), self.factor(self.b))
        left, right = reversed(factors) if self.swapped else factors
        return f'(Reduce "add" (Bop "*" {left} {right}) {self.outputs})'

    @property
    def update(self) -> str:
        """The statement that adds the reduction to a dense accumulator."""
        index = _ramp(number(0), number(1), self.outputs)
        load = f'(Load "{self.result}" "acc" {index} (Always {self.outputs}))'
        own = f'(Move "{self.location}" "mem" {load})'
        terms = (own, self.reduction) if self.acc_left else (self.reduction, own)
        total = f'(Bop "+" {terms[0]} {terms[1]})'
        return (
            f'(Store "acc" {index} (Move "mem" "{self.location}" {total}) (Always {self.outputs}))'
        )


Z, ONE = number(0), number(1)


def _matmul(
    extents: tuple[int, int, int], kinds: tuple[str, str, str] = ("float16", "float16", "float32"),
    location: str = "wmma", a: tuple[str, str] = (symbol("r"), ONE),
    b: tuple[str, str] = (ONE, symbol("c")), masks: str = "", swapped: bool = False,
) -> Product:  # fmt: skip
    """A by rows (m, k) and B by columns (n, k); ``masks``: which factor has predicates, and of
    which (``ra``: A one of rows), in capitals with the moving side on the right."""
    left = Operand(kinds[0], (a[0], Z, a[1]), symbol("a"), buffer="A")
    right = Operand(kinds[1], (Z, b[0], b[1]), symbol("b"), buffer="B")
    bare = Product(left, right, extents, kinds[2], location, swapped)
    made: dict[str, list[str]] = {"a": [], "b": []}
    for i, (axis, factor) in enumerate(zip(masks[::2], masks[1::2], strict=True)):
        walked = (number(1), Z, number(3)) if axis in "rR" else (Z, number(2), number(3))
        limit, base = symbol(f"limit{i}"), symbol(f"start{i}")
        made[factor].append(bare.mask(walked, limit, base, "<=", right=axis.isupper()))
    left, right = replace(left, masks=tuple(made["a"])), replace(right, masks=tuple(made["b"]))
    return replace(bare, a=left, b=right)


def _convolution(
    extents: tuple[int, ...], image: tuple[str, ...], kernel: tuple[str, ...],
    masks: tuple[tuple[str, ...], ...] = (), kernel_masks: tuple[tuple[str, ...], ...] = (),
    kinds: tuple[str, str, str] = ("float16", "float16", "float32"), location: str = "wmma",
    right: bool = False, depth: int = 1,
) -> Product:  # fmt: skip
    """Strides of the image and the kernel along the digits, and of their predicates."""
    a = Operand(kinds[0], image, symbol("a"), buffer="A")
    b = Operand(kinds[1], kernel, symbol("b"), buffer="B")
    bare = Product(a, b, extents, kinds[2], location, depth=depth)
    limits = ("s", "u", "v", "w")
    made = [
        tuple(
            bare.mask(m, symbol(limit), symbol(f"t{limit}"), right=right)
            for m, limit in zip(wanted, limits, strict=False)
        )
        for wanted in (masks, kernel_masks)
    ]
    a = Operand(a.kind, a.strides, a.base, made[0], "A")
    b = Operand(b.kind, b.strides, b.base, made[1], "B")
    return replace(bare, a=a, b=b)


def _numbers(*values: int) -> tuple[str, ...]:
    return tuple(map(number, values))


_BYTES = ("int8", "uint8", "int32")
_BF16 = ("bfloat16", "bfloat16", "float32")

PRODUCTS: dict[str, Product] = {
    "matmul, own predicates": _matmul((4, 6, 3), masks="racb"),
    "matmul, predicates of the other": _matmul((4, 6, 3), masks="carb"),
    "matmul, predicates of the other, from the right": _matmul((4, 6, 3), masks="CaRb"),
    "matmul, conjunctions": _matmul((4, 6, 3), masks="raca"),
    "matmul, conjunctions of the other": _matmul((4, 6, 3), masks="cbrb"),
    "matmul, K of 1": _matmul((4, 2, 1)),
    "matmul, one row of blocks": _matmul((2, 10, 3), swapped=True),
    "matmul, accumulates f16": _matmul((4, 6, 3), ("float16",) * 3),
    "matmul, symbolic strides": _matmul(
        (4, 6, 3), a=(symbol("r"), symbol("p", 2)), b=(symbol("q", 3), symbol("c"))
    ),
    "packed, K of whole groups": _matmul((3, 5, 4), _BF16, "amx"),
    "packed, K with a rest": _matmul((3, 5, 3), _BF16, "amx"),
    "packed, rows with gaps": _matmul((3, 5, 4), _BF16, "amx", a=(symbol("r"), number(2))),
    "packed, rows of one": _matmul((3, 5, 1), _BF16, "amx", a=(symbol("r"), number(2))),
    "packed bytes, K with a rest": _matmul((3, 4, 6), _BYTES, "amx"),
    "packed bytes with predicates": _matmul((3, 4, 8), _BYTES, "amx", masks="racb"),
    "packed band": _convolution(
        (12, 3), _numbers(2, 3), _numbers(0, 2), kinds=_BF16, location="amx"
    ),
    "packed band with a predicate": _convolution(
        (12, 4), _numbers(1, 1), _numbers(0, -1), (_numbers(1, 1),), kinds=_BF16, location="amx"
    ),
    "packed phases": _convolution(
        (3, 2, 3, 4), _numbers(40, 1, 0, 1), _numbers(0, 0, 5, 1), kinds=_BF16, location="amx"
    ),
    "stored in groups": _convolution(
        (3, 5, 3, 2), (symbol("r"), Z, number(2), ONE), (Z, number(2), symbol("g"), ONE),
        (_numbers(1, 0, 2, 1),), (_numbers(0, 3, 2, 1), _numbers(0, 1, 7, 4)), _BF16, "amx",
        depth=2,
    ),
    "stored in groups, no predicates": _convolution(
        (3, 5, 3, 2), (symbol("r"), Z, number(2), ONE), (Z, number(2), symbol("g"), ONE),
        kinds=_BF16, location="amx", depth=2,
    ),
    "stored in groups of bytes": _convolution(
        (2, 3, 2, 4), (symbol("r"), Z, number(4), ONE), (Z, number(4), symbol("g"), ONE),
        kernel_masks=(_numbers(0, 1, 0, 0),), kinds=_BYTES, location="amx", right=True, depth=2,
    ),
    "band": _convolution((24, 3), _numbers(4, 6), _numbers(0, 5)),
    "band, symbolic": _convolution(
        (24, 3), (symbol("p", 2), symbol("p", 3)), (Z, symbol("q"))
    ),
    "band, predicate along the band": _convolution(
        (24, 4), _numbers(2, 3), _numbers(0, 1), (_numbers(2, 3),)
    ),
    "band, predicate in its unit": _convolution(
        (24, 4), _numbers(2, 3), _numbers(0, 1), kernel_masks=(_numbers(4, 6),)
    ),
    "band, predicate of the taps": _convolution(
        (24, 4), _numbers(2, 3), _numbers(0, 1), kernel_masks=(_numbers(0, 1),)
    ),
    "band, predicate of the taps on the image": _convolution(
        (24, 4), _numbers(2, 3), _numbers(0, 1), (_numbers(0, 2),), (_numbers(0, 1),), right=True
    ),
    "band, conjunctions": _convolution(
        (24, 4), _numbers(2, 3), _numbers(0, 1), (_numbers(2, 3), _numbers(0, 5))
    ),
    "band, conjunctions of the image": _convolution(
        (24, 4), _numbers(2, 3), _numbers(0, 1), (_numbers(2, 3), _numbers(4, 6))
    ),
    "band, conjunctions of the taps": _convolution(
        (24, 4), _numbers(2, 3), _numbers(0, 1), kernel_masks=(_numbers(0, 1), _numbers(0, 2))
    ),
    "band backwards, predicate along the band": _convolution(
        (24, 4), _numbers(2, -3), _numbers(0, 1), (_numbers(4, -6),), right=True
    ),
    "band backwards, predicate of the taps": _convolution(
        (24, 4), _numbers(2, -3), _numbers(0, 1), kernel_masks=(_numbers(0, 1),)
    ),
    "band backwards, predicate of the taps, from the right": _convolution(
        (24, 4), _numbers(2, -3), _numbers(0, 1), (_numbers(0, 3),), right=True
    ),
    "band of rows with predicates": _convolution(
        (4, 6, 3), (symbol("r"), ONE, number(2)), _numbers(0, 0, 3),
        (_numbers(7, 1, 2), _numbers(0, 0, 1)), (_numbers(0, 1, 2),),
    ),
    "band of rows, along n alone": _convolution(
        (4, 6, 3), (symbol("r"), ONE, number(2)), _numbers(0, 0, 3), (_numbers(0, 1, 2),)
    ),
    "a single tap": _convolution((24, 1), _numbers(3, 0), _numbers(0, 0), (_numbers(0, 0),)),
    "one tap, symbolic": _convolution((4, 6, 1), (symbol("r"), symbol("p"), Z), _numbers(0, 0, 0)),
    "band along rows": _convolution(
        (4, 6, 3), (number(2), symbol("c"), number(3)), _numbers(0, 0, 2)
    ),
    "band along rows, one unit": _convolution(
        (4, 6, 3), (symbol("p", 4), ONE, symbol("p", 6)), _numbers(0, 0, 1)
    ),
    "phases": _convolution((2, 4, 3, 3), _numbers(50, 4, 0, 6), _numbers(0, 0, 3, 1)),
    "phases, predicate of the image": _convolution(
        (2, 4, 3, 3), (symbol("r"), number(2), Z, number(3)), _numbers(0, 0, 5, 2),
        (_numbers(7, 2, 0, 3),),
    ),
    "phases, predicate of the taps": _convolution(
        (2, 4, 3, 3), (symbol("r"), number(2), Z, number(3)), _numbers(0, 0, 5, 2),
        kernel_masks=(_numbers(0, 0, 3, 1),),
    ),
    "phases backwards, predicate of the image": _convolution(
        (2, 4, 3, 3), (symbol("r"), number(2), Z, number(-3)), _numbers(0, 0, 5, 2),
        (_numbers(7, 2, 0, -3),),
    ),
    "phases backwards, predicate of the taps": _convolution(
        (2, 4, 3, 3), (symbol("r"), number(2), Z, number(-3)), _numbers(0, 0, 5, 2),
        kernel_masks=(_numbers(0, 0, 3, 1),),
    ),
    "bytes": _matmul((4, 6, 3), ("int8", "int8", "int32")),
    "unsigned bytes": _matmul((4, 6, 3), ("uint8", "uint8", "int32"), masks="carb"),
}  # fmt: skip
"""Small updates that between them have every feature that the rules of tensor shapes look at."""
