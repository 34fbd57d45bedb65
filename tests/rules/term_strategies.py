"""Random well-typed terms: indices, predicates, values, and whole updates.

Index vectors are built from the lanes down, so that everything fits by construction; the first
alternative of every choice is the simplest, towards which Hypothesis shrinks.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tensor_terms import Operand, Product, everywhere, number, symbol

LANES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
NAMES = ("a", "b", "s", "t")
NARROW = ("int8", "uint8", "int16", "uint16", "float16", "bfloat16")
TYPES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "wmma": (
        ("float16", "float16", "float32"),
        ("float16", "float16", "float16"),
        ("bfloat16", "bfloat16", "float32"),
        ("int8", "int8", "int32"),
        ("uint8", "uint8", "int32"),
    ),
    "amx": (
        ("bfloat16", "bfloat16", "float32"),
        ("int8", "int8", "int32"),
        ("int8", "uint8", "int32"),
        ("uint8", "int8", "int32"),
        ("uint8", "uint8", "int32"),
    ),
}
"""Operands and accumulator of the instructions in each place."""

Draw = Any


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


@st.composite
def scalars(draw: Draw, depth: int = 1) -> str:
    """An int32: a constant, a symbol, and sums, differences, products, quotients of them."""
    match draw(st.integers(0, 5 if depth else 2)):
        case 0:
            return number(draw(st.integers(-4, 9)))
        case 1:
            return symbol(draw(st.sampled_from(NAMES)))
        case 2:
            return symbol(draw(st.sampled_from(NAMES)), draw(st.integers(2, 6)))
        case 3:
            op = draw(st.sampled_from("+-*"))
            return f'(Bop "{op}" {draw(scalars(depth - 1))} {draw(scalars(depth - 1))})'
        case _:
            op, by = draw(st.sampled_from("/%")), draw(st.integers(1, 6))
            return f'(Bop "{op}" {draw(scalars(depth - 1))} {number(by)})'


@st.composite
def indices(draw: Draw, lanes: int, depth: int = 3) -> str:
    """An int32 vector: nests of ramps and broadcasts, and arithmetic on them."""
    if lanes == 1 and draw(st.integers(0, 4)):
        return draw(scalars())
    if depth == 0:
        return everywhere(draw(scalars(0)), lanes)
    match draw(st.integers(0, 6)):
        case 0:
            return draw(_ramps(lanes, depth))
        case 1:
            return draw(_broadcasts(lanes, depth))
        case 2 | 3:
            op = draw(st.sampled_from("+-"))
            a, b = draw(indices(lanes, depth - 1)), draw(indices(lanes, depth - 1))
            return f'(Bop "{op}" {a} {b})'
        case 4:
            by = everywhere(draw(scalars(0)), lanes)
            return f'(Bop "*" {draw(indices(lanes, depth - 1))} {by})'
        case 5:
            by = everywhere(number(draw(st.integers(1, 8))), lanes)
            op = draw(st.sampled_from("/%"))
            return f'(Bop "{op}" {draw(indices(lanes, depth - 1))} {by})'
        case _:
            a, b = draw(indices(lanes, depth - 1)), draw(indices(lanes, depth - 1))
            return f'(Bop "{draw(st.sampled_from(["min", "max", "*"]))}" {a} {b})'


@st.composite
def _ramps(draw: Draw, lanes: int, depth: int) -> str:
    count = draw(st.sampled_from(divisors(lanes)))
    base = draw(indices(lanes // count, depth - 1))
    if lanes == count:
        return f"(Ramp {base} {draw(scalars(0))} {count})"
    if draw(st.booleans()):
        return f"(Ramp {base} {draw(scalars(0))} {count})"
    uniform = draw(st.booleans())
    inner = lanes // count
    stride = everywhere(draw(scalars(0)), inner) if uniform else draw(indices(inner, depth - 1))
    return f"(RampV {base} {stride} {count})"


@st.composite
def _broadcasts(draw: Draw, lanes: int, depth: int) -> str:
    count = draw(st.sampled_from(divisors(lanes)))
    return f"(Broadcast {draw(indices(lanes // count, depth - 1))} {count})"


@st.composite
def predicates(draw: Draw, lanes: int, depth: int = 2) -> str:
    """Comparisons of indices, their conjunctions, disjunctions and negations."""
    match draw(st.integers(0, 5 if depth else 1)):
        case 0:
            return f"(Always {lanes})"
        case 1 | 2:
            op = draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
            return f'(Cmp "{op}" {draw(indices(lanes, 2))} {draw(indices(lanes, 1))})'
        case 3:
            count = draw(st.sampled_from(divisors(lanes)))
            return f"(Broadcast {draw(predicates(lanes // count, depth - 1))} {count})"
        case 4:
            return f"(Not {draw(predicates(lanes, depth - 1))})"
        case _:
            op = draw(st.sampled_from(["&&", "||"]))
            a, b = draw(predicates(lanes, depth - 1)), draw(predicates(lanes, depth - 1))
            return f'(Bop "{op}" {a} {b})'


def zero(kind: str, lanes: int) -> str:
    literal = f'(FLit "{kind}" 0.0)' if "float" in kind else f'(Lit "{kind}" 0)'
    return everywhere(number(0) if kind == "int32" else literal, lanes)


@st.composite
def loads(draw: Draw, kind: str, lanes: int) -> str:
    index = draw(indices(lanes, 2))
    return f'(Load "{kind}" "x-{kind}" {index} {draw(predicates(lanes, 1))})'


@st.composite
def values(draw: Draw, kind: str, lanes: int, depth: int = 2) -> str:
    """Values of a type: loads, casts, selects against zero, products, broadcasts."""
    match draw(st.integers(0, 6 if depth else 0)):
        case 0:
            return draw(loads(kind, lanes))
        case 1:
            other = draw(st.sampled_from(NARROW))
            return f'(Cast "{kind}" {draw(values(other, lanes, depth - 1))})'
        case 2:
            inner = draw(values(kind, lanes, depth - 1))
            return f"(Select {draw(predicates(lanes, 1))} {inner} {zero(kind, lanes)})"
        case 3:
            first, second = draw(st.sampled_from(NARROW)), draw(st.sampled_from(NARROW))
            a, b = (f'(Cast "{kind}" {draw(values(t, lanes, 0))})' for t in (first, second))
            product = f'(Bop "*" {a} {b})'
            if draw(st.booleans()):
                return f"(Select {draw(predicates(lanes, 1))} {product} {zero(kind, lanes)})"
            return product
        case 4 if kind in ("int32", "float32"):
            narrow, middle = draw(st.sampled_from(NARROW)), draw(st.sampled_from(NARROW))
            a, b = (f'(Cast "{middle}" {draw(loads(narrow, lanes))})' for _ in range(2))
            return f'(Cast "{kind}" (Bop "*" {a} {b}))'
        case 5:
            count = draw(st.sampled_from(divisors(lanes)))
            return f"(Broadcast {draw(values(kind, lanes // count, depth - 1))} {count})"
        case _:
            return zero(kind, lanes)


@st.composite
def strides(draw: Draw, zeros: bool = True) -> str:
    """A stride: small, reversed, symbolic, none."""
    match draw(st.integers(0, 4)):
        case 0:
            return number(draw(st.integers(1, 4)))
        case 1 if zeros:
            return number(0)
        case 2:
            return number(draw(st.integers(-4, -1)))
        case 3:
            return symbol(draw(st.sampled_from(("p", "q"))))
        case _:
            return symbol(draw(st.sampled_from(("p", "q"))), draw(st.integers(-3, 6)))


@st.composite
def products(draw: Draw) -> Product:
    """Updates of any extents: matrix products, convolutions in one, two and more phases with any
    stride, dilation and direction, operands stored in groups, and accidents between them."""
    location = draw(st.sampled_from(("wmma", "amx")))
    kinds = draw(st.sampled_from(TYPES[location]))
    group = 4 if kinds[2] == "int32" else 2
    shape = draw(st.sampled_from(("matmul", "convolution", "rows", "phases", "packed", "any")))
    m, n = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    k, p = draw(st.integers(1, 5)), draw(st.integers(2, 3))
    none, step = number(0), strides(zeros=False)
    depth = 1
    match shape:
        case "matmul":
            extents: tuple[int, ...] = (m, n, k)
            a, b = (draw(step), none, draw(step)), (none, draw(step), draw(step))
        case "convolution":
            extents = (m, n, k)
            a = (draw(strides()), draw(step), draw(step))
            b = (none, none, draw(step))
        case "rows":
            extents = (m, n, k)
            a = (draw(step), draw(strides()), draw(step))
            b = (none, none, draw(step))
        case "phases":
            extents = (m, n, p, k)
            a = (draw(strides()), draw(step), none, draw(step))
            b = (none, none, draw(strides()), draw(step))
        case "packed":
            extents, depth = (m, n, k, group), 2
            a = (draw(step), none, number(group), number(1))
            b = (none, number(group), draw(step), number(1))
        case _:
            extents = (m, n, k)
            a = (draw(strides()), draw(strides()), draw(strides()))
            b = (draw(strides()), draw(strides()), draw(strides()))
    left = Operand(kinds[0], a, draw(scalars(0)), buffer="A")
    right = Operand(kinds[1], b, draw(scalars(0)), buffer="B")
    swapped, acc_left = draw(st.booleans()), draw(st.booleans())
    bare = Product(left, right, extents, kinds[2], location, swapped, acc_left, depth)
    return draw(_masked(bare))


@st.composite
def _masked(draw: Draw, bare: Product) -> Product:
    """Predicates that follow an operand's own walk, or any other."""
    operands: list[Operand] = []
    for operand in (bare.a, bare.b):
        masks: list[str] = []
        for _ in range(draw(st.integers(0, 2))):
            own = draw(st.booleans())
            walked = operand.strides if own else tuple(draw(strides()) for _ in bare.extents)
            op = draw(st.sampled_from(["<", "<=", ">", ">=", "=="]))
            limit, base = draw(scalars(0)), draw(scalars(0))
            masks.append(bare.mask(walked, limit, base, op, draw(st.booleans())))
        operands.append(
            Operand(operand.kind, operand.strides, operand.base, tuple(masks), operand.buffer)
        )
    return Product(
        operands[0], operands[1], bare.extents, bare.result, bare.location, bare.swapped,
        bare.acc_left, bare.depth,
    )  # fmt: skip
