"""Sums over taps that begin where data say, with weights of their own for each result: resampling.

    tall[c, x, y] += image[c, x, start[y] + t] * weights[t, y]
    wide[c, x, y] += tall[c, start[x] + t, y] * weights[t, x]

There is no window that neighbours share, and no matrix. But the results beside one along all other
dimensions read with the same weights, from the same start on.
"""

from __future__ import annotations

from halide_bridge.schedules.recognise.products import element, factors
from halide_bridge.schedules.recognise.program import Access, Member, Program, accesses
from selector.dataclass import dataclass
from selector.ir.affine import Affine
from selector.ir.nodes import Binary, BinaryOp, Expr, IntImm, Var
from selector.ir.traverse import free_vars
from selector.ir.types import BFLOAT16, FLOAT16, FLOAT32
from selector.lowering.boundaries import unclamped


@dataclass(frozen=True, slots=True)
class Resampling:
    """``func`` sums over one variable what it reads from ``source``; ``along``: the dimension of
    its results that has starts and weights of their own, in the arrays (and Funcs) ``starts`` and
    ``weights``; ``placed``: the dimension of ``source`` that these are places in; ``held``: whether
    a clamp holds them inside; ``count``: how many taps a result has, if that is a number.
    """

    func: str
    source: str
    along: int
    placed: int
    held: bool
    count: int | None
    starts: tuple[str, ...]
    weights: str


def resampling_of(member: Member) -> Resampling | None:
    """The resampling that a reduction is; None for others."""
    pair = factors(member)
    if pair is None or len(member.stages[1].reduced) != 1 or member.stages[1].predicate is not None:
        return None
    (r,) = member.stages[1].reduced
    first, second = map(element, pair)
    if first is None or second is None:
        return None
    for source, weights in ((first, second), (second, first)):
        along = _along(source, member, r.name)
        if along is not None and _is_table(weights, r.name, member.args[along]):
            read = [a for i in source.indices for a in accesses(i)]
            starts = tuple(dict.fromkeys(a.func for a in read))
            placed = next(d for d, i in enumerate(source.indices) if r.name in free_vars(i))
            held = _held(source.indices[placed], r.name)
            count = r.extent.value if isinstance(r.extent, IntImm) else None
            return Resampling(
                member.name, source.func, along, placed, held, count, starts, weights.func
            )  # fmt: skip
    return None


def resampled_by(member: Member, program: Program) -> Resampling | None:
    """What a pure Func alone makes of the results of a resampling, each by itself: it is stored
    instead of them.
    """
    if not member.pure:
        return None
    reads = list(dict.fromkeys(a for e in member.stages[0].values for a in accesses(e)))
    if len(reads) != 1 or reads[0].indices != tuple(map(Var, member.args)):
        return None
    source = program.members.get(reads[0].func)
    if source is None or member.types[0].bytes > source.types[0].bytes:
        return None
    readers = [m for m in program if any(source.name == a.func for a in m.accesses())]
    alone = all(m.name in (member.name, source.name) for m in readers)
    return resampling_of(source) if alone else None


def is_banded(found: Resampling, program: Program) -> bool:
    """Whether a resampling is a product of a band and pixels for each group of results: a tensor
    unit has its types, taps are held inside of the source, and that has dimensions like the sum's.
    """
    member = program.members[found.func]
    source, weights = (program.members[n].types[0] for n in (found.source, found.weights))
    alike = found.placed == found.along and len(member.args) > 1
    halves = source == weights and weights in (FLOAT16, BFLOAT16)
    return found.held and halves and alike and member.types[0] == FLOAT32


def _along(source: Access, member: Member, tap: str) -> int | None:
    """The dimension of the results that says, not by a sum of variables, where taps begin in one
    dimension of what is read; in all others it is read at other dimensions of the results.
    """
    placed = [i for i in source.indices if tap in free_vars(i)]
    rest = [i.name for i in source.indices if isinstance(i, Var)]
    if len(placed) != 1 or len(rest) != len(source.indices) - 1 or len(set(rest)) < len(rest):
        return None
    form, own = Affine.of(unclamped(placed[0], tap)), free_vars(placed[0]) & {*member.args}
    if form.coefficient(Var(tap)).constant != 1 or len(own) != 1:
        return None
    (arg,) = own
    if form.rest(Var(tap)).mentions(tap) or form.coefficient(Var(arg)).terms:
        return None
    return member.args.index(arg) if {*rest} <= {*member.args} - own else None


def _held(index: Expr, tap: str) -> bool:
    """Whether clamps to both sides, by what has no say in where taps begin, are around an index."""
    ends = set[BinaryOp]()
    while isinstance(index, Binary) and index.op in (BinaryOp.MIN, BinaryOp.MAX):
        inner, end = (index.a, index.b) if tap in free_vars(index.a) else (index.b, index.a)
        if any(True for _ in accesses(end)) or tap in free_vars(end):
            return False
        ends.add(index.op)
        index = inner
    return len(ends) == 2


def _is_table(weights: Access, tap: str, arg: str) -> bool:
    """Whether weights are those of a tap and a result along a dimension alone."""
    return {*weights.indices} == {Var(tap), Var(arg)} and len(weights.indices) == 2
