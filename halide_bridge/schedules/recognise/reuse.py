"""Sums and the like whose factors are read again for neighbouring results.

    product[n, m] += a[k, m] * b[n, k]       a does not follow n, b does not follow m
    window[x, y] += image[x + t, y] * w[t]   neighbours along x share pixels, all share w

A block of threads that computes a tile of results loads each element once where each result alone
would load all of its own. Which dimensions that goes for follows from the variables of the indices.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from math import prod

from halide_bridge.schedules.recognise.facts import SMALL, Place, Placement
from halide_bridge.schedules.recognise.program import (
    Access,
    Member,
    Program,
    Reduced,
    Stage,
    accesses,
    in_any_order,
    number,
)
from selector.dataclass import dataclass
from selector.ir.affine import Affine
from selector.ir.nodes import Expr, Select, Var
from selector.ir.traverse import free_vars, walk_expr

DIMENSIONS = 4  # of a result: two of a tile, two that Halide follows through the loop of blocks
LEAST = 17  # terms of a sum that is worth a block of threads: a thread unrolls and keeps fewer


@dataclass(frozen=True, slots=True)
class Index:
    """A sum of variables, each so many times (``factors``), and what is the same for a stage."""

    factors: Mapping[str, int]
    rest: Affine

    def reach(self, extents: Mapping[str, int]) -> int:
        """From the first to the last where variables count up to these extents."""
        return sum(abs(f) * (extents.get(v, 1) - 1) for v, f in self.factors.items())

    def low(self, extents: Mapping[str, int]) -> int:
        """What negative factors reach down to."""
        return sum(min(f, 0) * (extents.get(v, 1) - 1) for v, f in self.factors.items())


@dataclass(frozen=True, slots=True)
class Read:
    """What a sum reads of a Func or an argument."""

    func: str
    indices: tuple[Index, ...]

    def follows(self, variable: str) -> bool:
        return any(variable in i.factors for i in self.indices)

    def follows_any(self, variables: Mapping[str, int | None]) -> bool:
        return any(map(self.follows, variables))

    def reused(self, arg: str, reduced: Mapping[str, int | None]) -> bool:
        """Whether neighbours along a dimension of the result read the same elements."""
        if not self.follows(arg):
            return True
        return any(
            abs(i.factors[arg]) < abs(f) * (reduced[r] or SMALL * SMALL)
            for i in self.indices
            if arg in i.factors
            for r, f in i.factors.items()
            if r in reduced
        )


@dataclass(frozen=True, slots=True)
class Reuse:
    """A sum over ``reduced`` variables (None: of unknown extent), in the order of its domain, for
    results along ``n``, the innermost of so many ``dimensions``, and ``m``, another one of a tile
    (None: there is none). ``beside``: what each result reads of the same Funcs once, and what it
    begins with (``first``).
    """

    reads: tuple[Read, ...]
    reduced: Mapping[str, int | None]
    dimensions: int
    n: int
    m: int | None = None
    beside: tuple[Read, ...] = ()
    first: tuple[Read, ...] = ()

    @property
    def every(self) -> tuple[Read, ...]:
        return (*self.reads, *self.beside, *self.first)

    @property
    def alternatives(self) -> tuple[Reuse, ...]:
        """With each other dimension; as it is where there is none."""
        others = (d for d in range(self.dimensions) if d != self.n)
        return tuple(replace(self, m=d) for d in others) or (self,)

    @property
    def terms(self) -> int | None:
        """Of each sum, where it is a number."""
        extents = [e for e in self.reduced.values() if e is not None]
        return prod(extents) if len(extents) == len(self.reduced) else None


def reuse_of(member: Member, placement: Placement, n: int = 0) -> Reuse | None:
    """What a reduction reads again and again; None where some of it is read once only, where data
    say what is read, and where the sum is short. ``n``: its dimension that is stored innermost.
    """
    if len(member.stages) != 2 or len(member.types) != 1:
        return None
    if not 1 <= len(member.args) <= DIMENSIONS:
        return None
    update = member.stages[1]
    reduced = {r.name: number(r.extent) for r in update.reduced}
    extent = placement.extent(member.name, n)
    if update.predicate is not None or (extent is not None and extent <= SMALL):
        return None
    reads = _reads(update, member, placement.program)
    inner = [r for r in reads or () if r.follows_any(reduced)]
    if not inner or not all(any(r.reused(a, reduced) for a in member.args) for r in inner):
        return None
    if len(reduced) > 1 and not in_any_order(member):
        return None
    staged = {r.func for r in inner}
    first = _reads(member.stages[0], member, placement.program, staged)
    if first is None:
        return None
    beside = tuple(r for r in reads or () if r not in inner and r.func in staged)
    found = Reuse(tuple(inner), reduced, len(member.args), n, beside=beside, first=first)
    return None if found.terms is not None and found.terms < LEAST else found


def place_windows_apart(found: Placement, tensor: Container[str]) -> None:
    """Sums over windows of which a Func reads several have kernels of their own: a block of threads
    computes a tile of one, and each thread would load all of the windows of several. Those for
    ``tensor`` units (labels) are none of these.
    """
    for reader in found.program:
        mine = [m for m in found.at_threads_of(reader) if m.label not in tensor]
        for member in mine if len(mine) > 1 else ():
            if reuse_of(member, found) is not None:
                found.places[member.name] = Place.KERNEL
                del found.reader[member.name]


def of_some(member: Member) -> bool:
    """Whether a condition says which terms a sum has."""
    return any(
        stage.predicate is not None
        or (
            isinstance(part, Select) and free_vars(part.condition) & {r.name for r in stage.reduced}
        )
        for stage in member.stages[1:]
        for value in stage.values
        for part in walk_expr(value)
    )


def _reads(
    stage: Stage, member: Member, program: Program, of: Container[str] | None = None
) -> tuple[Read, ...] | None:
    """What a stage reads beside its own element, ``of`` some Funcs; None if not all indices are
    sums of variables.
    """
    variables = variables_of(member, stage.reduced)
    found = list[Read]()
    for access in dict.fromkeys(a for e in stage.values for a in accesses(e)):
        if access.func == member.name or not (of is None or access.func in of):
            continue
        read = read_of(access, variables)
        if read is None or access.func not in program.members:
            return None
        found.append(read)
    return tuple(found)


def variables_of(member: Member, reduced: Iterable[Reduced]) -> dict[str, Affine]:
    """What indices of a stage are sums of, and where each begins."""
    variables = dict.fromkeys(member.args, Affine())
    return variables | {r.name: Affine.of(r.minimum) for r in reduced}


def read_of(access: Access, variables: Mapping[str, Affine]) -> Read | None:
    indices = [_index(i, variables) for i in access.indices]
    whole = tuple(i for i in indices if i is not None)
    return Read(access.func, whole) if len(whole) == len(indices) else None


def _index(e: Expr, variables: Mapping[str, Affine]) -> Index | None:
    """``variables``: those that indices are sums of, and where each begins."""
    form, factors = Affine.of(e), dict[str, int]()
    for name in variables:
        factor = form.coefficient(Var(name)).constant
        form = form.rest(Var(name))
        if factor is None or form.mentions(name):
            return None
        if factor:
            factors[name] = factor
    for name, factor in factors.items():
        form += variables[name] * factor
    return Index(factors, form)
