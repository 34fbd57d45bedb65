"""Variants as loop IR: what is computed is a NumPy function, how it is written varies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from indices import STYLES, Level
from machines import TYPES, Array, Machine, random_array, real

from selector.ir.module import Module
from selector.ir.parser import parse_module

Arrays = Mapping[str, Array]
Shapes = Mapping[str, tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class Variant:
    """A program, the NumPy function that says what it computes from float64 inputs, and the number
    of instructions' statements that it must have."""

    name: str
    machine: Machine
    text: str
    shapes: Shapes  # name -> type, extents innermost first
    reference: Callable[[Arrays], Array]
    statements: int = 1
    why: str = ""  # the reason of a miss that is known

    def module(self) -> Module:
        return parse_module(self.text, self.name)

    def inputs(self, seed: int = 0) -> dict[str, Array]:
        rng = np.random.default_rng(seed)
        return {
            name: random_array(kind, tuple(reversed(extents)), rng)
            for name, (kind, extents) in self.shapes.items()
        }

    def expected(self, arrays: Arrays) -> Array:
        wide = {name: real(value, self.shapes[name][0]) for name, value in arrays.items()}
        return self.reference(wide)


@dataclass(frozen=True)
class Writer:
    """The choices that leave the computation as it is."""

    style_a: str = "nest"
    style_b: str = "nest"
    swapped: bool = False
    acc_left: bool = False
    cast: str = "outside"  # "outside" or "inside" the broadcast
    base: int = 0


def cast(machine: Machine, value: str, lanes: int, kind: str) -> str:
    return value if kind == machine.accumulator else f"{machine.accumulator}x{lanes}({value})"


def operand(m: Machine, buffer: str, levels: list[Level], w: Writer, style: str, kind: str) -> str:
    """A load over all lanes in the accumulator's type; copies outside of it where they are
    outermost."""
    inner = list(levels)
    copies = 1
    while inner and str(inner[-1][0]) == "0" and style in ("nest", "sums", "halves"):
        copies *= inner.pop()[1]
    count = int(np.prod([n for _, n in inner], initial=1))
    load = f"{buffer}[{STYLES[style](w.base, inner)}]"
    if copies == 1:
        return cast(m, load, count, kind)
    if w.cast == "inside":
        return f"x{copies}({cast(m, load, count, kind)})"
    return cast(m, f"x{copies}({load})", count * copies, kind)


def total(m: Machine, a: str, b: str, lanes: int, w: Writer) -> str:
    left, right = (b, a) if w.swapped else (a, b)
    return f"({m.accumulator}x{lanes})vector_reduce_add({left}*{right})"


def accumulate(value: str, lanes: int, w: Writer) -> str:
    acc = f"acc[ramp(0, 1, {lanes})]"
    return f"{acc} = {acc} + {value}" if w.acc_left else f"{acc} = {value} + {acc}"


def assemble(
    m: Machine, shapes: Shapes, statements: list[str], lanes: int, out: str = "",
    out_type: str = "",
) -> str:  # fmt: skip
    """Module text: an accumulator of ``lanes`` around the statements and a read."""
    lines = ["module variant"]
    for name, (kind, extents) in shapes.items():
        strides = ("1", *(f"{name}.stride.{i}" for i in range(1, len(extents))))
        dims = ", ".join(f"(0, {e}, {s})" for e, s in zip(extents, strides, strict=True))
        lines.append(f"input {name}: {kind} [{dims}]")
    lines.append(f"output out: {out_type or m.accumulator} [(0, {lanes}, 1)]")
    lines += ["body {", f"allocate acc[{m.accumulator} * {lanes}] in {m.memory}", *statements]
    lines += [out or f"out[ramp(0, 1, {lanes})] = acc[ramp(0, 1, {lanes})]", "}"]
    return "\n".join(lines)


def zeroed(m: Machine, lanes: int) -> str:
    return f"acc[ramp(0, 1, {lanes})] = x{lanes}({m.zero})"


# ---------------------------------------------------------------------- matrix products


@dataclass(frozen=True)
class Product:
    """C[m, n] = sum_k A[m, k] * B[k, n]; "row": k fastest in A, n fastest in B."""

    m: int
    n: int
    k: int
    a_layout: str = "row"
    b_layout: str = "row"

    def levels(self) -> tuple[list[Level], list[Level]]:
        am, ak = ("A.stride.1", 1) if self.a_layout == "row" else (1, "A.stride.1")
        bk, bn = ("B.stride.1", 1) if self.b_layout == "row" else (1, "B.stride.1")
        return (
            [(ak, self.k), (0, self.n), (am, self.m)],
            [(bk, self.k), (bn, self.n), (0, self.m)],
        )

    def shapes(self, m: Machine, slack: int = 0) -> Shapes:
        a = (self.k, self.m) if self.a_layout == "row" else (self.m, self.k)
        b = (self.n, self.k) if self.b_layout == "row" else (self.k, self.n)
        return {
            "A": (m.a_type, (a[0] + slack, a[1])),
            "B": (m.b_type, (b[0] + slack, b[1])),
        }

    def compute(self, x: Arrays, base: int = 0) -> Array:
        a = x["A"] if self.a_layout == "row" else x["A"].T
        b = x["B"] if self.b_layout == "row" else x["B"].T
        a = a[:, base:] if self.a_layout == "row" else a[base:, :]
        b = b[:, base:] if self.b_layout == "row" else b[base:, :]
        return a[: self.m, : self.k] @ b[: self.k, : self.n]

    def update(self, m: Machine, w: Writer) -> str:
        a_levels, b_levels = self.levels()
        a = operand(m, "A", a_levels, w, w.style_a, m.a_type)
        b = operand(m, "B", b_levels, w, w.style_b, m.b_type)
        return total(m, a, b, self.m * self.n, w)

    def variant(self, name: str, m: Machine, w: Writer) -> Variant:
        lanes, shapes = self.m * self.n, self.shapes(m, w.base)
        update = accumulate(self.update(m, w), lanes, w)
        text = assemble(m, shapes, [zeroed(m, lanes), update], lanes)
        return Variant(name, m, text, shapes, lambda x: self.compute(x, w.base).reshape(-1))


def products(m: Machine) -> Iterator[Variant]:
    size = Product(m.rows, m.columns, m.depth)
    for style in STYLES:
        for a_layout, b_layout in (("row", "row"), ("column", "column")):
            p = Product(size.m, size.n, size.k, a_layout, b_layout)
            w = Writer(style, style)
            yield p.variant(f"product {a_layout} {b_layout}, {style}", m, w)
    styles = list(STYLES)
    for i, style in enumerate(styles):
        other = styles[(i + 5) % len(styles)]
        p = Product(size.m, size.n, size.k, *(("row", "column"), ("column", "row"))[i % 2])
        yield p.variant(f"product mixed, {style} by {other}", m, Writer(style, other, base=3))
    for swapped in (False, True):
        for acc_left in (False, True):
            for where in ("inside", "outside"):
                w = Writer(swapped=swapped, acc_left=acc_left, cast=where)
                yield size.variant(
                    f"product, {'B*A' if swapped else 'A*B'}, "
                    f"{'acc first' if acc_left else 'acc last'}, cast {where}", m, w,
                )  # fmt: skip
    for rows, columns, depth in (
        (32, 8, 16), (8, 32, 16), (32, 32, 7), (48, 32, 1), (64, 16, 33), (16, 48, 40),
    ):  # fmt: skip
        if rows * columns * depth < 65536:
            yield Product(rows, columns, depth).variant(
                f"product of {rows} x {columns} x {depth}", m, Writer()
            )
    for kinds in TYPES[m.name]:
        typed = m.with_types(*kinds)
        yield size.variant(f"product of {kinds[0]} by {kinds[1]} to {kinds[2]}", typed, Writer())


# ---------------------------------------------------------------------- convolutions


@dataclass(frozen=True)
class Filter:
    """O[q, p] = sum_r I[stride*q + dilation*r] * K[p, r]: outputs q in phases p, the phase fastest;
    ``reverse`` walks the taps backwards; tap (p, r) is K[tap_step*r + phase_step*p]."""

    outputs: int
    taps: int
    stride: int = 1
    dilation: int = 1
    phases: int = 1
    reverse: bool = False
    tap_step: int = 0  # 0: the phase is the fast dimension of the taps

    @property
    def step(self) -> int:
        return self.tap_step or self.phases

    @property
    def phase_step(self) -> int:
        return 1 if self.step >= self.phases else self.step * self.taps

    @property
    def lanes(self) -> int:
        return self.outputs * self.phases

    def shapes(self, m: Machine, slack: int = 0) -> Shapes:
        reach = self.stride * (self.outputs - 1) + self.dilation * (self.taps - 1) + 1
        table = self.step * (self.taps - 1) + self.phase_step * (self.phases - 1) + 1
        return {"I": (m.a_type, (reach + slack,)), "K": (m.b_type, (table + slack,))}

    def levels(self) -> tuple[list[Level], list[Level]]:
        image: list[Level] = [
            (self.dilation, self.taps), (0, self.phases), (self.stride, self.outputs),
        ]  # fmt: skip
        step = -self.step if self.reverse else self.step
        taps: list[Level] = [
            (step, self.taps), (self.phase_step, self.phases), (0, self.outputs),
        ]  # fmt: skip
        keep = [0, 2] if self.phases == 1 else [0, 1, 2]
        return [image[i] for i in keep], [taps[i] for i in keep]

    def compute(self, x: Arrays, base: int = 0) -> Array:
        out = np.zeros((self.outputs, self.phases))
        image, taps = x["I"][base:], x["K"][base:]
        for r in range(self.taps):
            tap = self.taps - 1 - r if self.reverse else r
            for p in range(self.phases):
                window = image[self.dilation * r :][:: self.stride][: self.outputs]
                out[:, p] += window * taps[self.step * tap + self.phase_step * p]
        return out.reshape(-1)

    def update(self, m: Machine, w: Writer) -> str:
        image, taps = self.levels()
        a = operand(m, "I", image, w, w.style_a, m.a_type)
        last = self.step * (self.taps - 1) if self.reverse else 0
        shifted = Writer(w.style_a, w.style_b, w.swapped, w.acc_left, w.cast, w.base + last)
        b = operand(m, "K", taps, shifted, w.style_b, m.b_type)
        return total(m, a, b, self.lanes, w)

    def variant(self, name: str, m: Machine, w: Writer) -> Variant:
        shapes = self.shapes(m, w.base)
        update = accumulate(self.update(m, w), self.lanes, w)
        text = assemble(m, shapes, [zeroed(m, self.lanes), update], self.lanes)
        return Variant(name, m, text, shapes, lambda x: self.compute(x, w.base))


def filters(m: Machine) -> Iterator[Variant]:
    styles = list(STYLES)
    plain = Filter(256, 8)
    for style in styles:
        yield plain.variant(f"filter, {style}", m, Writer(style, style))
    shapes = {
        "strided": Filter(256, 5, 2),
        "dilated": Filter(256, 5, 1, 3),
        "strided and dilated": Filter(256, 7, 2, 3),
        "a multiple of both": Filter(256, 5, 6, 4),
        "reversed": Filter(256, 6, reverse=True),
        "reversed, strided, dilated": Filter(256, 4, 3, 2, reverse=True),
        "every other tap": Filter(256, 6, tap_step=2),
        "one tap": Filter(256, 1),
        "one tap, strided": Filter(256, 1, 3),
        "17 taps": Filter(256, 17),
        "128 outputs": Filter(256 if m.name == "amx" else 128, 9),
        "downsampling by 5": Filter(256, 9, 5),
    }
    for i, (name, f) in enumerate(shapes.items()):
        for style in ("nest", styles[1 + i % 10], "divmod"):
            w = Writer(style, style, base=i % 3, swapped=i % 2 == 1)
            yield f.variant(f"filter {name}, {style}", m, w)
    for s in (2, 3, 4, 5, 6, 8):
        f = Filter(256 // s if s in (2, 4, 8) else 128, 4, phases=s)
        for style in ("nest", "sums", "divmod"):
            yield f.variant(f"upsampling by {s}, {style}", m, Writer(style, style))
    by_tap = Filter(128, 3, phases=2, tap_step=1)
    yield by_tap.variant("upsampling by 2, taps of a phase together", m, Writer())
    yield Filter(128, 5, 2, 3, 2).variant("2 phases, strided, dilated", m, Writer())
    yield Filter(128, 5, 1, 1, 2, True).variant("2 phases, reversed", m, Writer())
    yield Filter(128, 1, phases=2).variant("2 phases of one tap", m, Writer("divmod", "divmod"))
    for kinds in TYPES[m.name]:
        typed = m.with_types(*kinds)
        yield Filter(256, 5).variant(
            f"filter of {kinds[0]} by {kinds[1]} to {kinds[2]}", typed, Writer()
        )
