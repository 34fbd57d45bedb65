"""Sums over a window of an image that a tensor unit takes: what an output reads along x and y, and
what keeps another sum from it.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from halide_bridge.records import ELEMENT
from halide_bridge.schedules.recognise.products import (
    SOME,
    element,
    factors,
    may_start,
    multiplied,
    source_type,
)
from halide_bridge.schedules.recognise.program import (
    Access,
    Member,
    Program,
    Reduced,
    accesses,
    number,
)
from halide_bridge.schedules.sizes import is_argument
from selector.dataclass import dataclass
from selector.families.windows import Axis, Shape
from selector.families.windows.tiling import LONGEST_BAND
from selector.ir.affine import Affine
from selector.ir.nodes import Binary, BinaryOp, Call, Cast, Expr, FloatImm, IntImm, Select, Var
from selector.ir.traverse import expr_children, free_vars, walk_expr
from selector.ir.types import FLOAT16, FLOAT32, Type

ARITHMETIC = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX)
FEW = 6  # operations for an element of what threads fill shared memory with
CHANNELS = 4  # of a pixel next to each other at most
BACKWARDS = "its taps go backwards over the image: read them backwards, `taps[n - 1 - t]`"


@dataclass(frozen=True, slots=True)
class Window:
    """``func[x, y, ...] += image[...] * taps[...]``: the image is read along ``x`` in a dimension,
    ``first``, and along ``y`` in the next one; before it may lie the channels of a pixel.
    ``domain``: the places of the variables along x and along y in the reduction domain, of which
    the second may be missing. ``declared``: the image is an
    argument; ``computed``: stable names of operands that do more than read an element;
    ``signal``: there is no y; ``converted``: pixels are bytes, which f16 taps multiply as f16;
    ``channels``: of a pixel, where there is a number of them and it is filtered as so many elements
    next to each other.
    """

    func: str
    image: str
    type: Type
    x: Axis
    y: Axis
    domain: tuple[int, ...]
    declared: bool
    computed: frozenset[str]
    signal: bool
    first: int = 0
    converted: bool = False
    channels: int = 1

    @property
    def shape(self) -> Shape:
        """Of any number of outputs."""
        x, n = self.x, self.channels
        return Shape(
            0,
            0,
            x if n == 1 else replace(x, dilation=n * x.dilation, first=n * x.first),
            self.y,
            bytes=self.type.bytes,
            declared=self.declared,
            signal=self.signal,
            converted=self.converted,
            channels=n,
        )


def window_of(member: Member, program: Program) -> Window | str:
    """The window that a reduction sums over; else why a tensor unit cannot have it, empty where it
    is no sum of products with a window at all.
    """
    pair = _factors(member)
    if pair is None:
        return ""
    reduced = {r.name: r for r in member.stages[1].reduced}
    image = next((e for e in pair if _is_windowed(element(e), member, reduced)), None)
    if image is None:
        return ""
    taps = pair[1] if image is pair[0] else pair[0]
    floats = source_type(taps).is_float and image.type == FLOAT32
    halves = floats and source_type(taps) == FLOAT16
    kinds = [multiplied(image, member, program, floats), multiplied(taps, member, program, halves)]
    misses = [k for k in kinds if isinstance(k, str)]
    if misses:
        return misses[0]
    types = [k for k in kinds if not isinstance(k, str)]
    bytes_ = [t.is_integer and t.bytes == 1 for t in types]
    if types[0] != types[1] and not all(bytes_) and not (halves and bytes_[0]):
        return "its operands have two types"
    read, weights = element(image), element(taps)
    assert read is not None
    assert weights is not None
    if not may_start(member.stages[0], program):
        return "what it starts with is computed"
    found = _along(member, read, weights, reduced)
    if isinstance(found, str):
        return found
    operands = [program.members[access.func] for access in (read, weights)]
    computed = frozenset(m.label for m in operands if not (_only_reads(m) or _is_soon_made(m)))
    first = _first(member, read)
    declared = is_argument(operands[0], program) and first == 0
    signal, converted = len(member.args) == 1, halves and bytes_[0]
    window = Window(
        member.name, read.func, types[0], *found, declared, computed, signal, first, converted
    )
    return replace(window, channels=_channels(window, member, program)) if first else window


def _factors(member: Member) -> tuple[Expr, Expr] | None:
    """The factors, of which bytes are not rounded by a cast to floats of 16 bits on their way."""
    pair = factors(member)
    return None if pair is None else (_unrounded(pair[0]), _unrounded(pair[1]))


def _unrounded(e: Expr) -> Expr:
    match e:
        case Cast(kind, Cast(half, byte)) if (
            half.bits == 16 and half.is_float and byte.type.is_integer and byte.type.bytes == 1
        ):
            return Cast(kind, byte)
        case _:
            return e


def _channels(found: Window, member: Member, program: Program) -> int:
    """How many channels of a pixel an output has, of which the sum is one; 1 where nobody says, and
    where neighbours do not read neighbours.
    """
    x, own = found.x, tuple(map(Var, member.args))
    if (
        x.step > 1
        or x.phases > 1
        or not 1 < x.taps <= LONGEST_BAND
        or member.name in program.outputs
    ):
        return 1
    readers = [m for m in program if any(a.func == member.name for a in _read_by(m, member))]
    if len(readers) != 1 or readers[0].name not in program.outputs or not readers[0].pure:
        return 1
    (reader,) = readers
    mine = tuple(map(Var, reader.args))
    if any(a.indices != mine for a in _read_by(reader, member)) or len(mine) != len(own):
        return 1
    count = reader.bounds.get(reader.args[0], 1)
    return count if 1 < count <= CHANNELS else 1


def _read_by(reader: Member, member: Member) -> list[Access]:
    if reader.name == member.name:
        return []
    read = reader.accesses()
    return [a for a in read if a.func == member.name]


def _is_windowed(access: Access | None, member: Member, reduced: dict[str, Reduced]) -> bool:
    """Whether neighbours of an output read neighbours, of which some are the same."""
    if access is None:
        return False
    names = [free_vars(i) for i in access.indices]
    return any(n & reduced.keys() and n & {*member.args} for n in names) and not any(
        isinstance(part, Binary) and part.op is BinaryOp.MOD
        for i in access.indices
        for part in walk_expr(i)
    )


def _along(
    member: Member, read: Access, weights: Access, reduced: dict[str, Reduced]
) -> tuple[Axis, Axis, tuple[int, ...]] | str:
    """What is read along x and y, and the places of the variables in the reduction domain."""
    if member.stages[1].predicate is not None:
        return SOME
    if len(read.indices) != len(member.args):
        return "its image and its result do not have the same dimensions"
    first = _first(member, read)
    both = slice(first, first + 2)
    planes = [(i, Var(v)) for i, v in zip(read.indices, member.args, strict=True)]
    del planes[both]
    if any(i != v for i, v in planes):
        return "its windows are not along the first two dimensions of the image"
    found = [
        _axis(i, v, reduced, weights)
        for i, v in zip(read.indices[both], member.args[both], strict=True)
    ]
    misses = [f for f in found if isinstance(f, str)]
    if misses:
        return misses[0]
    pairs = [f for f in found if not isinstance(f, str)]
    (across, along), (down, over) = (*pairs, (Axis(1), ""))[:2]
    if not along and (across != Axis(1) or down.phases not in (1, 2, 4, *range(8, 65, 8))):
        return "its windows do not lie along the innermost dimension"
    domain = tuple([*reduced].index(name) for name in (along, over) if name)
    if len(set(domain)) != len(reduced):
        return "it sums over more than the taps of a window"
    return across, down, domain


def _first(member: Member, read: Access) -> int:
    """The dimension of x: the second one where the channels of a pixel lie next to each other, in
    an image that is read along both others.
    """
    own = [i == Var(v) for i, v in zip(read.indices, member.args, strict=False)]
    return 1 if own == [True, False, False] else 0


def _only_reads(source: Member) -> bool:
    """Whether an operand is an argument, or one with a boundary: what copies to shared memory do
    well.
    """
    match source.stages[0].values[0] if source.pure else None:
        case Select(_, a, b):
            return _is_element(a) or _is_element(b)
        case value:
            return _is_element(value)


def _is_element(e: Expr | None) -> bool:
    return isinstance(e, Call) and ELEMENT in e.name


def _is_soon_made(source: Member) -> bool:
    """Whether little is computed, of an element at one's own place: what threads do as they fill
    shared memory.
    """
    if not source.pure or len(source.types) != 1:
        return False
    value, own = source.stages[0].values[0], tuple(map(Var, source.args))
    return [a.indices for a in accesses(value)] == [own] and _operations(value) <= FEW


def _operations(e: Expr) -> float:
    """Casts and simple arithmetic in it; infinite with any other."""
    match e:
        case Call() | IntImm() | FloatImm():
            return 0
        case Cast() | Binary(BinaryOp.DIV, _, FloatImm()):
            pass
        case Binary(op) if op in ARITHMETIC:
            pass
        case _:
            return inf
    return 1 + sum(map(_operations, expr_children(e)))


def _axis(
    index: Expr, variable: str, reduced: dict[str, Reduced], weights: Access
) -> tuple[Axis, str] | str:
    """What an index of the image reads, and the variable of the reduction domain in it."""
    form, at = Affine.of(index), Var(variable)
    names = free_vars(index)
    phases, own = _phases(form, at)
    step = form.coefficient(own).constant
    over = [name for name in reduced if name in names]
    others = form.rest(own)
    for name in over:
        others = others.rest(Var(name))
    if not step or step < 0 or len(over) > 1 or others.constant is None:
        return f"`{variable}` and the taps do not choose a window of the image{_way_out(index)}"
    if not over:
        plain = step == 1 and phases == 1 and others.constant == 0
        return (Axis(1), "") if plain else (Axis(1, step, phases, 1, others.constant), "")
    r = reduced[over[0]]
    taps, first = number(r.extent), number(r.minimum)
    dilation = form.coefficient(Var(r.name)).constant
    if taps is None or first is None:
        return "the number of its taps is not known"
    if dilation is None or dilation < 1:
        return BACKWARDS
    if not any(r.name in free_vars(i) for i in weights.indices):
        return "its taps are the same all along an axis"
    return Axis(taps, step, phases, dilation, others.constant + dilation * first), r.name


def _way_out(index: Expr) -> str:
    """Of an index that is clamped or wrapped around where an image is read."""
    inside = (BinaryOp.MIN, BinaryOp.MAX, BinaryOp.MOD)
    held = any(isinstance(e, Binary) and e.op in inside for e in walk_expr(index))
    return ": keep indices inside by one of `hl.BoundaryConditions`" if held else ""


def _phases(form: Affine, at: Var) -> tuple[int, Expr]:
    """How many neighbouring outputs have the same window, and the atom that counts windows."""
    for atoms, _ in form:
        for atom in atoms:
            match atom:
                case Binary(BinaryOp.DIV, value, IntImm(value=divisor)) if value == at:
                    return divisor, atom
                case _:
                    pass
    return 1, at


def phases_of(member: Member, window: Window, program: Program) -> str:
    """The argument whose elements are the taps of each phase, in rows: ``taps[k, x % 8]``. Empty
    where they are others.
    """
    pair = _factors(member)
    reads = [r for r in map(element, pair or ()) if r is not None and r.func != window.image]
    axis, d = (window.y, 1) if window.x == Axis(1) else (window.x, 0)
    (r,) = (member.stages[1].reduced[place].name for place in window.domain[:1])
    phase = Binary(BinaryOp.MOD, Var(member.args[d]), IntImm(axis.phases))
    alike = len(reads) == 1 == len(window.domain) and reads[0].indices == (Var(r), phase)
    return reads[0].func if alike and is_argument(program.members[reads[0].func], program) else ""


def reads_pixels(image: Member, x: str) -> bool:
    """Whether planes are read from pixels whose channels lie next to each other."""
    planes = {Var(v) for v in image.args if v != x}
    inner = (a.indices[0] for a in image.accesses() if a.func != image.name and a.indices)
    return any(i in planes for i in inner)
