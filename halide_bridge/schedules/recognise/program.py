"""A pipeline as it was defined: Funcs, their stages, and what these read.

Read from the native module's records (``inspect``), with Halide's own names, lets written out. No
loops are looked at: they would have inlined the pure Funcs and flattened the indices. First of the
steps from a plain pipeline to a schedule; what the rest is decided by follows in ``facts``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from halide_bridge.checks import halide_errors, in_words
from halide_bridge.names import Names
from halide_bridge.native import native
from halide_bridge.records import ELEMENT, Reader, Record, read_type
from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError
from selector.ir.affine import Affine
from selector.ir.contents import without_lets
from selector.ir.nodes import Call, Cast, Expr, IntImm, Var
from selector.ir.traverse import change_expr, map_expr, substitute, walk_expr
from selector.ir.types import Type
from selector.operands.decoded import decoded

Written = Mapping[str, tuple[tuple[str, ...], tuple[Expr, ...]]]
"""The variables and values of Funcs that are written out where they are read."""


@dataclass(frozen=True, slots=True)
class Access:
    """An element of a Func or an argument: value ``value`` of it at ``indices``."""

    func: str
    value: int
    indices: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Reduced:
    """A variable of a reduction domain. ``free``: its iterations may run at once."""

    name: str
    minimum: Expr
    extent: Expr
    free: bool


@dataclass(frozen=True, slots=True)
class Stage:
    """A definition: ``func[indices] = values`` for all ``reduced``, where ``predicate`` holds.
    Number 0 is the pure one, the others update. ``free``: per dimension the Func's own variable
    where the stage stores along it, else None.
    """

    func: str
    number: int
    indices: tuple[Expr, ...]
    values: tuple[Expr, ...]
    predicate: Expr | None
    reduced: tuple[Reduced, ...]
    free: tuple[str | None, ...]

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """All that is computed, stored indices included."""
        masks = () if self.predicate is None else (self.predicate,)
        return (*self.values, *self.indices, *masks)

    @property
    def in_place(self) -> bool:
        """Whether each element is computed from itself alone: a reduction, no scan or scatter."""
        own = tuple(map(Var, (f or "" for f in self.free)))
        selves = (a for e in self.values for a in accesses(e) if a.func == self.func)
        return None not in self.free and all(a.indices == own for a in selves)


@dataclass(frozen=True, slots=True)
class Member:
    """A Func. ``label``: its stable name; ``region``: what the outputs need of it, per dimension
    the first and last index, None where nothing bounds them; ``bounds``: extents that the user
    declared; ``fixed``: the user scheduled it, or something at its loops.
    """

    name: str
    label: str
    handle: Any
    args: tuple[str, ...]
    types: tuple[Type, ...]
    stages: tuple[Stage, ...]
    region: tuple[tuple[Expr | None, Expr | None], ...]
    bounds: Mapping[str, int]
    estimates: Mapping[str, int]
    fixed: bool
    extern: bool

    @property
    def pure(self) -> bool:
        return len(self.stages) == 1

    @property
    def reduction(self) -> bool:
        """Whether every update is one of the element's own."""
        return not self.pure and all(s.in_place for s in self.stages)

    def accesses(self) -> Iterator[Access]:
        """What it reads, in the order in which that stands in its stages."""
        return (a for s in self.stages for e in s.expressions for a in accesses(e))

    def first(self, d: int) -> int | None:
        """The first element along a dimension that is needed of it, where that is a number."""
        low = self.region[d][0] if d < len(self.region) else None
        return None if low is None else Affine.of(low).constant

    def whole(self, most: int) -> bool:
        """Whether more elements than that are computed wherever one is: Halide computes a Func in
        all the bounds that the user declared.
        """
        return any(extent > most for extent in self.bounds.values())


@dataclass(frozen=True, slots=True)
class Program:
    """Funcs by Halide's name, producers first. ``asked``: which may be taken of the instructions
    that have to be asked for (``tf32``, ``fp8``).
    """

    members: Mapping[str, Member]
    outputs: tuple[str, ...]
    asked: frozenset[str] = frozenset()

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    @property
    def variables(self) -> set[str]:
        """Names of all dimensions, and of what is reduced."""
        reduced = {r.name for m in self for s in m.stages for r in s.reduced}
        return reduced.union(*(m.args for m in self))

    def readers(self, member: Member) -> tuple[Member, ...]:
        """The other Funcs that read one."""
        return tuple(
            m for m in self if m is not member and any(a.func == member.name for a in m.accesses())
        )


def _is_element(e: Expr) -> bool:
    return isinstance(e, Call) and ELEMENT in e.name


def _decoded(e: Expr) -> Expr | None:
    """A decoded byte as a cast of an element."""
    match decoded(e, _is_element):
        case (t, Call(_, name, args)):
            return Cast(e.type, Call(t, name, args))
        case _:
            return None


def accesses(e: Expr) -> Iterator[Access]:
    """What an expression reads, in the order in which it stands there."""
    return (found for part in walk_expr(e) if (found := access_of(part)) is not None)


def access_of(e: Expr) -> Access | None:
    """What is read, if an expression is no more than that."""
    if not (isinstance(e, Call) and ELEMENT in e.name):
        return None
    func, _, value = e.name.rpartition(ELEMENT)
    return Access(func, int(value), e.args)


def read_program(outputs: Sequence[Any], asked: frozenset[str] = frozenset()) -> Program:
    """The definitions behind some Funcs; where ``fp8`` is asked, with decoded bytes as elements of
    that type.
    """
    stored, names = named(outputs)
    told = _inspected(stored)
    reader = Reader(told["records"], str, frozenset())
    expanded: dict[int, Expr] = {}

    def expr(index: int) -> Expr:
        if index not in expanded:
            e = without_lets(reader.expr(index))  # which Halide shares by lets
            expanded[index] = change_expr(e, _decoded) if "fp8" in asked else e
        return expanded[index]

    at = {f["at"] for f in told["funcs"]}
    members = {
        f["name"]: _member(f, names(f["name"]), expr, f["name"] in at) for f in told["funcs"]
    }
    return Program(members, tuple(f.name() for f in stored), asked)


def _inspected(stored: Sequence[Any]) -> Mapping[str, Any]:
    try:
        return native().inspect(stored)
    except halide_errors() as error:
        said = in_words(str(error))
        raise ScheduleError(
            f"Halide cannot read the pipeline{said and f': {said}'}",
            why="" if said else "two of its Funcs or parameters have one name",
            hint="give each ImageParam and Param, and each output, a name of its own",
        ) from error


def named(outputs: Sequence[Any]) -> tuple[list[Any], Names]:
    """What stores the outputs, which may be the wrapper of one for everyone, with its name then;
    and names for all Funcs.
    """
    stored, names = native().wrapped([*outputs]), Names()
    for wrapper, func in zip(stored, outputs, strict=True):
        if wrapper.name() != func.name():
            names.stands_for(wrapper.name(), func.name())
    return stored, names


def in_any_order(member: Member) -> bool:
    """Whether Halide lets loops over what the only update combines change places, or be shared."""
    return native().in_any_order(member.handle)


def _member(told: Mapping[str, Any], label: str, expr: Any, holds_others: bool) -> Member:
    stages = tuple(
        _stage(told["name"], number, told["args"], stage, expr)
        for number, stage in enumerate(told["stages"])
    )
    touched = any(stage[-1] for stage in told["stages"])
    region = tuple(
        (None if low < 0 else expr(low), None if high < 0 else expr(high))
        for low, high in told["region"]
    )
    return Member(
        told["name"], label, told["handle"], tuple(told["args"]),
        tuple(read_type(t) for t in told["types"]), stages, region,
        {var: extent for var, _, extent in told["bounds"] if extent is not None},
        {var: extent for var, _, extent in told["estimates"] if extent is not None},
        told["scheduled"] or touched or holds_others, told["extern"],
    )  # fmt: skip


def _stage(func: str, number: int, args: Sequence[str], told: Record, expr: Any) -> Stage:
    indices, values, predicate, reduced, _ = told
    stored = tuple(expr(i) for i in indices)
    rvars = tuple(Reduced(r, expr(low), expr(extent), free) for r, low, extent, free in reduced)
    free = (a if e == Var(a) else None for a, e in zip(args, stored, strict=True))
    condition = None if predicate < 0 else expr(predicate)
    values = tuple(expr(v) for v in values)
    return Stage(func, number, stored, values, condition, rvars, tuple(free))


def inlined(e: Expr, bodies: Written) -> Expr:
    """An expression with the values of Funcs in their places."""
    inner = map_expr(e, lambda part: inlined(part, bodies))
    access = access_of(inner)
    if access is None or access.func not in bodies:
        return inner
    args, values = bodies[access.func]
    return substitute(values[access.value], dict(zip(args, access.indices, strict=True)))


def number(e: Expr) -> int | None:
    """The number that an expression is, if it is one."""
    return e.value if isinstance(e, IntImm) else None
