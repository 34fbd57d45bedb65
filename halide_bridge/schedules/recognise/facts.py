"""Where each Func of a plain pipeline is computed: inside those that read it, in the registers of
the one that does, or in kernels of its own.

Decided producers first, from what is read where and what it costs; nothing is known by name. What a
Func costs that is computed anew is weighed against the bytes that it would move otherwise.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from halide_bridge.schedules.recognise.costs import operations
from halide_bridge.schedules.recognise.narrow import narrowest
from halide_bridge.schedules.recognise.program import (
    Access,
    Member,
    Program,
    Stage,
    Written,
    access_of,
    accesses,
    inlined,
    number,
)
from halide_bridge.schedules.recognise.resampling import resampled_by
from halide_bridge.schedules.sizes import Guess
from selector.dataclass import dataclass
from selector.ir.affine import Affine
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Expr,
    Not,
    Select,
    Var,
)
from selector.ir.traverse import expr_children, free_vars, walk_expr
from selector.lowering.boundaries import unclamped
from selector.lowering.predicates import slack
from selector.lowering.written_out import MOST

SMALL = 8  # a dimension of no more elements is no work for threads
STORED = 100  # operations that a stored and loaded element is worth
ALWAYS = 24  # operations with one load: casts, scales, boundaries
LARGEST = 600  # operations of a statement: more takes long to compile
UNKNOWN = 64  # turns of a loop of unknown length, and more


class Place(Enum):
    """Where a Func is computed."""

    GIVEN = "as scheduled by you"
    INSIDE = "inside those that read it"
    BLOCK = "by the threads of the block that reads it"
    THREAD = "in registers of the thread that reads it"
    ROWS = "in registers of the threads that go down the rows of what reads it"
    KERNEL = "in a kernel of its own"


@dataclass(frozen=True, slots=True)
class Body:
    """A stage with the Funcs written out that are computed inside of it."""

    stage: Stage
    values: tuple[Expr, ...]
    indices: tuple[Expr, ...]
    predicate: Expr | None

    @property
    def expressions(self) -> tuple[Expr, ...]:
        masks = () if self.predicate is None else (self.predicate,)
        return (*self.values, *self.indices, *masks)

    def reads(self) -> tuple[Access, ...]:
        """Each element that it reads, once."""
        found = (a for e in self.expressions for a in accesses(e))
        return tuple(dict.fromkeys(found))

    @property
    def operations(self) -> int:
        return sum(map(operations, self.expressions))


@dataclass(slots=True)
class Placement:
    """``places`` by Func; ``bodies``: the stages of all that are not inside others; ``reader``: who
    has the registers; ``known``: sizes to be fast at, if any are told.
    """

    program: Program
    known: Guess | None = None
    places: dict[str, Place] = field(default_factory=dict[str, Place])
    bodies: dict[str, tuple[Body, ...]] = field(default_factory=dict[str, tuple[Body, ...]])
    reader: dict[str, str] = field(default_factory=dict[str, str])
    why: dict[str, str] = field(default_factory=dict[str, str])

    def at_threads_of(self, reader: Member) -> list[Member]:
        """What is in the registers of those who compute a Func."""
        return [m for m in self.program if self.reader.get(m.name) == reader.name]

    def extent(self, func: str, d: int) -> int | None:
        """Of a dimension, where it is a number."""
        member = self.program.members[func]
        declared = member.bounds.get(member.args[d])
        if declared is not None:
            return declared
        low, high = member.region[d] if d < len(member.region) else (None, None)
        if low is None or high is None:
            return None
        last = (Affine.of(high) - Affine.of(low)).constant
        return None if last is None else last + 1

    def about(self, func: str, d: int) -> int:
        """The same where it is no number: what is told of it, if that is few."""
        member, known = self.program.members[func], self.known
        told = known is not None and known.tells(member, d)
        return min(UNKNOWN, known.extent(member, d)) if known and told else UNKNOWN


def place(
    program: Program, stored: frozenset[str] = frozenset(), known: Guess | None = None
) -> Placement:
    """Decide it for all Funcs of a pipeline. ``stored``: stable names of those in kernels of their
    own, whoever reads them.
    """
    found = _placed(program, stored, known)
    kernels = (m for m in program if found.places[m.name] is Place.KERNEL and not m.whole(SMALL))
    narrow = {n.label for m in kernels if (n := narrowest(m, program)) is not None}
    return _placed(program, stored | narrow, known) if narrow - stored else found


def _placed(program: Program, stored: frozenset[str], known: Guess | None) -> Placement:
    found = Placement(program, known)
    written = dict[str, tuple[tuple[str, ...], tuple[Expr, ...]]]()
    for member in program:
        bodies = tuple(_body(s, written) for s in member.stages)
        if member.label not in stored and _is_inside(member, bodies, program, found, written):
            found.places[member.name] = Place.INSIDE
            written[member.name] = (member.args, bodies[0].values)
            continue
        given = member.fixed or member.extern
        found.places[member.name] = Place.GIVEN if given else Place.KERNEL
        found.bodies[member.name] = bodies
    for member in program:
        if found.places[member.name] is Place.KERNEL and member.reduction:
            reader = _only_reader(member, found)
            own = member.args and not member.whole(SMALL) and member.label not in stored
            if reader and own:
                found.places[member.name] = Place.THREAD
                found.reader[member.name] = reader
    return found


def _body(stage: Stage, written: Written) -> Body:
    def full(e: Expr) -> Expr:
        return inlined(e, written)

    predicate = None if stage.predicate is None else full(stage.predicate)
    values = tuple(map(full, stage.values))
    return Body(stage, values, tuple(map(full, stage.indices)), predicate)


def _is_inside(
    member: Member,
    bodies: tuple[Body, ...],
    program: Program,
    found: Placement,
    written: Written,
) -> bool:
    """Whether computing it anew for each that reads it is cheaper than to store it."""
    if not member.pure or member.fixed or member.extern or member.name in program.outputs:
        return False
    if resampled_by(member, program) is not None:
        return False
    cost = bodies[0].operations
    within = sum(operations(e, inside=True) for e in bodies[0].expressions)
    if len(bodies[0].reads()) <= 1 and within <= ALWAYS:
        return True
    times, readers = 0, 0
    for consumer in program:
        mine = [(s, a, n) for s in consumer.stages for a, n in _reads(s, member, written).items()]
        readers += bool(mine)
        times += sum(n * _turns(s, a, found, program) for s, a, n in mine)
    if times > 1 and (times - 1) * cost > STORED * readers:
        found.why[member.name] = f"read {times} times, {cost} operations each"
        return False
    if times * cost > LARGEST:
        found.why[member.name] = f"{times} times {cost} operations are too long a statement"
        return False
    nodes = sum(1 for e in bodies[0].expressions for _ in walk_expr(e))
    if times * nodes > MOST:
        found.why[member.name] = f"{times} times {nodes} terms, of places too, are too long a text"
        return False
    return True


def _reads(stage: Stage, member: Member, written: Written) -> dict[Access, int]:
    """What a stage reads of a Func, each how often it stands there: what says where an element of
    a Func lies that is written out stands in all that this one reads.
    """
    found = dict[Access, int]()
    waiting = [(e, 1) for e in stage.expressions]
    while waiting:
        part, times = waiting.pop()
        access = access_of(part)
        if access is not None and access.func == member.name:
            found[access] = max(times, found.get(access, 0))
        if access is not None and access.func in written:
            values = written[access.func][1]
            times *= max(1, len({a for value in values for a in accesses(value)}))
        waiting += ((child, times) for child in expr_children(part))
    return found


def _turns(stage: Stage, access: Access, found: Placement, program: Program) -> int:
    """How often a stage computes an element of what it reads: once for each turn of the loops that
    the indices do not follow alone.
    """
    mentioned = frozenset[str]().union(*(free_vars(i) for i in access.indices))
    times = 1
    for r in stage.reduced:
        alone = any(free_vars(i) == frozenset((r.name,)) for i in access.indices)
        if r.name not in mentioned or not alone:
            times *= number(r.extent) or UNKNOWN
    member = program.members[stage.func]
    for d, arg in enumerate(member.args):
        if stage.free[d] is not None and arg not in mentioned:
            times *= found.extent(member.name, d) or found.about(member.name, d)
    return times


def _only_reader(member: Member, found: Placement) -> str:
    """The one kernel that reads a reduction, at its own element alone; empty if there is none."""
    if member.name in found.program.outputs:
        return ""
    readers = [
        (name, body, access)
        for name, bodies in found.bodies.items()
        if name != member.name
        for body in bodies
        for access in body.reads()
        if access.func == member.name
    ]
    names = {name for name, _, _ in readers}
    if len(names) != 1:
        return ""
    (name,) = names
    consumer = found.program.members[name]
    if not consumer.pure or found.places[name] is not Place.KERNEL:
        return ""
    values = [value for _, body, _ in readers for value in body.values]
    if any(leaves_out(value, member.name) for value in values):
        return ""
    indices = {access.indices for _, _, access in readers}
    return name if len(indices) == 1 and _is_own(next(iter(indices)), consumer) else ""


def leaves_out(value: Expr, func: str, *, ends: bool = False) -> bool:
    """Whether a condition says from where on elements of a Func are read, ``f[x, y]`` where ``x >
    y``, or with ``ends`` up to where: Halide computes no others, so that what a thread or a block
    has does not begin, or end, where its tile does.
    """

    def places(e: Expr) -> frozenset[str]:
        read = (i for a in accesses(e) if a.func == func for i in a.indices)
        return frozenset[str]().union(*map(free_vars, read))

    return any(
        _is_bound(part.condition, True, places(part.then), ends)
        or _is_bound(part.condition, False, places(part.otherwise), ends)
        for part in walk_expr(value)
        if isinstance(part, Select)
    )


def _is_bound(condition: Expr, wanted: bool, args: frozenset[str], ends: bool) -> bool:
    """Whether one of some variables has a least value where a condition is as ``wanted``, or with
    ``ends`` a largest one.
    """
    match condition:
        case Not(value):
            return _is_bound(value, not wanted, args, ends)
        case Binary(BinaryOp.AND | BinaryOp.OR as op, a, b):
            parts = (_is_bound(x, wanted, args, ends) for x in (a, b))
            return wanted == (op is BinaryOp.AND) and any(parts)
        case Compare(CompareOp.EQ, a, b):
            return wanted and not (free_vars(a) | free_vars(b)).isdisjoint(args)
        case _ if (room := slack(condition)) is not None:
            room = room if wanted else -room - 1
            factors = (room.coefficient(Var(v)).constant or 0 for v in args)
            return any(f > 0 or (ends and f < 0) for f in factors)
        case _:
            return False


def _is_own(indices: tuple[Expr, ...], consumer: Member) -> bool:
    """Whether the indices are all variables of the consumer, each once."""
    variables = [i.name for i in indices if isinstance(i, Var)]
    return len(variables) == len(indices) and sorted(variables) == sorted(consumer.args)


def side_by_side(body: Body, once: frozenset[str] = frozenset()) -> frozenset[str]:
    """Variables along which neighbours of what a reduction adds up lie side by side in memory.
    ``once``: only what all of these choose counts, all else is read again.
    """
    reduced = {r.name for r in body.stage.reduced}
    found: set[str] = set()
    for access in body.reads():
        mentioned = frozenset[str]().union(*map(free_vars, access.indices))
        if access.func == body.stage.func or not mentioned & reduced or not once <= mentioned:
            continue
        index = access.indices[0]
        forms = {v: Affine.of(unclamped(index, v)) for v in free_vars(index)}
        found |= {v for v, form in forms.items() if form.coefficient(Var(v)).constant == 1}
    return frozenset(found)
