"""What a step of joining is made of: the loop in which one thread joins what others have left in
shared memory, the elements that an index counts through, what changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, prod

from selector.dataclass import dataclass
from selector.diagnostics import InternalError
from selector.ir.affine import Affine, to_affine
from selector.ir.arithmetic import Array
from selector.ir.evaluator import Frame, evaluate
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Block,
    Expr,
    FloatImm,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Load,
    Memory,
    Stmt,
    Store,
    Var,
)
from selector.ir.traverse import map_expr, map_stmt, substitute_stmt, walk_stmt
from selector.ir.types import INT32, Type, limits

WARP = 32
MOST = 1024  # threads of a block
EACH = 512  # threads of each of the blocks that a row has which has more: many registers for each
OPERATIONS = {BinaryOp.ADD: 0.0, BinaryOp.MUL: 1.0, BinaryOp.MIN: inf, BinaryOp.MAX: -inf}


@dataclass(frozen=True, slots=True)
class Row:
    """The loops of a joined kernel: thread ``x`` of the ``threads`` of row ``y``."""

    x: str
    y: str
    threads: int
    rows: int

    @property
    def blocks(self) -> int:
        """Those that a row has, which are a cluster (``row_clusters``)."""
        return self.threads // EACH if self.threads > MOST else 1


class NoRows(Exception):  # noqa: N818
    """It is no kernel of rows."""


def taken_apart(s: Stmt, shared: dict[str, Allocate], regions: list[For]) -> bool:
    """Whether there are but shared memory of constant size and loops over threads."""
    match s:
        case Block(stmts):
            return all(taken_apart(x, shared, regions) for x in stmts)
        case Allocate(memory=Memory.GPU_SHARED, stages=1):
            shared[s.name] = s
            constant = all(isinstance(e, IntImm) for e in s.extents)
            return constant and taken_apart(s.body, shared, regions)
        case For(kind=ForKind.GPU_THREAD):
            regions.append(s)
            return True
        case _:
            return False


def local_names(regions: list[For]) -> frozenset[str]:
    """What is allocated in threads."""
    return frozenset(x.name for s in regions for x in walk_stmt(s) if isinstance(x, Allocate))


def elements_of(s: Allocate) -> int:
    """Of an allocation of constant size."""
    return prod(e.value for e in s.extents if isinstance(e, IntImm))


@dataclass(frozen=True, slots=True)
class Fold:
    """``to[0] = to[0] op from[index]`` for ``count`` values of ``var``, under a ``test``."""

    to: str
    op: BinaryOp
    load: Load
    var: str
    count: int
    test: Expr | None


def fold_of(s: Stmt) -> Fold | None:
    """The step that a statement is; None for others."""
    var, count, test = "", 1, None
    match s:
        case For(var, IntImm(0), IntImm(count), ForKind.SERIAL | ForKind.UNROLLED, body):
            s = body
        case _:
            pass
    match s:
        case IfThenElse(test, then, None):
            s = then
        case _:
            pass
    match s:
        case Store(to, IntImm(0), Binary(op, Load() as a, Load() as b), None):
            pass
        case _:
            return None
    own, load = (a, b) if a.buffer == to else (b, a)
    alone = own.buffer == to != load.buffer and own.index == IntImm(0)
    plain = own.predicate is None and load.predicate is None and load.type.lanes == 1
    return Fold(to, op, load, var, count, test) if alone and plain else None


def dense_count(index: Affine, sizes: Mapping[str, int]) -> int | None:
    """How many elements an index counts through, each once; None if it does not."""
    steps: list[tuple[int, int]] = []
    rest = index
    for name, size in sizes.items():
        step = index.coefficient(Var(name)).constant
        rest = rest.rest(Var(name))
        if step is None or (step == 0 and size > 1):
            return None
        if size > 1:
            steps.append((step, size))
    reached = 1
    for step, size in sorted(steps):
        if step != reached:
            return None
        reached *= size
    return reached if rest.constant == 0 else None


def values_of(e: Expr, values: Mapping[str, Array]) -> Array:
    """An index of the numbers of threads."""
    try:
        frame = Frame(1, {name: numbers[:, None] for name, numbers in values.items()})
        return evaluate(e, frame)[:, 0]
    except InternalError:
        raise NoRows from None


def neutral_of(op: BinaryOp, t: Type) -> Expr:
    """What changes nothing."""
    value = OPERATIONS.get(op)
    if value is None:
        raise NoRows
    if t.is_float:
        return FloatImm(value, t)
    low, high = limits(t)
    return IntImm({inf: high, -inf: low}.get(value, int(value) if abs(value) < 2 else 0), t)


def mixed(loops: list[tuple[str, int]], whole: str) -> dict[str, Expr]:
    """The first variable by the number that all of them make; the others have to cancel out."""
    own = [(name, size) for name, size in loops if size > 1]
    found: dict[str, Expr] = {name: IntImm(0) for name, size in loops if size == 1}
    if not own:
        return found
    first, step = Affine.of(Var(whole)), own[0][1]
    for name, size in own[1:]:
        first = first - Affine.of(Var(name)) * step
        step *= size
    return {**found, own[0][0]: first.to_expr()}


def rewritten(s: Stmt, values: Mapping[str, Expr]) -> Stmt:
    """A statement of other variables, its indices in normal form."""

    def expr(e: Expr) -> Expr:
        e = map_expr(e, expr)
        return to_affine(e).to_expr() if e.type == INT32 else e

    def stmt(s: Stmt) -> Stmt:
        return map_stmt(s, stmt, expr)

    return stmt(substitute_stmt(s, values))
