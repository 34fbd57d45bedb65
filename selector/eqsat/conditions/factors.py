"""The two operands of an update: loads, of types that an instruction has, at affine indices."""

from __future__ import annotations

from selector.eqsat.conditions.context import Context, Miss, bare_of, loads, nearest, quoted, shown
from selector.intrinsics import INSTRUCTIONS, TensorInstruction
from selector.ir.access import Access, access, divided
from selector.ir.affine import Affine
from selector.ir.nodes import Binary, BinaryOp, Broadcast, Expr, IntImm, Load
from selector.ir.traverse import walk_expr
from selector.ir.types import Type
from selector.operands.decoded import decoded
from selector.operands.scaling import is_uniform
from selector.operands.updates import Factor, Update


def loaded(c: Context, update: Update) -> Miss | None:
    """Both operands are loads."""
    values = _operands(update)
    bytes_ = [_byte(value) for value in values]
    for factor, value, byte in zip(update.factors or (), values, bytes_, strict=False):
        if factor.load is None and byte is not None:
            return _decoded(c, byte[1], tuple(b and b[0] for b in bytes_))
        if factor.load is None:
            return _computed(c, value)
    return None


def _byte(value: Expr) -> tuple[Type, Expr] | None:
    """The byte that a factor decodes, and as what."""
    while isinstance(value, Broadcast):
        value = value.value
    return decoded(value, lambda e: isinstance(e, Load))


def _operands(update: Update) -> list[Expr]:
    """The factors as they are written, with their casts."""
    inner = update.reductions[0].value
    found = next((e for e in walk_expr(inner) if isinstance(e, Binary)), None)
    return [] if found is None else [found.a, found.b]


def _computed(c: Context, value: Expr) -> Miss:
    bare = bare_of(value)
    if is_uniform(value) or bare.type.lanes == 1:
        return c.miss(
            f"one operand is the same value in every lane, {shown(bare)}",
            f"sum the other operand against a Func of ones, and multiply where `{c.func}` is read",
            nearest(c),
        )
    sources = list(dict.fromkeys(c.name(x.buffer) for x in loads(bare)))
    of = f" from {quoted(sources)}" if sources else ""
    place = "`compute_root`, or `compute_at` the tile"
    shared = " in shared memory" if c.target.family == "cuda" else ""
    return c.miss(
        f"an operand is computed on the fly{of}: {shown(bare)}",
        f"compute it into its own Func of the operand's type ({place}{shared}), and load from "
        "there",
        nearest(c),
    )


def _decoded(c: Context, byte: Expr, kinds: tuple[Type | None, ...]) -> Miss:
    """Of bytes that the update decodes; ``kinds``: both factors' types, where they are such."""
    (load,), t = loads(byte), next(t for t in kinds if t is not None)
    able = [i for i in INSTRUCTIONS if (i.a_type, i.b_type) == kinds and _may_ask(c, i)]
    hint = (
        "decode it in a Func of its own (float16 has all of its values; `compute_root`, or "
        "`compute_at` the tile), and load from there"
    )
    if able:
        short = "multiplies them, in sums of about 14 bits"
        hint = f'`instructions=("{able[0].asked}",)` {short}; or {hint}'
    return c.miss(
        f"the bytes of `{c.name(load.buffer)}` are decoded in the update, as {t}",
        hint,
        able[0].name if able else nearest(c),
    )


def types(c: Context, update: Update) -> Miss | None:
    """Some instruction has these types."""
    assert update.factors is not None
    a, b = (f.element for f in update.factors)
    wanted = {(a, b, c.result), (b, a, c.result)}
    able = (i for i in INSTRUCTIONS if not i.asked or _may_ask(c, i))
    matching = [i for i in able if (i.a_type, i.b_type, i.c_type) in wanted]
    if any(i in c.legal for i in matching):
        return None
    for factor in update.factors:
        if factor.converted is not None and factor.load is not None:
            return _converted(c, factor, factor.converted)
    if matching:
        return _elsewhere(c, a, b, matching[0])
    other = sorted({str(i.c_type) for i in c.legal if {i.a_type, i.b_type} == {a, b}})
    if other:
        return c.miss(
            f"no instruction multiplies {a} by {b} into {c.result}",
            f"accumulate in {' or '.join(other)}: give the pure definition of `{c.func}` and both "
            "factors that type, and convert where it is read",
            nearest(c, a, b),
        )
    return _no_such_types(c, update.factors)


def _may_ask(c: Context, instruction: TensorInstruction) -> bool:
    """Whether a user may name it: for this target, and this memory."""
    return c.target.has(instruction.needs) and instruction.family in c.families


def _converted(c: Context, factor: Factor, t: Type) -> Miss:
    name = c.name(factor.name)
    return c.miss(
        f"`{name}` is {factor.element} in memory and converted to {t} inside the update",
        f"convert it in a Func of its own ({t}, `compute_root` or `compute_at` the tile), and load "
        "from there",
        nearest(c, t),
    )


def _elsewhere(c: Context, a: Type, b: Type, instruction: TensorInstruction) -> Miss:
    has = f"{c.target_text} has no instruction for {a} x {b} -> {c.result}"
    if instruction.rounds:
        return c.miss(
            f"{has} that does not round them: tf32 has 11 bits of their 24",
            '`instructions=("tf32",)` allows that; `hb.split_product(a, b)` keeps 22 bits, for '
            "three instructions instead of one",
            instruction.name,
        )
    if c.target.has(instruction.needs):
        return c.miss(
            f"{has} among those that `instructions=` allows",
            f"lift the restriction: {instruction.name} has these types",
            instruction.name,
        )
    return c.miss(
        f"{has}; it needs {instruction.needs}",
        f"compile for a target with {instruction.needs}, or store the operands as "
        f"{_known(c, c.result)}",
        instruction.name,
    )


def _no_such_types(c: Context, factors: tuple[Factor, Factor]) -> Miss:
    a, b = (f.element for f in factors)
    names = [c.name(f.name) for f in factors]
    if a != b:
        why = (
            f"the operands have different types, {a} (`{names[0]}`) and {b} (`{names[1]}`), and no "
            f"instruction of {c.target_text} multiplies them"
        )
        hint = f"convert one into the other's type in its own Func; there is {_known(c, c.result)}"
    else:
        why = f"no instruction multiplies {a} by {b} into {c.result}"
        hint = f"store the operands in a type that has one: {_known(c, c.result)}"
    return c.miss(why, hint, nearest(c, a, b))


def _known(c: Context, result: Type) -> str:
    """The target's products, those into this accumulator if there are any."""
    same = [i for i in c.legal if i.c_type == result] or list(c.legal)
    return "; ".join(sorted({f"{i.a_type} x {i.b_type} -> {i.c_type}" for i in same}))


def affine(c: Context, update: Update) -> Miss | None:
    """Both operands are read at indices that are affine in the vectorized variables."""
    for factor in update.factors or ():
        if factor.load is not None and access(factor.load.index) is None:
            name = c.name(factor.load.buffer)
            how, hint = _twisted(c, factor.load.index, name)
            return c.miss(
                f"`{name}` is read at an index that is {how}, which is not affine in the "
                "vectorized variables",
                hint,
                nearest(c, factor.element),
            )
    return None


def _twisted(c: Context, index: Expr, name: str) -> tuple[str, str]:
    """What bends an index, and how to do without."""
    copy = (
        f"copy what is read of `{name}` into a Func with the layout of the tile first "
        "(`compute_root`, or `compute_at` the tile), and multiply that one"
    )
    inside = [e for e in walk_expr(index) if e.type.lanes > 1]
    table = next((e for e in inside if isinstance(e, Load)), None)
    if table is not None:
        return f"looked up in `{c.name(table.buffer)}`", copy
    for e in inside:
        match e:
            case Binary(BinaryOp.DIV | BinaryOp.MOD as op, x, Broadcast(IntImm(by), _)) if (
                access(e) is None
            ):
                how = "divided by" if op is BinaryOp.DIV else "wrapped around at"
                return f"{how} {by}", copy + _aligned(op, x, by)
            case Binary(BinaryOp.MIN | BinaryOp.MAX):
                return "clamped", (
                    f"{copy}, so that the clamp happens there; or mask it with "
                    f"`select(inside, a*b, 0)`"
                )
            case Binary(BinaryOp.MUL, x, y) if not is_uniform(x) and not is_uniform(y):
                return "a product of two vectorized variables", copy
            case _:
                pass
    return "not a sum of strides", copy


def _aligned(op: BinaryOp, x: Expr, by: int) -> str:
    """When a division is affine after all: its vectors begin at multiples of the divisor."""
    seen = access(x)
    if seen is None:
        return ""
    start = Access(Affine.of(seen.base.offset), seen.levels)
    if divided(op, start, by) is None:
        return ""
    return f"; or let the vectors begin at multiples of {by}, so that they walk in whole groups"
