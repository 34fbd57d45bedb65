"""Graphs of Funcs that nobody schedules, drawn as text: what users write of images, in any order.

Stencils, other grids, windows with conditions, sums of rows and columns, histograms and lookups,
scans, searches, updates of some elements, totals, values of a tuple, planes and pixels side by
side, of any types under any boundary condition, each reading whatever is there before it. A program
follows from a number alone: ``Graph(7).text`` defines ``pipeline()``, which returns its outputs and
its parameters; ``arrays()`` are the arguments, ``shape`` that of the outputs.

Other than the fuzzer's programs these are no data: a failure is made small by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
KINDS = {
    "u8": ("hl.UInt(8)", np.uint8), "i8": ("hl.Int(8)", np.int8),
    "u16": ("hl.UInt(16)", np.uint16), "i16": ("hl.Int(16)", np.int16),
    "u32": ("hl.UInt(32)", np.uint32), "i32": ("hl.Int(32)", np.int32),
    "f16": ("hl.Float(16)", np.float16), "f32": ("hl.Float(32)", np.float32),
}  # fmt: skip
WHOLE = ("u8", "i8", "u16", "i16", "u32", "i32")
EDGES = ("repeat_edge", "mirror_image", "mirror_interior", "constant_exterior", "repeat_image")
CHANNELS = 3


@dataclass(frozen=True, slots=True)
class Source:
    """What may be read: a Func of so many dimensions, its type, and how many values it has."""

    name: str
    dimensions: int
    kind: str
    values: int = 1


@dataclass(frozen=True, slots=True)
class Input:
    name: str
    kind: str
    shape: tuple[int, ...]
    interleaved: bool


def cast(kind: str, e: str) -> str:
    return f"hl.cast({KINDS[kind][0]}, {e})"


class Graph:
    """One program. ``exact``: all of it is of integers."""

    def __init__(self, number: int) -> None:
        self.number, self.random = number, Random(number)
        r = self.random
        self.width = r.choice([r.randint(3, 40), r.randint(30, 140)])
        self.height = r.randint(2, 40)
        self.channel = False  # whether there is a variable for it where something is written
        self.lines = ["def pipeline():", "    params = []"]
        self.lines += ["    x, y, c = hl.Var('x'), hl.Var('y'), hl.Var('c')"]
        self.sources: list[Source] = []
        self.inputs: list[Input] = []
        self.names = 0
        for _ in range(r.randint(1, 2)):
            self._input()
        for _ in range(r.randint(1, 5)):
            self.sources.append(r.choices(*zip(*STEPS, strict=True))[0](self))
        self.planes = r.random() < 0.5
        outputs = [self._output() for _ in range(1 if r.random() < 0.75 else 2)]
        self.say(f"return [{', '.join(outputs)}], params")
        self.outputs = outputs

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    @property
    def exact(self) -> bool:
        return not any(i.kind.startswith("f") for i in self.inputs)

    @property
    def shape(self) -> tuple[int, ...]:
        plane = (self.height, self.width)
        return (CHANNELS, *plane) if self.planes else plane

    def arrays(self) -> dict[str, Array]:
        """The arguments, random; pixels of interleaved ones lie side by side."""
        rng = np.random.default_rng(self.number)
        found = dict[str, Array]()
        for i in self.inputs:
            array = _numbers(i, rng)
            if i.interleaved:
                array = np.ascontiguousarray(array.transpose(1, 2, 0)).transpose(2, 0, 1)
            found[i.name] = array
        return found

    # ------------------------------------------------------------------ what is written

    def say(self, line: str) -> None:
        self.lines.append(f"    {line}")

    def name(self, stem: str = "f") -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def func(self, stem: str = "f") -> str:
        name = self.name(stem)
        self.say(f'{name} = hl.Func("{name}")')
        return name

    def domain(self, *ranges: tuple[object, object]) -> str:
        name = self.name("r")
        said = ", ".join(f"({low}, {extent})" for low, extent in ranges)
        self.say(f'{name} = hl.RDom([{said}], "{name}")')
        return name

    def define(self, element: str, kind: str, value: str) -> None:
        self.say(f"{element} = {cast(kind, value)}")

    def extent(self, dimension: int) -> str:
        """Of an image: as a number, or that of an argument."""
        images = [i.name for i in self.inputs if len(i.shape) == 2]
        if images and self.random.random() < 0.5:
            return f"{images[0]}.dim({dimension}).extent()"
        return str((self.width, self.height)[dimension])

    def _input(self) -> None:
        r, name = self.random, self.name("I")
        kind = r.choice(["u8", "u8", "f32", "i16", "u16", "i32", "f16", "i8", "f32"])
        dimensions = r.choices([1, 2, 3], [0.1, 0.5, 0.4])[0]
        interleaved = dimensions == 3 and r.random() < 0.5
        shape = (CHANNELS, self.height, self.width)[3 - dimensions :]
        self.inputs.append(Input(name, kind, shape, interleaved))
        self.say(f'{name} = hl.ImageParam({KINDS[kind][0]}, {dimensions}, "{name}")')
        self.say(f"params.append({name})")
        if interleaved:
            self.say(f"{name}.dim(0).set_stride({CHANNELS})")
            self.say(f"{name}.dim(2).set_stride(1).set_bounds(0, {CHANNELS})")
        edge, around = r.choice(EDGES), self.name()
        beyond = f", {cast(kind, 'hl.i32(0)')}" if edge == "constant_exterior" else ""
        self.say(f"{around} = hl.BoundaryConditions.{edge}({name}{beyond})")
        self.sources.append(Source(around, dimensions, kind))

    def kind(self) -> str:
        rounded = ["i32", "i32", "f32", "u8", "u16", "i16", "u8", "f32"]
        return self.random.choice(["i32", *WHOLE] if self.exact else rounded)

    def place(self, v: str, length: int) -> str:
        """A coordinate made of another."""
        r = self.random
        near, below = f"{v} + {r.randint(-3, 3)}", max(1, length - 2)
        ways = [v, near, f"{v}*2 + {r.randint(-1, 1)}", f"{v}//2", f"({v} + 1)//2"]
        ways += [f"{length} - 1 - {v}", f"hl.clamp({v}, 1, {below})"]
        return r.choices(ways, [50, 30, 6, 4, 4, 3, 3])[0]

    def read(self, kind: str, at: Sequence[str] = ("x", "y"), plain: bool = False) -> str:
        """An element of what is there, as another type; ``plain``: at its own place."""
        r = self.random
        s = r.choice([*self.sources[-3:], *self.sources])
        lengths = (self.width, self.height)
        index = [v if plain else self.place(v, n) for v, n in zip(at, lengths, strict=True)]
        if s.dimensions >= 2 and r.random() < 0.06:
            index.reverse()
        if s.dimensions >= 2 and not plain and r.random() < 0.05:
            index[0] = f"hl.clamp({self.read('i32', at, True)}, 0, {self.width - 1})"
        if s.dimensions == 3:
            own = self.channel and r.random() < 0.7
            index.append("c" if own else str(r.randrange(CHANNELS)))
        if s.dimensions == 1:
            index = [r.choice(index)]
        return self._as(kind, s, index if s.dimensions else ["()"], r.randrange(s.values))

    def _as(self, kind: str, s: Source, index: Sequence[str], value: int) -> str:
        e = f"{s.name}[{', '.join(index)}]" + (f"[{value}]" if s.values > 1 else "")
        if s.kind.startswith("f") and not kind.startswith("f"):
            e = f"hl.clamp({e}*4, 0, 100)"
        return cast(kind, e)

    def value(self, kind: str, depth: int, at: Sequence[str] = ("x", "y")) -> str:
        """An expression of so many levels."""
        r = self.random
        if depth == 0 or r.random() < 0.12:
            return self.read(kind, at)
        a, b = (self.value(kind, depth - 1, at) for _ in range(2))
        few = r.choice([2, 3, 4, 7, 16])
        both = [f"({a} + {b})", f"({a} - {b})", f"hl.min({a}, {b})", f"hl.max({a}, {b})"]
        both += [f"hl.select({self.condition(at)}, {a}, {b})", f"({a} * {b})"]
        if kind.startswith("f"):
            scale = r.choice([0.5, 0.25, 2, -1])
            more = [f"hl.abs({a})", f"({a} * {cast(kind, f'hl.f32({scale})')})", f"(-{a})"]
            more += [f"hl.sqrt(hl.abs({a}) + hl.f32(1))"] if kind == "f32" else []
            return r.choice([*both, *both, *more])
        if kind in ("i32", "u32"):  # these may not wrap around
            both = [e for e in both if " * " not in e and (kind == "i32" or " - " not in e)]
        more = [f"({a} / {few})", f"({a} % {few})", f"({a} >> {r.randint(1, 3)})"]
        more += [f"({a} & {b})", f"({a} ^ {b})", cast(kind, f"hl.absd({a}, {b})")]
        more += [cast(kind, self.value(r.choice(WHOLE), depth - 1, at))]
        return r.choice([*both, *both, *more])

    def condition(self, at: Sequence[str]) -> str:
        r, (x, y) = self.random, at
        ways = [f"{x} % 2 == {r.randint(0, 1)}", f"{y} < {r.randint(0, self.height)}"]
        ways += [f"{x} >= {r.randint(0, self.width)}", f"{x} > {y}", f"({x} + {y}) % 3 == 0"]
        ways += [f"{self.read('i32', at)} > {self.read('i32', at)}"]
        ways += [f"{self.read('i32', at, True)} % 3 == 1"]
        return r.choice(ways)

    def _output(self) -> str:
        r, kind = self.random, self.kind()
        out, last = self.func("out"), self.sources[-1]
        self.channel = self.planes
        own = ["x", "y", "1"][: last.dimensions] or ["()"]
        value = f"{self.value(kind, r.randint(0, 1))} + {self._as(kind, last, own, 0)}"
        if r.random() < 0.25:
            none = cast(kind, "hl.i32(1)")
            ways = [f"{value}, {none}", f"{none}, {value}"]
            value = f"hl.select({self.condition(('x', 'y'))}, {r.choice(ways)})"
        self.define(f"{out}[x, y{', c' if self.planes else ''}]", kind, value)
        self.channel = False
        return out

    def held(self, func: str, kind: str) -> Source:
        """A Func whose domain is the image's, read at its edges beyond."""
        around = self.func()
        x, y = f"hl.clamp(x, 0, {self.width - 1})", f"hl.clamp(y, 0, {self.height - 1})"
        self.say(f"{around}[x, y] = {func}[{x}, {y}]")
        return Source(around, 2, kind)


def _numbers(i: Input, rng: np.random.Generator) -> Array:
    kind = KINDS[i.kind][1]
    if i.kind.startswith("f"):
        return (rng.integers(-8, 9, i.shape) / 4).astype(kind)
    info = np.iinfo(kind)
    low, high = (info.min, info.max) if info.bits < 32 else (-1000, 1000)
    return rng.integers(low, high, i.shape, endpoint=True).astype(kind)


# ------------------------------------------------------------------ what a Func may be


def pointwise(g: Graph) -> Source:
    func, kind = g.func(), g.kind()
    g.define(f"{func}[x, y]", kind, g.value(kind, g.random.randint(1, 3)))
    return Source(func, 2, kind)


def planes(g: Graph) -> Source:
    func, kind = g.func(), g.kind()
    g.channel = True
    g.define(f"{func}[x, y, c]", kind, g.value(kind, g.random.randint(1, 3)))
    g.channel = False
    return Source(func, 3, kind)


def values(g: Graph) -> Source:
    func, kind = g.func(), g.kind()
    g.say(f"{func}[x, y] = ({cast(kind, g.value(kind, 2))}, {cast(kind, g.value(kind, 1))})")
    return Source(func, 2, kind, 2)


def channels(g: Graph) -> Source:
    func, kind = g.func(), g.kind()
    kind = "i32" if kind in ("u8", "i8") else kind
    r = g.domain((0, CHANNELS))
    g.channel = True
    term = g.value(kind, 1).replace("c]", f"{r}.x]")
    g.channel = False
    g.say(f"{func}[x, y] += {cast(kind, term)}")
    return Source(func, 2, kind)


def window(g: Graph) -> Source:
    func, kind, r = g.func(), g.kind(), g.random
    low, high = r.randint(-2, 0), r.randint(-2, 0)
    q = g.domain((low, r.randint(1, 5)), (high, r.randint(1, 4)))
    if r.random() < 0.25:
        of = [f"{q}.x <= {q}.y", f"{q}.x + {q}.y < 3", f"({q}.x + x) % 2 == 0", f"{q}.x != 0"]
        g.say(f"{q}.where({r.choice([*of, f'{q}.x + x < {g.width}'])})")
    join = r.choice(["", "", "hl.max", "hl.min"])
    kind = "i32" if not join and kind in ("u8", "i8") else kind
    term = cast(kind, g.value(kind, 1, (f"(x + {q}.x)", f"(y + {q}.y)")))
    if join or r.random() < 0.5:
        g.define(f"{func}[x, y]", kind, g.value(kind, 1))
    own = f"{func}[x, y]"
    g.say(f"{own} = {join}({own}, {term})" if join else f"{own} += {term}")
    return Source(func, 2, kind)


def line(g: Graph) -> Source:
    """Of each row, or each column."""
    func, r = g.func(), g.random
    kind = r.choice(["i32", "u32", "i16"]) if g.exact else r.choice(["i32", "f32", "i16"])
    rows = r.random() < 0.6
    q = g.domain((0, g.extent(0 if rows else 1)))
    v, at = ("y", (f"{q}.x", "y")) if rows else ("x", ("x", f"{q}.x"))
    join, term = r.choice(["", "", "hl.max", "hl.min"]), cast(kind, g.value(kind, 1, at))
    if join:
        g.define(f"{func}[{v}]", kind, f"hl.i32({r.randint(0, 3)})")
    g.say(f"{func}[{v}] = {join}({func}[{v}], {term})" if join else f"{func}[{v}] += {term}")
    shown, length = g.func(), g.height if rows else g.width
    g.say(f"{shown}[x, y] = {func}[hl.clamp({g.place(v, length)}, 0, {length - 1})]")
    return Source(shown, 2, kind)


def histogram(g: Graph) -> Source:
    func, r = g.func(), g.random
    q, bins = g.domain((0, g.extent(0)), (0, g.extent(1))), r.choice([8, 16, 37])
    g.say(f"{func}[x] = hl.{r.choice(['i32', 'u32'])}(0)")
    g.say(f"{func}[hl.clamp({g.read('i32', (f'{q}.x', f'{q}.y'))}, 0, {bins - 1})] += 1")
    shown = g.func()
    g.say(f"{shown}[x, y] = hl.i32({func}[hl.clamp({g.read('i32', plain=True)}, 0, {bins - 1})])")
    return Source(shown, 2, "i32")


def scan(g: Graph) -> Source:
    func, r = g.func(), g.random
    kind = r.choice(["i32", "u32", "i16", "u8"]) if g.exact or r.random() < 0.5 else "f32"
    along = r.randrange(2)
    length = (g.width, g.height)[along]
    q = g.domain((1, f"{g.extent(along)} - 1"))
    back = r.random() < 0.25
    now, before = (
        (f"{length - 1} - {q}.x", f"{length} - {q}.x") if back else (f"{q}.x", f"{q}.x - 1")
    )
    g.define(f"{func}[x, y]", kind, g.value(kind, 1))
    own = f"{func}[{f'x, {now}' if along else f'{now}, y'}]"
    a, b = f"hl.Expr({own})", f"hl.Expr({func}[{f'x, {before}' if along else f'{before}, y'}])"
    ways = [f"{a} + {b}", f"hl.max({a}, {b})", f"hl.select({a} > {b}, {a}, {b})"]
    ways += [f"hl.min({a}, {b} + {cast(kind, 'hl.i32(1)')})"]
    if kind == "f32":
        ways = [f"{a}*0.5 + {b}*0.5", f"hl.max({a}, {b})", f"{a} + {b}*hl.f32(0.25)"]
    g.define(own, kind, r.choice(ways))
    return g.held(func, kind)


def search(g: Graph) -> Source:
    """Where something is the largest, or the least, and that."""
    func, kind, r = g.func(), g.kind(), g.random
    q, better = g.domain((0, r.randint(2, 9))), r.choice([">", "<", ">="])
    at = (f"(x + {q}.x)", "y") if r.random() < 0.5 else ("x", f"(y + {q}.x)")
    new, own = cast(kind, g.value(kind, 1, at)), f"{func}[x, y]"
    g.say(f"{own} = (hl.i32(0), {g.read(kind, plain=True)})")
    number = f"hl.select({new} {better} {own}[1], hl.i32({q}.x), {own}[0])"
    g.say(f"{own} = ({number}, hl.select({new} {better} {own}[1], {new}, {own}[1]))")
    shown = g.func()
    g.say(f"{shown}[x, y] = hl.i32({own}[0])*4 + hl.i32({own}[1])")
    return Source(shown, 2, "i32")


def some(g: Graph) -> Source:
    """Elements that are computed again: a row, a column, all, every second one."""
    func, kind, r = g.func(), g.kind(), g.random
    g.define(f"{func}[x, y]", kind, g.value(kind, 1))
    match r.randrange(4):
        case 0:
            g.say(f"{func}[x, {r.randint(0, 3)}] = {g.read(kind, ('x', '0'))}")
        case 1:
            g.say(f"{func}[{r.randint(0, 3)}, y] += {g.read(kind, ('1', 'y'))}")
        case 2:
            g.say(f"{func}[x, y] += {cast(kind, g.value(kind, 1))}")
        case _:
            q = g.domain((0, max(1, g.width // 2)))
            own = f"{func}[{q}.x*2, y]"
            g.define(own, kind, f"{own} + {g.read(kind, (f'{q}.x', 'y'))}")
    return g.held(func, kind)


def total(g: Graph) -> Source:
    func = g.func()
    kind = "i32" if g.exact else g.random.choice(["i32", "f32"])
    q = g.domain((0, g.extent(0)), (0, g.extent(1)))
    g.say(f"{func}[()] += {cast(kind, g.value(kind, 1, (f'{q}.x', f'{q}.y')))}")
    return Source(func, 0, kind)


STEPS: Sequence[tuple[Callable[[Graph], Source], float]] = (
    (pointwise, 22), (planes, 20), (values, 8), (channels, 6), (window, 8), (line, 8),
    (histogram, 6), (scan, 8), (search, 6), (some, 5), (total, 5),
)  # fmt: skip
