"""A drawn program as data: a sum of products over windows, what stands around it, its schedule.

One form holds all that is drawn. Outputs ``acc(x, y, z, w)`` are sums over up to three variables
``r.x``, ``r.y``, ``r.z`` of an element of A times one of B; every index is a sum of terms
``factor*((v/div) % mod)``. Products, windows, strides, dilations, phases and banks of filters are
indices. The classes say nothing of Halide: ``writing.py`` makes a pipeline of them,
``sums.py`` numbers.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from typing import Any

NAMES = "xyzw"
BYTES = {"f16": 2, "bf16": 2, "f32": 4, "s8": 1, "u8": 1, "s32": 4, "e4m3": 1, "e5m2": 1}
FLOAT8 = "e4m3", "e5m2"  # bytes that a program decodes into halves
ZERO_POINTS = {"A": 7, "B": -3}  # what is subtracted of elements
LOWEST = -1000  # less than all elements


@dataclass(frozen=True, slots=True)
class Term:
    """``factor*((var/div) % mod)``; ``mod`` 0: no remainder is taken."""

    factor: int
    var: str
    div: int = 1
    mod: int = 0

    def width(self, count: int) -> int:
        """Distance of its largest and smallest value over ``count`` neighbouring values from a
        multiple of ``div*mod`` on."""
        steps = (count - 1) // self.div
        return abs(self.factor) * (min(steps, self.mod - 1) if self.mod else steps)


@dataclass(frozen=True, slots=True)
class Index:
    terms: tuple[Term, ...]
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Staging:
    """Where and how an operand is copied, or computed, ahead of its use.

    ``at``: "unit" (by the warp or group that uses it), "part" or "block" (once for each part of a
    block, or for all of it), "loop" (the serial loop of the sum) or "root" (a kernel of its own).
    ``idiom``: how its loops run, a name of ``copies.IDIOMS``; ``run``: elements of a vector in it.
    ``rounding``: extents are promised, rounded up to so many elements along dimension 0; 0: nothing
    is promised; -1: one element less than is read. ``stages``: copies in flight. ``shared``: it is
    said that the copy is in shared memory, else Halide decides. ``turned``: stored with dimension 1
    innermost. ``align``: rows are padded to multiples of so many elements.
    """

    at: str
    idiom: str = "vectors"
    run: int = 8
    rounding: int = 8
    stages: int = 1
    shared: bool = True
    turned: bool = False
    align: int = 0


@dataclass(frozen=True, slots=True)
class Operand:
    """``index``: dimension 0 first. ``produce``: how elements of ``type`` are made of the array's
    ("": they are the array's; "e4m3", "e5m2": bytes are decoded; "pair": of two neighbours along
    dimension 0). ``edges``: what lies outside of the array ("": nothing is read there). ``before``:
    how what it is made of is staged, in the same place (None: it is not); of the place there,
    ``at``, nothing is read. ``inline``: it is computed in the sum; where it is staged
    ``hb.operand`` makes a Func of it.
    """

    name: str
    type: str
    index: tuple[Index, ...]
    produce: str = ""
    edges: str = ""
    staging: Staging | None = None
    before: Staging | None = None
    inline: bool = False

    @property
    def stored(self) -> str:
        """The type of the array."""
        if self.produce in FLOAT8:
            return self.produce
        return "f32" if self.produce not in ("", "pair") else self.type

    @property
    def reach(self) -> int:
        """Elements along dimension 0 beyond its own that one is made of."""
        return int(self.produce == "pair")

    @property
    def source(self) -> str:
        """What the sum reads: the array, the array with edges, or what is made of it."""
        if self.produce:
            return f"made_{self.name}"
        return f"wide_{self.name}" if self.edges else self.name


@dataclass(frozen=True, slots=True)
class Axis:
    """A variable of the output, ``size`` long: a vector, unrolled vectors, warps (groups), and
    parts that a block computes one after the other. ``bounded``: the size is a constant of the
    program."""

    size: int
    vector: int = 1
    unroll: int = 1
    warps: int = 1
    segments: int = 1
    bounded: bool = False

    @property
    def unit(self) -> int:
        """Outputs of a warp."""
        return self.vector * self.unroll

    @property
    def part(self) -> int:
        """Outputs of a block at a time."""
        return self.unit * self.warps

    @property
    def block(self) -> int:
        return self.part * self.segments


@dataclass(frozen=True, slots=True)
class Sum:
    """A variable of the sum: a loop over steps of ``step``, unrolled vectors in it. ``outer``: how
    the loop runs, "serial" or "unrolled". ``dynamic``: its extent is that of A along dimension 0 (1
    where A is read with it there). ``begin``: its first value, ``given`` by a parameter; in indices
    and conditions it counts from 0."""

    extent: int
    vector: int = 1
    step: int = 0
    outer: str = "serial"
    dynamic: bool = False
    begin: int = 0
    given: bool = False


@dataclass(frozen=True, slots=True)
class Mask:
    """The products count where ``condition`` >= 0. ``kind``: "where" (of the domain), "select" (of
    the product), "left" or "right" (of a factor). ``closed``: written with <=, not with <.
    ``type``: that of the indices in it."""

    kind: str
    condition: Index
    likely: bool = False
    closed: bool = False
    type: str = "s32"


@dataclass(frozen=True, slots=True)
class Program:
    """All that is drawn; ``inputs`` is the seed of the arrays.

    ``at``: sums are computed for a "unit" or for a "block". ``after``: a stencil over the result,
    "shared" or "root" (in a kernel of its own). ``second``: another sum with factors C, added: of
    another "accumulator", or in an "update" of the same one; or subtracted: another "value" of it.
    ``margin``: columns of the arrays that
    nobody needs. ``values``: "small" (integers whose sums are exact) or "real". ``form``: "chain"
    or "online" for a program of several sums (``chains.py``), of which ``parts`` say more.
    ``schedule``: "drawn", or the compiler's own, "auto" for any sizes or "sized" for these.
    ``pitch``: elements that lie before and behind each row of the arrays. ``from_zero``: what reads
    the sum adds what it starts from. ``saturated``: what the type of the result does not hold is
    its nearest. B may be named "A": both factors are elements of one array.
    ``updates`` of a sum after the first one, in order ("second": there that one is added).
    ``beside``: another value of it is the "largest" element of A, which is subtracted. ``minus``:
    products are. ``zero_points``: operands of which one is subtracted. ``alone``: the sum is the
    output. ``declared``: the program says the extents of its arrays.
    """

    family: str
    target: str
    memory: str
    axes: tuple[Axis, ...]
    sums: tuple[Sum, ...]
    a: Operand
    b: Operand
    accumulator: str
    at: str = "unit"
    swapped: bool = False
    start: str = "zero"
    masks: tuple[Mask, ...] = ()
    factor: str = ""
    epilogue: tuple[str, ...] = ()
    result: str = "f32"
    after: str = ""
    second: str = ""
    tail: str = ""
    directives: tuple[tuple[str, int], ...] = ()
    instructions: tuple[str, ...] = ()
    margin: int = 0
    values: str = "small"
    inputs: int = 0
    form: str = ""
    parts: tuple[tuple[str, Any], ...] = ()
    schedule: str = "drawn"
    pitch: tuple[int, int] = (0, 0)
    from_zero: bool = False
    saturated: bool = False
    updates: tuple[str, ...] = ()
    beside: str = ""
    minus: bool = False
    zero_points: str = ""
    alone: bool = False
    declared: bool = False

    @property
    def operands(self) -> tuple[Operand, Operand]:
        return self.a, self.b

    @property
    def variables(self) -> tuple[str, ...]:
        """Those of the output, dimension 0 first."""
        return tuple(NAMES[: len(self.axes)])

    @property
    def accumulators(self) -> tuple[str, ...]:
        return ("acc", "more") if self.second == "accumulator" else ("acc",)

    @property
    def pair(self) -> bool:
        """Whether a sum has another value beside it."""
        return bool(self.beside) or self.second == "value"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Extents of the output, dimension 0 first."""
        return tuple(a.size for a in self.axes)

    @property
    def stored(self) -> tuple[int, ...]:
        """Extents of what a stencil after the sums reads; without one those of the output."""
        return (self.sizes[0] + 1, *self.sizes[1:]) if self.after else self.sizes

    @property
    def digest(self) -> str:
        """Names what it is; programs on other inputs are the same."""
        data = asdict(self)
        del data["inputs"]
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def counts(p: Program) -> dict[str, int]:
    """How many values each variable has in the whole program."""
    return {NAMES[i]: n for i, n in enumerate(p.stored)} | {
        f"r.{NAMES[i]}": s.extent for i, s in enumerate(p.sums)
    }


def limits(index: Index, count: dict[str, int]) -> tuple[int, int]:
    """The smallest and the largest value of an index, variables starting at 0."""
    low = high = index.offset
    for t in index.terms:
        width = t.width(count[t.var])
        low, high = (low - width, high) if t.factor < 0 else (low, high + width)
    return low, high


def span(index: Index, count: dict[str, int]) -> int:
    """Elements from the smallest to the largest value of an index, tiles starting at multiples."""
    low, high = limits(index, count)
    return high - low + 1


def array_extents(p: Program, o: Operand) -> tuple[int, ...]:
    """Extents of an operand's array: all that is read, and ``margin`` more along dimension 0;
    beyond edges as much is read on either side."""
    found: list[int] = []
    for d, index in enumerate(o.index):
        low, high = limits(index, counts(p))
        high += o.reach if d == 0 else 0
        assert o.edges or low >= 0, (o.name, index)
        extent = high + 1 + min(low, 0)
        found.append(max(1, extent) + (p.margin if d == 0 and not _exact(p, o) else 0))
    return tuple(found)


def _exact(p: Program, o: Operand) -> bool:
    return any(s.dynamic for s in p.sums) and o.name == "A"


def to_data(p: Program) -> dict[str, Any]:
    return asdict(p)


def _tuple(value: Any) -> Any:
    return tuple(_tuple(v) for v in value) if isinstance(value, list | tuple) else value


def _index(data: dict[str, Any]) -> Index:
    return Index(tuple(Term(**t) for t in data["terms"]), data["offset"])


def _operand(data: dict[str, Any]) -> Operand:
    copies = {n: data[n] and Staging(**data[n]) for n in ("staging", "before")}
    index = tuple(_index(i) for i in data["index"])
    return Operand(**{**data, "index": index, **copies})


def from_data(data: dict[str, Any]) -> Program:
    """The program of ``to_data``, also after JSON."""
    known = {f.name: _tuple(data[f.name]) for f in fields(Program) if f.name in data}
    masks = tuple(Mask(**{**m, "condition": _index(m["condition"])}) for m in data["masks"])
    return Program(**{
        **known,
        "axes": tuple(Axis(**a) for a in data["axes"]),
        "sums": tuple(Sum(**s) for s in data["sums"]),
        "a": _operand(data["a"]), "b": _operand(data["b"]), "masks": masks,
    })  # fmt: skip
