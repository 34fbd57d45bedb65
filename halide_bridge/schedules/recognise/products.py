"""Sums of products that a tensor unit takes: which dimensions are m, n, k and batch, and what keeps
another sum from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from halide_bridge.records import ELEMENT
from halide_bridge.schedules.recognise.program import (
    Access,
    Member,
    Program,
    Stage,
    accesses,
    number,
)
from halide_bridge.schedules.sizes import is_argument
from selector.ir.nodes import Binary, BinaryOp, Call, Cast, Expr, FloatImm, IntImm, Var
from selector.ir.traverse import walk_expr
from selector.ir.types import FLOAT32, Kind, Type


@dataclass(frozen=True, slots=True)
class Factor:
    """An operand: a Func whose first two dimensions are the sum's and one of the result's.
    ``along``: the sum's is the innermost one.
    """

    func: str
    type: Type
    along: bool


@dataclass(frozen=True, slots=True)
class Product:
    """``func[n, m] += a * b``, over ``k``; dimensions by number: n is 0, m 1, batch 2 if there is
    one.
    """

    func: str
    a: Factor
    b: Factor
    batch: bool


def product_of(member: Member, program: Program) -> Product | str:
    """The product that a reduction is; else why a tensor unit cannot have it, empty where it is no
    sum of products at all.
    """
    pair = factors(member)
    if pair is None:
        return _rounded(member)
    start, update = member.stages
    if len(update.reduced) != 1 or number(update.reduced[0].minimum) != 0:
        return "its sum is not over one dimension from 0 on"
    if update.predicate is not None:
        return "a condition says which terms count"
    if not (starts_at_zero(start) or may_start(start, program)):
        return "what it starts with is computed"
    found = [_factor(e, member, update.reduced[0].name, program) for e in pair]
    misses = [f for f in found if isinstance(f, str)]
    if misses:
        return misses[0]
    return _arranged(member, [f for f in found if not isinstance(f, str)])


def starts_at_zero(start: Stage) -> bool:
    return isinstance(start.values[0], IntImm | FloatImm) and start.values[0].value == 0


def may_start(start: Stage, program: Program) -> bool:
    """Whether a sum starts with what can be added where it is read as well: of arguments alone."""
    members = (program.members.get(a.func) for e in start.values for a in accesses(e))
    return all(m is not None and is_argument(m, program) for m in members)


def computed_factors(
    member: Member, program: Program
) -> list[tuple[int, tuple[int | None, ...]]]:
    """Of what would be a product but for factors that are more than an element, those, by number,
    with the dimensions of Funcs that have them: a place of the result's, or None for the sum's.
    Empty where they could not be, or are of types that are not multiplied.
    """
    pair = factors(member)
    if pair is None or len(member.stages[1].reduced) != 1 or len(member.args) < 2:
        return []
    k = member.stages[1].reduced[0].name
    places = {k: None, **{name: i for i, name in enumerate(member.args)}}
    wanted = [{k, side, *member.args[2:]} for side in member.args[:2]]
    found, sides = [], []
    for number_, e in enumerate(pair):
        used = {v.name for v in walk_expr(e) if isinstance(v, Var)} & places.keys()
        if used not in wanted or not _is_multiplied(e):
            return []
        sides.append(used)
        if isinstance(_factor(e, member, k, program), str):
            found.append((number_, tuple(places[name] for name in _order(e, used))))
    return found if sides[0] != sides[1] else []


def _is_multiplied(e: Expr) -> bool:
    """Whether tensor units multiply what a factor is cast from."""
    kind = e.value.type if isinstance(e, Cast) else e.type
    return kind.bits == 8 or (kind.bits == 16 and kind.kind in _FLOATS)


def _order(e: Expr, variables: set[str]) -> list[str]:
    """As the first element that an expression reads has them, outer ones last."""
    first = [
        v.name for access in accesses(e) for i in access.indices for v in walk_expr(i)
        if isinstance(v, Var) and v.name in variables
    ]  # fmt: skip
    return [*dict.fromkeys((*first, *sorted(variables)))]


def factors(member: Member) -> tuple[Expr, Expr] | None:
    """What is multiplied and added to the element itself, by the only update."""
    if len(member.stages) != 2 or not member.reduction:
        return None
    match member.stages[1].values:
        case (Binary(BinaryOp.ADD, own, Binary(BinaryOp.MUL, a, b)),) if _is_own(own, member):
            return a, b
        case (Binary(BinaryOp.ADD, Binary(BinaryOp.MUL, a, b), own),) if _is_own(own, member):
            return a, b
        case _:
            return None


def _rounded(member: Member) -> str:
    """That products are rounded before they are added, where they are; else nothing."""
    if len(member.stages) != 2 or not member.reduction:
        return ""
    match member.stages[1].values:
        case (Binary(BinaryOp.ADD, own, other),):
            term = other if _is_own(own, member) else own
        case _:
            return ""
    match term:
        case Cast(value=Binary(BinaryOp.MUL, a, b)) if {*map(_is_read, (a, b))} == {True}:
            return (
                f"its products are taken in {a.type} and cast afterwards, which rounds them: cast "
                "each factor"
            )
        case _:
            return ""


def _is_read(e: Expr) -> bool:
    return element(e) is not None


def _is_own(e: Expr, member: Member) -> bool:
    return isinstance(e, Call) and e.name == f"{member.name}{ELEMENT}0"


def element(e: Expr) -> Access | None:
    """What is read, where a factor is no more than that, with a cast or not."""
    e = e.value if isinstance(e, Cast) else e
    if isinstance(e, Call) and ELEMENT in e.name:
        func, _, value = e.name.rpartition(ELEMENT)
        return Access(func, int(value), e.args)
    return None


def _factor(
    e: Expr, member: Member, k: str, program: Program
) -> tuple[Factor, tuple[str, ...]] | str:
    """An operand, with the variables along it."""
    kind, access = multiplied(e, member, program), element(e)
    if isinstance(kind, str):
        return kind
    assert access is not None
    label = program.members[access.func].label
    names = tuple(i.name for i in access.indices if isinstance(i, Var))
    if len(names) != len(access.indices) or names.count(k) != 1:
        return f"`{label}` is not read by variables alone, each of them once"
    if k not in names[:2]:
        return f"the sum goes along an outer dimension of `{label}`"
    return Factor(access.func, kind, names[0] == k), tuple(n for n in names if n != k)


def multiplied(e: Expr, member: Member, program: Program, halves: bool = False) -> Type | str:
    """The type of a factor's elements, or why tensor units do not multiply it; ``halves``: bytes
    may be multiplied as f16, which has them all.
    """
    access, kind = element(e), (e.value if isinstance(e, Cast) else e).type
    if access is None:
        return "an operand is computed in the update"
    operand = program.members.get(access.func)
    label = operand.label if operand else access.func
    if operand is None:
        return f"`{label}` is no Func and no argument of the pipeline"
    if program.tf32 and kind == FLOAT32 == e.type == member.types[0]:
        return kind
    if kind.bits > 16 or kind.bits < 8 or (kind.bits == 16 and kind.kind not in _FLOATS):
        return f"`{label}` has elements of {kind}, which tensor units do not multiply"
    wide = Type(Kind.FLOAT, 32) if kind.bits == 16 or halves else Type(Kind.INT, 32)
    if e.type != wide or member.types[0] != wide:
        return f"products of {kind} are not taken in {wide}"
    return kind


_FLOATS = (Kind.FLOAT, Kind.BFLOAT)


def _arranged(member: Member, found: list[tuple[Factor, tuple[str, ...]]]) -> Product | str:
    """Which factor has the rows of the result."""
    n, m, *batch = (*member.args, "", "")[: max(2, len(member.args))]
    by_variable = {names[:1]: factor for factor, names in found}
    kinds = {factor.type for factor, _ in found}
    if len(kinds) > 1 and any(t.is_float for t in kinds):
        return "its operands have two types"
    if len(batch) > 1 or any(names[1:] != tuple(batch) for _, names in found):
        return "its operands do not share all dimensions but those of a product"
    a, b = by_variable.get((m,)), by_variable.get((n,))
    if a is None or b is None:
        return "it is no product of two matrices"
    return Product(member.name, a, b, bool(batch))
