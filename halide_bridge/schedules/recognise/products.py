"""Sums of products that a tensor unit takes: which dimensions are m, n, k and batch, and what keeps
another sum from it.
"""

from __future__ import annotations

from collections.abc import Iterable

from halide_bridge.records import ELEMENT
from halide_bridge.schedules.recognise.program import (
    Access,
    Member,
    Program,
    Stage,
    access_of,
    accesses,
    number,
)
from halide_bridge.schedules.sizes import is_argument
from selector.dataclass import dataclass
from selector.ir.nodes import Binary, BinaryOp, Call, Cast, Expr, FloatImm, IntImm, Select, Var
from selector.ir.traverse import free_vars, walk_expr
from selector.ir.types import FLOAT32, INT32, Kind, Type
from selector.operands.exact import bounds, whole_numbers
from selector.operands.scaling import factors_of

STARTS = "its sum does not begin at 0: count from there, and add where it begins to indices"
SOME = (
    "a condition says which terms count: have one factor be 0 where they do not, "
    "`hl.select(condition, a, 0) * b`"
)
BOTH = "a condition of its rows and columns says which terms count, which neither factor can have"
APART = (
    "a condition of its taps and its pixels says which terms count: neighbours have other taps "
    "then, and a tensor unit has one band for all of them"
)
MORE = (
    "its terms are products and others: add the others up in an update of their own, "
    "`f[...] += a * b` and then `f[...] += a`"
)


@dataclass(frozen=True, slots=True)
class Factor:
    """An operand: a Func whose dimensions 0 and ``outer`` are the sum's and one of the result's.
    ``along``: the sum's is the innermost one.
    """

    func: str
    type: Type
    along: bool
    outer: int = 1


@dataclass(frozen=True, slots=True)
class Product:
    """``func[n, m] += a * b``, over ``k``, the place of its variable in the reduction domain, and
    outside of it over the other variables there. n is dimension 0 of the result, ``m`` another one,
    all others are pairs of operands, which one of them may share. ``plain``: it does not, and there
    is one sum.
    """

    func: str
    a: Factor
    b: Factor
    m: int
    k: int
    plain: bool


def product_of(member: Member, program: Program) -> Product | str:
    """The product that a reduction is; else why a tensor unit cannot have it, empty where it is no
    sum of products at all.
    """
    pair = factors(member)
    if pair is None:
        return _no_product(member)
    start, update = member.stages
    if any(number(r.minimum) != 0 for r in update.reduced):
        return STARTS
    if update.predicate is not None:
        return SOME if _belongs(update.predicate, pair, member) else BOTH
    product = added(member)
    if product is not None and (numbers := _in_other_words(product)) is not None:
        masks = filter(None, map(_as_condition, factors_of(product)))
        return SOME if all(_belongs(m, numbers, member) for m in masks) else BOTH
    if not may_start(start, program):
        return "what it starts with is computed"
    kinds = [multiplied(e, member, program) for e in pair]
    misses = [k for k in kinds if isinstance(k, str)]
    if misses:
        return misses[0]
    types = [k for k in kinds if not isinstance(k, str)]
    if types[0] != types[1] and any(t.is_float and t.bits > 8 for t in types):
        return "its operands have two types"
    read = [read_alone(e, member, program) for e in pair]
    misses = [r for r in read if isinstance(r, str)]
    if misses:
        return misses[0]
    return _arranged(member, [r for r in read if not isinstance(r, str)], types)


def starts_at_zero(start: Stage) -> bool:
    return isinstance(start.values[0], IntImm | FloatImm) and start.values[0].value == 0


def may_start(start: Stage, program: Program) -> bool:
    """Whether a sum starts with what can be added where it is read as well: of arguments alone."""
    members = (program.members.get(a.func) for e in start.values for a in accesses(e))
    return all(m is not None and is_argument(m, program) for m in members)


def used_by(pair: tuple[Expr, Expr], member: Member) -> list[set[str]] | None:
    """The variables of a sum that each factor of what would be a product depends on; None where
    they are those of no product of matrices.
    """
    return None if member.stages[1].predicate is not None else product_variables(pair, member)


def product_variables(pair: tuple[Expr, Expr], member: Member) -> list[set[str]] | None:
    """The variables of each factor; None where one has all that the other one has."""
    if len(member.args) < 2:
        return None
    sums = {r.name for r in member.stages[1].reduced}
    variables = sums | {*member.args}
    a, b = ({v.name for v in walk_expr(e) if isinstance(v, Var)} & variables for e in pair)
    return [a, b] if a & b >= sums and a - b - sums and b - a - sums else None


def source_type(e: Expr) -> Type:
    """What a factor is cast from."""
    return (e.value if isinstance(e, Cast) else e).type


def is_multiplied(kind: Type) -> bool:
    """Whether tensor units multiply such elements, unasked."""
    return kind.bits == 8 or (kind.bits == 16 and kind.kind in _FLOATS)


def factors(member: Member) -> tuple[Expr, Expr] | None:
    """What is multiplied and added to the element itself, by the only update."""
    term = added(member)
    return (term.a, term.b) if isinstance(term, Binary) and term.op is BinaryOp.MUL else None


def added(member: Member) -> Expr | None:
    """What the only update adds to the element itself."""
    if len(member.stages) != 2 or not member.reduction or len(member.types) != 1:
        return None
    return added_to(member.stages[1].values[0], member)


def added_to(value: Expr, member: Member, number: int = 0) -> Expr | None:
    """What an update adds to a value of the element itself."""
    match value:
        case Binary(BinaryOp.ADD, own, term) if is_own(own, member, number):
            return term
        case Binary(BinaryOp.ADD, term, own) if is_own(own, member, number):
            return term
        case _:
            return None


def is_product_in_other_words(member: Member, program: Program) -> bool:
    """Whether the terms of a sum are products for tensor units that count under a condition, or are
    cast afterwards; whether these have two factors of the same values, the native module judges.
    """
    pair = _in_other_words(added(member)) or _some_terms(member)
    if pair is None or member.fixed or not may_be_multiplied(pair, member, program):
        return False
    return product_variables(pair, member) is not None


def _some_terms(member: Member) -> tuple[Expr, Expr] | None:
    """The factors of products of which a predicate says which count."""
    pair = factors(member)
    return None if pair is None or member.stages[1].predicate is None else pair


def _in_other_words(e: Expr | None) -> tuple[Expr, Expr] | None:
    """The factors of such a product."""
    match e:
        case Cast(value=Binary(BinaryOp.MUL, a, b)) | Select(
            _, Binary(BinaryOp.MUL, a, b), IntImm(0) | FloatImm(0.0)
        ):
            return a, b
        case Select(_, Cast() as product, IntImm(0) | FloatImm(0.0)):
            return _in_other_words(product)
        case Binary(BinaryOp.MUL):
            of = factors_of(e)
            numbers = [f for f in of if _as_condition(f) is None]
            return (numbers[0], numbers[1]) if len(numbers) == 2 < len(of) else None
        case _:
            return None


def _as_condition(e: Expr) -> Expr | None:
    """The condition that a factor of one or zero stands for."""
    match e:
        case Cast(value=value):
            return value if value.type.is_bool else _as_condition(value)
        case Select(condition, IntImm(a) | FloatImm(a), IntImm(b) | FloatImm(b)):
            return condition if {a, b} == {0, 1} else None
        case _:
            return None


def _no_product(member: Member) -> str:
    """What keeps terms from being products that are added, where they would be; else nothing."""
    match added(member):
        case Cast(value=Binary(BinaryOp.MUL, a, b) as product) if _is_read(a) and _is_read(b):
            why = f"its products are taken in {a.type} and cast afterwards"
            if a.type.is_float:
                why += ", which rounds them"
            elif bounds(product, {}) == whole_numbers(a.type):
                why += ", where they may wrap around"
            return f"{why}: cast each factor"
        case Select(condition) as term if (pair := _in_other_words(term)) is not None:
            return _why_some(condition, pair, member)
        case Binary(BinaryOp.ADD | BinaryOp.SUB) as terms if _has_product(terms):
            return MORE
        case _:
            return ""


def _why_some(condition: Expr, pair: tuple[Expr, Expr], member: Member) -> str:
    names, sums = free_vars(condition), {r.name for r in member.stages[1].reduced}
    windows = product_variables(pair, member) is None
    if windows and names & sums and names & {*member.args}:
        return APART
    return SOME if _belongs(condition, pair, member) else BOTH


def _belongs(condition: Expr, pair: tuple[Expr, Expr], member: Member) -> bool:
    """Whether each part of a condition has variables of the result that one factor has."""
    match condition:
        case Binary(BinaryOp.AND, a, b):
            return _belongs(a, pair, member) and _belongs(b, pair, member)
        case _:
            return any(free_vars(condition) & {*member.args} <= free_vars(e) for e in pair)


def _has_product(e: Expr) -> bool:
    """Whether one of the terms of a sum multiplies two elements."""
    match e:
        case Binary(BinaryOp.ADD | BinaryOp.SUB, a, b):
            return _has_product(a) or _has_product(b)
        case Binary(BinaryOp.MUL, a, b):
            return _is_read(a) and _is_read(b)
        case _:
            return False


def _is_read(e: Expr) -> bool:
    return element(e) is not None


def is_own(e: Expr, member: Member, number: int = 0) -> bool:
    return isinstance(e, Call) and e.name == f"{member.name}{ELEMENT}{number}"


def element(e: Expr) -> Access | None:
    """What is read, where a factor is no more than that, with a cast or not."""
    return access_of(e.value if isinstance(e, Cast) else e)


def read_alone(e: Expr, member: Member, program: Program) -> str | tuple[str, tuple[str, ...]]:
    """The Func that an operand is, and the variable that chooses along each of its dimensions."""
    access = element(e)
    assert access is not None
    label = program.members[access.func].label
    names = tuple(i.name for i in access.indices if isinstance(i, Var))
    if len(names) != len(access.indices) or len({*names}) < len(names):
        return f"`{label}` is not read by variables alone, each of them once"
    return access.func, names


def multiplied(e: Expr, member: Member, program: Program, halves: bool = False) -> Type | str:
    """The type of a factor's elements, or why tensor units do not multiply it; ``halves``: bytes
    may be multiplied as f16, which has them all.
    """
    access, kind = element(e), source_type(e)
    if access is None:
        wide = member.types[0] == FLOAT32 and not is_multiplied(kind)
        return "an operand is computed in the update" + (
            ", in float32: round it, `hl.cast(hl.Float(16), ...)`" if wide else ""
        )
    operand = program.members.get(access.func)
    label = operand.label if operand else access.func
    if operand is None:
        return f"`{label}` is no Func and no argument of the pipeline"
    if "tf32" in program.asked and kind == FLOAT32 == e.type == member.types[0]:
        return kind
    if not is_multiplied(kind):
        rounded = ": round them to float16" if kind.is_float else ""
        return f"`{label}` has elements of {kind}, which tensor units do not multiply{rounded}"
    wide = FLOAT32 if kind.is_float or halves else INT32
    if e.type != wide or member.types[0] != wide:
        beside = ", or the other one to float16" if e.type == FLOAT32 else ""
        return f"products of {kind} are not taken in {wide}: cast each factor to that{beside}"
    return kind


def may_be_multiplied(factors_: Iterable[Expr], member: Member, program: Program) -> bool:
    """Whether factors, as they are or computed, are of elements that tensor units multiply."""
    read = [program.members.get(a.func) for e in factors_ for a in accesses(e)]
    known = all(m is not None and is_multiplied(m.types[0]) for m in read)
    return known and member.types[0] in (FLOAT32, INT32)


_FLOATS = (Kind.FLOAT, Kind.BFLOAT)


def _arranged(
    member: Member, read: list[tuple[str, tuple[str, ...]]], types: list[Type]
) -> Product | str:
    """Which factor has the rows of the result, and what is summed in a tile: along memory where one
    has that, in both if they can.
    """
    n, *others = member.args or ("",)
    reduced = [r.name for r in member.stages[1].reduced]
    with_n = [i for i, (_, names) in enumerate(read) if n in names]
    if len(with_n) != 1:
        return "it is no product of two matrices"
    (b,) = with_n
    rows, columns = read[1 - b][1], read[b][1]
    alone = [v for v in others if v in rows and v not in columns]
    if not alone:
        return "it is no product of two matrices"
    m = next((v for v in alone if v == rows[0]), alone[0])
    sums = [r for r in reduced if r in rows and r in columns]
    if len(sums) < len(reduced):
        return "not all of its operands go along the sum"
    fits = [k for k in sums if rows[0] in (k, m) and columns[0] in (k, n)]
    if not fits:
        return "the sum goes along an outer dimension of an operand"
    k = max(fits, key=lambda k: (rows[0] == k) + (columns[0] == k))
    factors_ = [
        Factor(func, kind, names[0] == k, names.index(own if names[0] == k else k))
        for (func, names), kind, own in zip(read, types, (n, m) if b == 0 else (m, n), strict=True)
    ]
    batch = {v for v in others if v != m}
    plain = len(reduced) == 1 and batch <= {*rows} & {*columns}
    return Product(
        member.name, factors_[1 - b], factors_[b], member.args.index(m), reduced.index(k), plain
    )
