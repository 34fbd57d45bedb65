"""What every check of a miss looks at, and how things are called in the user's words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from selector.dataclass import dataclass
from selector.eqsat.facts import EXECUTES, legal_instructions
from selector.eqsat.scopes import Scope
from selector.intrinsics import INSTRUCTIONS, TensorInstruction
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Cast,
    Expr,
    For,
    ForKind,
    LetStmt,
    Load,
    Location,
    LocToLoc,
    Stmt,
    Store,
    VectorReduce,
)
from selector.ir.printer import print_expr
from selector.ir.remarks import Origin
from selector.ir.traverse import expr_children, free_vars, stmt_exprs, substitute_stmt, walk_expr
from selector.ir.types import Type
from selector.targets import Target

WIDTH = 90
"""Characters of an expression that a message shows."""


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
        loads = (x for e in stmt_exprs(s) for x in walk_expr(e) if isinstance(x, LocToLoc))
        names = {x.value.buffer for x in loads if isinstance(x.value, Load)}
        read = " and ".join(f"`{n}`" for n in sorted(names)) or "an accumulator"
        return Miss(
            s,
            f"the accumulator {read} is read in a condition, a loop bound or a let",
            "copy it to an ordinary Func first, and read that one",
        )


@dataclass(frozen=True)
class Context:
    """A statement of a scope, and what the target offers it."""

    scope: Scope
    statement: Store
    legal: tuple[TensorInstruction, ...]
    target: Target
    origins: tuple[Origin, ...] = ()

    @cached_property
    def store(self) -> Store:
        """The statement with the lets around it written out."""
        store = self.statement
        for let in reversed(self.scope.around[id(self.statement)]):
            if isinstance(let, LetStmt):
                inlined = substitute_stmt(store, {let.name: let.value})
                assert isinstance(inlined, Store)
                store = inlined
        return store

    @property
    def location(self) -> Location:
        """Where the accumulator that is stored lives."""
        return self.scope.accumulators.get(self.store.buffer, Location.MEM)

    @property
    def families(self) -> frozenset[str]:
        """Families of instructions on the accumulator that is stored, else on all of the scope."""
        own = self.scope.accumulators.get(self.store.buffer)
        places = self.scope.accumulators.values() if own is None else (own,)
        return frozenset(f for place in places for f in EXECUTES[place])

    @property
    def result(self) -> Type:
        """The accumulator's element type."""
        return self.store.value.type.element

    @property
    def restricted(self) -> bool:
        """Whether ``instructions=`` leaves some of the target's out."""
        return len(self.legal) < len(legal_instructions(self.target))

    @property
    def target_text(self) -> str:
        """The target, and whether its instructions were restricted."""
        return f"target {self.target.name}{' (as restricted)' if self.restricted else ''}"

    @property
    def copies(self) -> int:
        """How many statements of the scope are the same up to bases (unrolled ones)."""
        index = next(i for i, s in enumerate(self.scope.stores) if s is self.statement)
        terms = [k.term for k in self.scope.skeletons]
        return terms.count(terms[index])

    @cached_property
    def loops(self) -> tuple[For, ...]:
        """The loops inside the accumulator's allocation that enclose the statement, outermost
        first."""
        around = self.scope.around[id(self.statement)]
        return tuple(s for s in around if isinstance(s, For))

    def name(self, buffer: str) -> str:
        """The user's name of a Func."""
        return next((o.func for o in self.origins if o.name == buffer), buffer)

    @property
    def func(self) -> str:
        """The user's name of the Func that is stored."""
        return self.name(self.store.buffer)

    def miss(self, why: str, hint: str, nearest: str = "") -> Miss:
        return Miss(self.statement, why, hint, nearest)


def stage_of(store: Store, scope: Scope) -> str:
    """``init``, ``update``, ``rescale`` (a tile times numbers, no sum) or ``read``."""
    if store.buffer not in scope.accumulators:
        return "read"
    body = tuple(walk_expr(store.value))
    if any(isinstance(e, VectorReduce) for e in body):
        return "update"
    itself = any(isinstance(e, Load) and e.buffer == store.buffer for e in body)
    if not itself:
        return "init"
    match store.value:
        case Binary(op=BinaryOp.MUL) | LocToLoc(value=Binary(op=BinaryOp.MUL)):
            return "rescale"
        case _:
            return "update"


def variable(loop: str) -> str:
    """The user's name of a loop: ``ro`` for ``mm.s1.r$x.ro``, ``r.x`` for ``mm.s1.r$x``."""
    return loop.rsplit(".", 1)[-1].replace("$", ".")


def serial_over(c: Context, e: Expr) -> list[For]:
    """The loops around a statement that an expression depends on, innermost first."""
    used = free_vars(e)
    kinds = (ForKind.SERIAL, ForKind.UNROLLED)
    return [f for f in reversed(c.loops) if f.name in used and f.kind in kinds]


def quoted(names: Sequence[str]) -> str:
    """```a` and `b```."""
    return " and ".join(f"`{n}`" for n in names)


def shown(e: Expr) -> str:
    """An expression for a message, cut to a width."""
    text = print_expr(e)
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 4]} ..."


def loads(e: Expr) -> Iterator[Load]:
    """The loads of an expression, without those in the indices of others."""
    if isinstance(e, Load):
        yield e
        return
    for child in expr_children(e):
        yield from loads(child)


def bare_of(e: Expr) -> Expr:
    """What casts and broadcasts are of."""
    match e:
        case Cast(_, inner) | Broadcast(inner, _):
            return bare_of(inner)
        case _:
            return e


def nearest(c: Context, *operands: Type) -> str:
    """The instruction that comes nearest among those that execute on the accumulator's memory:
    same operands, then same accumulator, then the first of the table."""
    candidates = [i for i in c.legal if i.family in c.families] or list(INSTRUCTIONS)

    def distance(i: TensorInstruction) -> tuple[bool, int, bool]:
        strange = sum(t not in (i.a_type, i.b_type) for t in operands)
        return i.c_type.is_float != c.result.is_float, strange, i.c_type != c.result

    return min(candidates, key=distance).name


def cast_call(t: Type) -> str:
    """How a user writes a cast to a type, without the argument: ``hl.f32``."""
    prefix = {"float": "f", "int": "i", "uint": "u"}
    return "hl.bf16" if str(t) == "bfloat16" else f"hl.{prefix[t.kind.value]}{t.bits}"
