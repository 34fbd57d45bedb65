"""Hand-written variants: statements around the accumulator, factors, several sums, predicates."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from indices import nest, splat
from machines import Array, Machine
from text_variants import (
    Arrays,
    Filter,
    Product,
    Variant,
    Writer,
    accumulate,
    assemble,
    cast,
    total,
    zeroed,
)

LANES = 256


def variants(m: Machine) -> Iterator[Variant]:
    yield from sums(m)
    yield from factors(m)
    yield from around(m)
    yield from planes(m)
    yield from masks(m)
    yield from layouts(m)


def sums(m: Machine) -> Iterator[Variant]:
    """How the accumulator gets its first value, and how many products are added."""
    p = Product(m.rows, m.columns, m.depth)
    shapes = {**p.shapes(m), "bias": (m.accumulator, (LANES,))}
    value = p.update(m, Writer())
    acc = f"acc[ramp(0, 1, {LANES})]"
    bias = f"bias[ramp(0, 1, {LANES})]"

    def made(name: str, lines: list[str], f: Callable[[Arrays], Array], n: int = 1) -> Variant:
        return Variant(
            name, m, assemble(m, shapes, lines, LANES), shapes, lambda x: f(x).reshape(-1), n
        )

    def ab(x: Arrays) -> Array:
        return p.compute(x).reshape(-1)

    yield made("initialised by the product", [f"{acc} = {value}"], ab)
    yield made(
        "initialised by one product, another added",
        [f"{acc} = {value}", accumulate(value, LANES, Writer())], lambda x: 2 * ab(x), 2,
    )  # fmt: skip
    yield made(
        "initialised by a bias",
        [f"{acc} = {bias}", accumulate(value, LANES, Writer())], lambda x: x["bias"] + ab(x),
    )  # fmt: skip
    yield made(
        "initialised by bias plus product", [f"{acc} = {bias} + {value}"],
        lambda x: x["bias"] + ab(x),
    )  # fmt: skip
    yield made(
        "initialised by product minus bias", [f"{acc} = {value} - {bias}"],
        lambda x: ab(x) - x["bias"],
    )  # fmt: skip
    yield made(
        "two products in one statement",
        [zeroed(m, LANES), f"{acc} = {value} + ({acc} + {value})"], lambda x: 2 * ab(x), 2,
    )  # fmt: skip
    yield made(
        "three products and a bias", [f"{acc} = (({value} + {bias}) + {value}) + {value}"],
        lambda x: 3 * ab(x) + x["bias"], 3,
    )  # fmt: skip
    a_levels, b_levels = p.levels()
    left = cast(m, f"A[{nest(0, a_levels)}]", LANES * p.k, m.a_type)
    right = cast(m, f"B[{nest(0, b_levels)}]", LANES * p.k, m.b_type)
    under = f"({m.accumulator}x{LANES})vector_reduce_add({left}*{right} + {right}*{left})"
    yield made(
        "two products under one sum", [zeroed(m, LANES), f"{acc} = {acc} + {under}"],
        lambda x: 2 * ab(x), 2,
    )  # fmt: skip
    yield made("only products under a sum", [f"{acc} = {under}"], lambda x: 2 * ab(x), 2)
    yield made(
        "the product is subtracted", [zeroed(m, LANES), f"{acc} = {acc} - {value}"],
        lambda x: -ab(x),
    )  # fmt: skip
    yield made(
        "the product is subtracted from a bias",
        [f"{acc} = {bias}", f"{acc} = {acc} - {value}"], lambda x: x["bias"] - ab(x),
    )  # fmt: skip


def factors(m: Machine) -> Iterator[Variant]:
    """A number times the product, inside and outside of the sum."""
    p = Product(m.rows, m.columns, m.depth)
    w = Writer()
    a_levels, b_levels = p.levels()
    count = LANES * p.k
    a = cast(m, f"A[{nest(0, a_levels)}]", count, m.a_type)
    b = cast(m, f"B[{nest(0, b_levels)}]", count, m.b_type)
    acc = f"acc[ramp(0, 1, {LANES})]"
    shapes = {**p.shapes(m), "alpha": (m.accumulator, (4,))}

    def wide(value: str, lanes: int = count) -> str:
        return splat(value, lanes)

    def made(name: str, value: str, scale: Callable[[Arrays], object], n: int = 1) -> Variant:
        lines = [zeroed(m, LANES), f"{acc} = {value} + {acc}"]
        return Variant(
            name, m, assemble(m, shapes, lines, LANES), shapes,
            lambda x: (p.compute(x) * scale(x)).reshape(-1), n,
        )  # fmt: skip

    def reduce(product: str) -> str:
        return f"({m.accumulator}x{LANES})vector_reduce_add({product})"

    three, quarter = m.number(3), m.number(4)
    yield made("factor on the left", reduce(f"({wide(three)}*{a})*{b}"), lambda _: 3)
    yield made("factor in the middle", reduce(f"{a}*({wide(three)}*{b})"), lambda _: 3)
    yield made("factor on the right", reduce(f"({a}*{b})*{wide(three)}"), lambda _: 3)
    yield made("factor first", reduce(f"{wide(three)}*({a}*{b})"), lambda _: 3)
    yield made("two factors", reduce(f"({wide(three)}*{a})*({b}*{wide(quarter)})"), lambda _: 12)
    yield made(
        "factor outside of the sum", f"{wide(three, LANES)}*{total(m, a, b, LANES, w)}",
        lambda _: 3,
    )  # fmt: skip
    yield made(
        "factors inside and outside",
        f"{reduce(f'({wide(three)}*{a})*{b}')}*{wide(quarter, LANES)}", lambda _: 12,
    )  # fmt: skip
    yield made("factor from memory", reduce(f"({wide('alpha[2]')}*{a})*{b}"),
               lambda x: x["alpha"][2])  # fmt: skip
    yield made("power of two", reduce(f"({wide(m.number(2))}*{a})*{b}"), lambda _: 2)
    both = f"{reduce(f'({wide(three)}*{a})*{b}')} + {reduce(f'{a}*({b}*{wide(three)})')}"
    yield made("one factor in two sums", both, lambda _: 6, 2)


def around(m: Machine) -> Iterator[Variant]:
    """What is done with the accumulator when it is read."""
    f = Filter(LANES, 6)
    shapes = {**f.shapes(m), "bias": (m.accumulator, (LANES,))}
    update = accumulate(f.update(m, Writer()), LANES, Writer())
    read, index = f"acc[ramp(0, 1, {LANES})]", f"ramp(0, 1, {LANES})"
    zero, half = splat(m.zero, LANES), splat(m.number(2), LANES)
    bias = f"bias[{index}]"
    table: dict[str, tuple[str, Callable[[Array, Array], Array]]] = {
        "bias": (f"{read} + {bias}", lambda v, b: v + b),
        "relu of bias": (f"max({bias} + {read}, {zero})", lambda v, b: np.maximum(v + b, 0)),
        "clamped": (f"min(max({read}, {zero}), {half})", lambda v, b: np.clip(v, 0, 2)),
        "scaled": (f"{half}*{read} - {bias}", lambda v, b: 2 * v - b),
        "squared": (f"{read}*{read}", lambda v, b: v * v),
        "select": (
            f"select({bias} < {read}, {read}, {bias})", lambda v, b: np.where(b < v, v, b),
        ),
        "let-bound": (f"(let v = {read} in v*v + v)", lambda v, b: v * v + v),
    }  # fmt: skip
    for name, (value, meaning) in table.items():
        text = assemble(m, shapes, [zeroed(m, LANES), update], LANES, f"out[{index}] = {value}")
        yield Variant(
            f"read: {name}", m, text, shapes,
            lambda x, meaning=meaning: meaning(f.compute(x), x["bias"]),
        )  # fmt: skip
    back = f"out[ramp({LANES - 1}, -1, {LANES})] = {read}"
    text = assemble(m, shapes, [zeroed(m, LANES), update], LANES, back)
    yield Variant("read: backwards", m, text, shapes, lambda x: f.compute(x)[::-1])


def planes(m: Machine) -> Iterator[Variant]:
    """Both axes of a 2-D convolution in one statement, in either order."""
    for name, rows, taps, stride, turned in (
        ("rows outside", 3, 5, 1, False),
        ("rows inside", 3, 5, 1, True),
        ("downsampling", 2, 4, 2, False),
        ("one row", 1, 5, 1, False),
        ("columns of one tap", 4, 1, 1, False),
    ):
        image = [(1, taps), ("I.stride.1", rows)]
        kernel = [(1, taps), ("K.stride.1", rows)]
        if turned:
            image, kernel = image[::-1], kernel[::-1]
        count = LANES * rows * taps
        a = cast(m, f"I[{nest(0, [*image, (stride, LANES)])}]", count, m.a_type)
        b = cast(m, f"K[{nest(0, kernel)}]", rows * taps, m.b_type)
        value = total(m, a, f"x{LANES}({b})", LANES, Writer())
        shapes = {
            "I": (m.a_type, (stride * (LANES - 1) + taps, rows)),
            "K": (m.b_type, (taps, rows)),
        }

        def compute(x: Arrays, rows: int = rows, taps: int = taps, stride: int = stride) -> Array:
            out = np.zeros(LANES)
            for s in range(rows):
                for t in range(taps):
                    out += x["K"][s, t] * x["I"][s, t:][::stride][:LANES]
            return out

        lines = [zeroed(m, LANES), accumulate(value, LANES, Writer())]
        unable = {"wmma": "in another unit than along", "amx": "tile registers"}
        why = "" if taps > 1 else unable[m.name]
        yield Variant(
            f"plane, {name}", m, assemble(m, shapes, lines, LANES), shapes, compute,
            rows if taps > 1 else 1, why,
        )  # fmt: skip


def masks(m: Machine) -> Iterator[Variant]:
    """Loads that stop at an edge."""
    f = Filter(LANES, 6)
    count = LANES * f.taps
    walk = nest(0, f.levels()[0])
    taps = cast(m, f"x{LANES}(K[ramp(0, 1, 6)])", count, m.b_type)
    shapes = f.shapes(m)
    limit = 201
    below = f"({walk} < {splat(limit, count)})"
    load = f"I[{walk} if {below}]"
    zero = splat({"int8": "cast<int8>(0)"}.get(m.a_type, "0.0h"), count)

    def compute(x: Arrays) -> Array:
        image = np.where(np.arange(x["I"].size) < limit, x["I"], 0)
        return f.compute({"I": image, "K": x["K"]})

    forms = {
        "predicate": cast(m, load, count, m.a_type),
        "select outside of the cast": (
            f"select({below}, {cast(m, f'I[{walk}]', count, m.a_type)}, {splat(m.zero, count)})"
        ),
        "predicate, other side": cast(
            m, f"I[{walk} if {splat(limit, count)} > {walk}]", count, m.a_type
        ),
        "two predicates": cast(
            m, f"I[{walk} if {below} && ({splat(-1, count)} < {walk})]", count, m.a_type
        ),
    }
    if m.a_type == "float16":
        forms["select inside of the cast"] = cast(
            m, f"select({below}, I[{walk}], {zero})", count, m.a_type
        )
    for name, a in forms.items():
        lines = [zeroed(m, LANES), accumulate(total(m, a, taps, LANES, Writer()), LANES, Writer())]
        yield Variant(f"masked, {name}", m, assemble(m, shapes, lines, LANES), shapes, compute)


def layouts(m: Machine) -> Iterator[Variant]:
    """Operands of products that lie in memory in unusual ways."""
    rows, columns, depth = m.rows, m.columns, m.depth
    count = rows * columns * depth

    def made(
        name: str, a_levels: list[tuple[int | str, int]], b_levels: list[tuple[int | str, int]],
        shapes: dict[str, tuple[int, ...]], compute: Callable[[Arrays], Array], n: int = 1,
    ) -> Variant:  # fmt: skip
        a = cast(m, f"A[{nest(0, a_levels)}]", count, m.a_type)
        b = cast(m, f"B[{nest(0, b_levels)}]", count, m.b_type)
        kinds = {"A": (m.a_type, shapes["A"]), "B": (m.b_type, shapes["B"])}
        value = accumulate(total(m, a, b, LANES, Writer()), LANES, Writer())
        text = assemble(m, kinds, [zeroed(m, LANES), value], LANES)
        return Variant(name, m, text, kinds, lambda x: compute(x).reshape(-1), n)

    row = [("B.stride.1", depth), (1, columns), (0, rows)]
    yield made(
        "rows of A that overlap", [(1, depth), (0, columns), (3, rows)], row,
        {"A": (3 * (rows - 1) + depth,), "B": (columns, depth)},
        lambda x: np.lib.stride_tricks.sliding_window_view(x["A"], depth)[::3][:rows] @ x["B"],
    )  # fmt: skip
    yield made(
        "every other column of A", [(2, depth), (0, columns), ("A.stride.1", rows)], row,
        {"A": (2 * depth, rows), "B": (columns, depth)}, lambda x: x["A"][:, ::2] @ x["B"],
    )  # fmt: skip
    yield made(
        "one row of A again and again", [(1, depth), (0, columns), (0, rows)], row,
        {"A": (depth,), "B": (columns, depth)},
        lambda x: np.broadcast_to(x["A"] @ x["B"], (rows, columns)),
    )  # fmt: skip
    half = depth // 2
    yield made(
        "depth of two dimensions",
        [(1, half), ("A.stride.2", 2), (0, columns), ("A.stride.1", rows)],
        [("B.stride.1", half), ("B.stride.2", 2), (1, columns), (0, rows)],
        {"A": (half, rows, 2), "B": (columns, half, 2)},
        lambda x: sum(x["A"][i] @ x["B"][i] for i in (0, 1)), 2,
    )  # fmt: skip
    pair = 4 if m.a_type in ("int8", "uint8") else 2
    yield made(
        "B in VNNI order",
        [(1, depth), (0, columns), ("A.stride.1", rows)],
        [(1, pair), ("B.stride.2", depth // pair), (pair, columns), (0, rows)],
        {"A": (depth, rows), "B": (pair, columns, depth // pair)},
        lambda x: x["A"] @ np.swapaxes(x["B"], 1, 2).reshape(depth, columns),
        1 if m.name == "amx" else pair,
    )  # fmt: skip
