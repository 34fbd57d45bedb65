"""The form of an update: one sum of products, added to the accumulator itself."""

from __future__ import annotations

from selector.eqsat.conditions.context import (
    Context,
    Miss,
    bare_of,
    cast_call,
    loads,
    nearest,
    quoted,
    serial_over,
    shown,
    variable,
)
from selector.ir.access import access
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Cast,
    Expr,
    LocToLoc,
    ReduceOp,
    Select,
    VectorReduce,
)
from selector.ir.traverse import expr_children, free_vars, walk_expr
from selector.operands.scaling import is_uniform, is_zero, refusal
from selector.operands.updates import Update


def factored(c: Context) -> Miss | None:
    """Factors of the sums could be taken out of them."""
    buffer, known = c.store.buffer, c.scope.refusals
    if buffer not in known:
        known[buffer] = refusal(c.scope.allocation, buffer)
    why = known[buffer].replace(f"`{buffer}`", f"`{c.func}`")
    if not why:
        return None
    return c.miss(
        why, f"multiply where `{c.func}` is read, or give each sum an accumulator of its own"
    )


def one_reduction(c: Context, update: Update) -> Miss | None:
    """There is one vectorized sum."""
    found = [e for e in walk_expr(c.store.value) if isinstance(e, VectorReduce)]
    other = next((e.op for e in found if e.op is not ReduceOp.ADD), None)
    if other is not None:
        return _not_a_sum(c, other.value)
    if not found:
        return _no_reduction(c)
    if not update.reductions:
        return c.miss(
            "its reduction is scaled or otherwise changed before it is added",
            f"keep the update a plain sum of products, and do the rest where `{c.func}` is read",
            nearest(c),
        )
    if len(update.reductions) > 1:
        return c.miss(
            f"it adds {len(update.reductions)} reductions at once",
            "write one update definition for each product",
        )
    return None


def _not_a_sum(c: Context, how: str) -> Miss:
    return c.miss(
        f"it reduces with `{how}`; tensor instructions only add",
        f"only sums of products have an instruction; keep `{c.func}` out of tensor memory",
    )


def _no_reduction(c: Context) -> Miss:
    for op in (BinaryOp.MAX, BinaryOp.MIN):
        if any(isinstance(e, Binary) and e.op is op for e in walk_expr(_body(c))):
            return _not_a_sum(c, op.value)
    inside = [f for f in serial_over(c, _body(c)) if f.name not in free_vars(c.store.index)]
    if inside:
        names = [variable(f.name) for f in inside]
        return c.miss(
            f"there is no vectorized reduction in it: the loop over {quoted(names[:1])} is serial",
            f"vectorize it: `{c.func}.update().atomic().vectorize({names[0]})`, with {names[0]} "
            "innermost",
            nearest(c),
        )
    return c.miss(
        "there is no vectorized reduction in it",
        "vectorize the reduction: `.update().atomic().vectorize(r)`, with r innermost",
        nearest(c),
    )


def _body(c: Context) -> Expr:
    return c.store.value.value if isinstance(c.store.value, LocToLoc) else c.store.value


def accumulates(c: Context, update: Update) -> Miss | None:
    """The sum is added to the lanes that are stored."""
    if len(update.terms) == 1 and update.terms[0] is update.reductions[0]:
        return c.miss(
            f"the sum is not added to `{c.func}` itself",
            "initialize the Func in its pure definition and add to it in the update: `f += a*b`",
        )
    if not update.adds_itself:
        return c.miss(
            f"the sum is not added to the lanes of `{c.func}` that are stored",
            "write the update as `f(x, y) += a*b`; anything else belongs in a Func that reads f",
        )
    return None


def product(c: Context, update: Update) -> Miss | None:
    """The terms of the sum are products of two operands."""
    inner = update.reductions[0].value
    factors = [f for f in _factors(inner) if not is_uniform(f)]
    conditions = [bare for f in factors if (bare := bare_of(f)).type.is_bool]
    if len(factors) > 2 and conditions:
        return c.miss(
            "the terms of the sum are products with a condition as a factor, "
            f"`{shown(conditions[0])}`, and no operand can carry it",
            "write `select(condition, a*b, 0)`, of which it is said why",
            nearest(c),
        )
    if len(factors) > 2:
        names = [next((c.name(x.buffer) for x in loads(f)), shown(f)) for f in factors]
        return c.miss(
            f"the terms of the sum are products of {len(factors)} operands: {quoted(names)}",
            f"multiply two of them in a Func of their own first, in the operands' type; `{c.func}` "
            "then sums products of two",
            nearest(c),
        )
    if len(factors) == 2 and (bare_of(factors[0]) == bare_of(factors[1])):
        difference = bare_of(factors[0])
        if isinstance(difference, Binary) and difference.op is BinaryOp.SUB:
            return c.miss(
                "it sums squared differences, which are no products of two loads",
                "expand the square, (a - b)**2 = a*a - 2*a*b + b*b: the sum of a*b goes to the "
                "tensor unit, those of a*a and b*b into ordinary Funcs, and all three together "
                f"where `{c.func}` is read",
                nearest(c),
            )
    if update.factors is None or (isinstance(inner, Select) and not is_zero(inner.otherwise)):
        return _no_product(c, inner)
    return None


def _no_product(c: Context, inner: Expr) -> Miss | None:
    cast = cast_call(c.result)
    match inner:
        case Cast(t, Binary(BinaryOp.MUL, a, _)):
            why = "overflows" if a.type.is_integer else "rounds it"
            return c.miss(
                f"the product is taken in the operands' type, {a.type.element}, and cast to "
                f"{t.element} afterwards, which {why}",
                f"cast each factor: `{cast}(a)*{cast}(b)` instead of `{cast}(a*b)`",
                nearest(c),
            )
        case Select(_, then, _) if is_zero(then):
            return c.miss(
                "the terms of the sum are a select that begins with zero",
                "turn the condition round, so that it ends in zero: `select(condition, a*b, 0)`",
            )
        case Select():
            return c.miss(
                "the terms of the sum are a select that does not end in zero",
                "use `select(condition, a*b, 0)`, which becomes a predicate of the operands; the "
                "other value belongs in an ordinary Func",
            )
        case _:
            return _plain_sum(c, inner)


def _plain_sum(c: Context, inner: Expr) -> Miss:
    """Terms that are no products: a factor of ones helps where an instruction has the type."""
    loaded = next(loads(inner), None)
    if loaded is None or access(loaded.index) is None or not _is_load(inner):
        return c.miss(
            f"the terms of the sum are not products of two operands: {shown(inner)}",
            "only sums of products have an instruction; compute the terms into a Func of an "
            "operand's type, and multiply by a Func of ones to sum them on a tensor unit",
            nearest(c),
        )
    t, name = loaded.type.element, c.name(loaded.buffer)
    able = {i.b_type for i in c.legal if (i.a_type, i.c_type) == (t, c.result)}
    if not able:
        types = sorted({f"{i.a_type} x {i.b_type}" for i in c.legal if i.c_type == c.result})
        return c.miss(
            f"the terms of the sum are not products of two operands, and no instruction of "
            f"{c.target_text} multiplies {t} into {c.result}",
            f"keep `{c.func}` out of tensor memory; or store `{name}` in a type that has one "
            f"({'; '.join(types) or 'none'}) and multiply it by a Func of ones",
            nearest(c, t),
        )
    ones = sorted(map(str, able))[0]
    return c.miss(
        "the terms of the sum are not products of two operands",
        f"multiply `{name}` by a Func of ones (of type {ones}, computed before) to sum it on a "
        "tensor unit",
        nearest(c, t),
    )


def _is_load(e: Expr) -> bool:
    match e:
        case Cast(_, inner) | Broadcast(inner, _):
            return _is_load(inner)
        case _:
            return next(iter(expr_children(e)), None) is None or any(x is e for x in loads(e))


def _factors(e: Expr) -> list[Expr]:
    """The factors of a product, through casts of products."""
    match e:
        case Binary(BinaryOp.MUL, a, b):
            return [*_factors(a), *_factors(b)]
        case Cast(_, Binary(BinaryOp.MUL, _, _) as inner):
            return _factors(inner)
        case _:
            return [e]
