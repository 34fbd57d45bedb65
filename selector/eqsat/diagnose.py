"""Why a statement could not go to the tensor unit: the first condition that fails, and the change
that mends it.

The checks run in the order in which a user would mend them: placement of the accumulator, shape of
the statement, types, target, access patterns, block shape. They look at the statement itself, not
at the e-graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from selector.eqsat import operands
from selector.eqsat.extract import Shape
from selector.eqsat.facts import EXECUTES
from selector.eqsat.scopes import Scope
from selector.intrinsics import INSTRUCTIONS, TensorInstruction, for_target
from selector.ir.access import access
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Cast,
    Expr,
    Load,
    Location,
    LocToLoc,
    Memory,
    ReduceOp,
    Select,
    Stmt,
    Store,
    VectorReduce,
)
from selector.ir.printer import print_expr
from selector.ir.traverse import walk_expr
from selector.targets import TARGETS, Target


@dataclass(frozen=True, slots=True)
class Miss:
    """A statement that was not selected: which one, why, what to change, the instruction that came
    nearest."""

    statement: Stmt
    why: str
    hint: str
    nearest: str = ""

    @staticmethod
    def stray(s: Stmt) -> Miss:
        """Tensor memory read by something that stores nothing."""
        return Miss(
            s,
            "an accumulator is read in a condition, a loop bound or a let",
            "copy it to an ordinary Func first, and read that one",
        )


@dataclass(frozen=True, slots=True)
class Context:
    """What the checks look at."""

    scope: Scope
    store: Store
    legal: tuple[TensorInstruction, ...]
    target: Target

    @property
    def location(self) -> Location:
        """Where the accumulator that is stored lives."""
        return self.scope.accumulators.get(self.store.buffer, Location.MEM)

    @property
    def target_text(self) -> str:
        """The target, and whether its instructions were restricted."""
        restricted = len(self.legal) < len(for_target(self.target))
        return f"target {self.target.name}{' (as restricted)' if restricted else ''}"

    def miss(self, why: str, hint: str, nearest: str = "") -> Miss:
        return Miss(self.store, why, hint, nearest)


def stage_of(store: Store, scope: Scope) -> str:
    """``init``, ``update`` or ``read``."""
    if store.buffer not in scope.accumulators:
        return "read"
    body = tuple(walk_expr(store.value))
    itself = any(isinstance(e, Load) and e.buffer == store.buffer for e in body)
    return "update" if itself or any(isinstance(e, VectorReduce) for e in body) else "init"


def diagnose(
    scope: Scope,
    index: int,
    shapes: frozenset[Shape],
    legal: tuple[TensorInstruction, ...],
    target: Target,
) -> Miss:
    """The first condition that statement ``index`` of a scope fails."""
    context = Context(scope, scope.stores[index], legal, target)
    for miss in _checks(context, shapes):
        if miss is not None:
            return miss
    return context.miss(
        "no rule turns its access pattern into operands of an instruction",
        "look at `python -m selector explain` for what the rules made of it",
        nearest(context),
    )


def _checks(c: Context, shapes: frozenset[Shape]) -> Iterator[Miss | None]:
    yield _no_unit(c)
    yield _other_shape(c, shapes)
    if c.store.buffer not in c.scope.accumulators:
        yield _reads(c)
        yield _computes(c)
        return
    yield _dense_store(c)
    yield _reads(c)
    yield _predicated(c)
    if stage_of(c.store, c.scope) == "init":
        yield _unused(c)
        return
    update = operands.Update.of(c.store)
    yield _one_reduction(c, update)
    yield _accumulates(c, update)
    yield _product(c, update)
    yield from operands_checks(c, update)


def operands_checks(c: Context, update: operands.Update) -> Iterator[Miss | None]:
    """The checks that need both operands."""
    yield _loads(c, update)
    yield _types(c, update)
    yield _affine(c, update)
    yield _block(c, update)


def _no_unit(c: Context) -> Miss | None:
    if c.location is Location.MEM or any(i.family in EXECUTES[c.location] for i in c.legal):
        return None
    families = " or ".join(EXECUTES[c.location])
    return c.miss(
        f"`{c.store.buffer}` is placed in {c.location.value} memory, and {c.target_text} "
        f"has no {families} instructions",
        _other_place(c.location, c.target),
    )


def _other_place(location: Location, target: Target) -> str:
    """Which target executes a location, and which memory this target's instructions use."""
    able = [t.name for t in TARGETS.values() if _executes(t, location)]
    own = [m for m in Memory if m.location is not Location.MEM and _executes(target, m.location)]
    compile_for = f"compile for {', '.join(sorted(able))}" if able else "no target has them yet"
    if not own:
        return compile_for
    return f"{compile_for}, or place the Func in MemoryType.{own[0].value}"


def _executes(target: Target, location: Location) -> bool:
    families = EXECUTES.get(location, ())
    return any(i.family in families for i in for_target(target))


def _other_shape(c: Context, shapes: frozenset[Shape]) -> Miss | None:
    if not shapes:
        return None
    found = ", ".join(sorted({f"{name} on {m} x {n}" for name, m, n in shapes}))
    return c.miss(
        f"the updates of `{c.store.buffer}` agree on no common instruction and tile; "
        f"this one fits {found}",
        "give all updates of the accumulator the same types and the same tile",
    )


def _reads(c: Context) -> Miss | None:
    for e in walk_expr(c.store.value):
        match e:
            case LocToLoc(_, Location.MEM, Load(_, buffer, index, _)):
                seen = access(index)
                if seen is None or not seen.is_dense() or index.type.lanes == 1:
                    return c.miss(
                        f"`{buffer}` is read {_described(index)}: "
                        "a tile is read as one dense vector",
                        f"vectorize the reading stage over the whole tile of `{buffer}`, "
                        "in the order in which it is stored",
                    )
            case _:
                pass
    return None


def _described(index: Expr) -> str:
    seen = access(index)
    if index.type.lanes == 1:
        return "by scalar code"
    if seen is None:
        return "at an index that is not affine"
    return (
        f"with stride {print_expr(seen.levels[0][0].to_expr())}"
        if seen.levels
        else "as a broadcast"
    )


def _computes(c: Context) -> Miss | None:
    if any(isinstance(e, VectorReduce) for e in walk_expr(c.store.value)):
        return c.miss(
            "a vectorized reduction reads the accumulator, but its result is not in tensor memory",
            "place the reducing Func in tensor memory as well, or copy the accumulator out first",
        )
    return None


def _dense_store(c: Context) -> Miss | None:
    seen = access(c.store.index)
    if seen is not None and seen.is_dense() and c.store.index.type.lanes > 1:
        return None
    how = "by scalar code" if c.store.index.type.lanes == 1 else "at an index that is not dense"
    return c.miss(
        f"`{c.store.buffer}` is stored {how}: a tile is one dense vector",
        f"vectorize all dimensions of `{c.store.buffer}` that its tile has, innermost first",
    )


def _predicated(c: Context) -> Miss | None:
    if c.store.predicate is None:
        return None
    return c.miss(
        f"the store to `{c.store.buffer}` has a predicate",
        "round the accumulator's tile up (its consumer carries the tail), or mask the operands",
    )


def _unused(c: Context) -> Miss | None:
    return c.miss(
        f"no update of `{c.store.buffer}` became an instruction",
        f"`{c.store.buffer}` needs an update `f += a*b` over a vectorized reduction",
    )


def _one_reduction(c: Context, update: operands.Update) -> Miss | None:
    buried = [e.op for e in walk_expr(c.store.value) if isinstance(e, VectorReduce)]
    if not update.reductions and buried:
        other = next((op for op in buried if op is not ReduceOp.ADD), None)
        if other is not None:
            return _not_a_sum(c, other)
        return c.miss(
            "its reduction is scaled or otherwise changed before it is added",
            "keep the update a plain sum of products and do the rest where the result is read",
            nearest(c),
        )
    if not update.reductions:
        return c.miss(
            "there is no vectorized reduction in it",
            "vectorize the reduction: `.update().atomic().vectorize(r)`, with r innermost",
            nearest(c),
        )
    first, *others = update.reductions
    if others:
        return c.miss(
            f"it adds {len(update.reductions)} reductions at once",
            "write one update definition for each product",
        )
    op = first.op
    return None if op is ReduceOp.ADD else _not_a_sum(c, op)


def _not_a_sum(c: Context, op: ReduceOp) -> Miss:
    return c.miss(
        f"it reduces with `{op.value}`; tensor instructions only add",
        "only sums of products have an instruction; keep this Func out of tensor memory",
    )


def _accumulates(c: Context, update: operands.Update) -> Miss | None:
    if len(update.terms) == 1 and update.terms[0] is update.reductions[0]:
        return c.miss(
            f"the sum is not added to `{c.store.buffer}` itself",
            "initialize the Func in its pure definition and add to it in the update: `f += a*b`",
        )
    if not update.adds_itself:
        return c.miss(
            f"the sum is not added to the lanes of `{c.store.buffer}` that are stored",
            "write the update as `f(x, y) += a*b`; anything else belongs in a Func that reads f",
        )
    return None


def _product(c: Context, update: operands.Update) -> Miss | None:
    if update.factors is not None:
        return None
    inner = update.reductions[0].value
    match inner:
        case Binary(BinaryOp.MUL, _, _):
            return None
        case Cast(_, Binary(BinaryOp.MUL, _, _)):
            return c.miss(
                "the product is taken in the operands' type and cast afterwards, which rounds it",
                "cast each factor: `f32(a)*f32(b)` instead of `f32(a*b)`",
            )
        case Select():
            return c.miss(
                "the terms of the sum are a select that does not end in zero",
                "use `select(condition, a*b, 0)`, which becomes a predicate of the operands",
            )
        case _:
            return c.miss(
                "the terms of the sum are not products of two operands",
                "multiply by a Func of ones (of the operand's type) to sum on a tensor unit",
            )


def _loads(c: Context, update: operands.Update) -> Miss | None:
    for factor in update.factors or ():
        if factor.load is None:
            return c.miss(
                f"an operand is computed on the fly: {factor.text}",
                "compute it into its own Func (`compute_at`, for example in shared memory) and "
                "load from there",
            )
    return None


def _types(c: Context, update: operands.Update) -> Miss | None:
    assert update.factors is not None
    a, b = (f.element for f in update.factors)
    result = c.store.value.type.element
    wanted = {(a, b, result), (b, a, result)}
    matching = [i for i in INSTRUCTIONS if (i.a_type, i.b_type, i.c_type) in wanted]
    if any(i in c.legal for i in matching):
        return None
    if matching:
        needs = ", ".join(sorted({i.needs for i in matching}))
        return c.miss(
            f"{c.target_text} has no instruction for {a} x {b} -> {result}; it needs {needs}",
            f"compile for a target with {needs}, or lift the restriction",
            matching[0].name,
        )
    known = sorted({f"{i.a_type} x {i.b_type} -> {i.c_type}" for i in c.legal})
    if a != b:
        why = f"the operands have different types, {a} and {b}"
        hint = f"convert one into the other's type in its own Func; there is {'; '.join(known)}"
    else:
        why = f"no instruction multiplies {a} by {b} into {result}"
        hint = f"store the operands in a type that has one: {'; '.join(known)}"
    return c.miss(why, hint, nearest(c))


def _affine(c: Context, update: operands.Update) -> Miss | None:
    for factor in update.factors or ():
        if factor.load is not None and access(factor.load.index) is None:
            return c.miss(
                f"`{factor.load.buffer}` is read at an index that is not affine in the vectorized "
                f"variables: {factor.text}",
                "copy it into a Func with the layout of the tile first, or do not vectorize over "
                "the variable that is divided, wrapped or looked up",
                nearest(c),
            )
    return None


def _block(c: Context, update: operands.Update) -> Miss | None:
    assert update.factors is not None
    elements = {f.element for f in update.factors}
    candidates = [
        i
        for i in c.legal
        if i.c_type == c.store.value.type.element and {i.a_type, i.b_type} == elements
    ]
    return operands.block_miss(c.miss, update, candidates)


def nearest(c: Context) -> str:
    """The instruction that comes nearest: same accumulator, then the first of the table."""
    result = c.store.value.type.element
    same = [i for i in c.legal if i.c_type == result]
    return (same or list(c.legal) or list(INSTRUCTIONS))[0].name
