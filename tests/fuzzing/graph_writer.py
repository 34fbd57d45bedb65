"""What the graphs of ``graphs`` are written with: sources, elements, expressions, conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

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
    """An argument; ``table``: not one of the image's size."""

    name: str
    kind: str
    shape: tuple[int, ...]
    interleaved: bool = False
    table: bool = False


def cast(kind: str, e: str) -> str:
    return f"hl.cast({KINDS[kind][0]}, {e})"


class Writer:
    """The lines of one program. ``exact``: all of it is of integers; ``channel``: there is a
    variable for it where something is written.
    """

    def __init__(self, random: Random) -> None:
        r = self.random = random
        some = [r.randint(3, 40), r.randint(30, 140), r.randint(250, 530)]
        self.width = r.choices(some, [5, 5, 1])[0]
        self.height = r.randint(2, 40 if self.width < 200 else 12)
        self.channel, self.planes = False, False
        self.lines = ["def pipeline():", "    params = []"]
        self.lines += ["    x, y, c = hl.Var('x'), hl.Var('y'), hl.Var('c')"]
        self.sources: list[Source] = []
        self.inputs: list[Input] = []
        self.names = 0

    @property
    def exact(self) -> bool:
        return not any(i.kind.startswith("f") for i in self.inputs)

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
        images = [i.name for i in self.inputs if len(i.shape) == 2 and not i.table]
        if images and self.random.random() < 0.5:
            return f"{images[0]}.dim({dimension}).extent()"
        return str((self.width, self.height)[dimension])

    def add_input(self) -> None:
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

    def operands(self) -> tuple[str, str]:
        """The type of a product's factors, and that of their sum."""
        if self.exact:
            return self.random.choice(["i8", "u8"]), "i32"
        return self.random.choice([("f16", "f32"), ("f32", "f32"), ("f16", "f32"), ("i8", "i32")])

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
        return self.element(kind, s, index if s.dimensions else ["()"], r.randrange(s.values))

    def element(self, kind: str, s: Source, index: Sequence[str], value: int) -> str:
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

    def add_output(self) -> str:
        r, kind = self.random, self.kind()
        out, last = self.func("out"), self.sources[-1]
        self.channel = self.planes
        own = ["x", "y", "1"][: last.dimensions] or ["()"]
        value = f"{self.value(kind, r.randint(0, 1))} + {self.element(kind, last, own, 0)}"
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
