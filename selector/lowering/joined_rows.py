"""Loops over a block's threads that share reductions of rows, joined to one loop.

    allocate s[256] in GPUShared                     allocate p[1]
    gpu_thread y < 2, x < 128:                       gpu_thread y < 2, x < 128:
      s[x + 128*y] = f(x, y)                           p[0] = f(x, y)
    allocate t[2] in GPUShared                =>       p[0] = row.max(p[0], 128)
    gpu_thread y < 2:                                  q[0] = max(0, p[0])
      a[0] = 0                                         g(x, y, q[0])
      for r < 128: a[0] = max(a[0], s[r + 128*y])
      t[y] = a[0]
    gpu_thread y < 2, x < 128: g(x, y, t[y])

Shared memory that holds nothing but what threads have found of their rows, and what few threads
make of that, in however many steps, is what ``row.max`` of all threads of a row is: each of them
has the result, by shuffles and, in long rows, one barrier (``codegen.threads.row_joins``). A thread
then has what it knows of its row from the first statement to the last (``kept_rows``). Sums are
taken in another order. Terms that a step leaves out under a condition are neutral elements here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from math import prod

import numpy as np

from selector.dataclass import dataclass
from selector.ir.affine import Affine, to_affine
from selector.ir.contents import holds
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Block,
    Call,
    Compare,
    CompareOp,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Load,
    Memory,
    Select,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import div, mod
from selector.ir.traverse import (
    free_vars,
    map_expr,
    map_stmt,
    substitute,
    substitute_stmt,
    walk_all_exprs,
    walk_stmt,
)
from selector.ir.types import Type
from selector.lowering.normalize import holds_tensor
from selector.lowering.row_folds import (
    OPERATIONS,
    WARP,
    Fold,
    NoRows,
    Row,
    dense_count,
    elements_of,
    fold_of,
    local_names,
    mixed,
    neutral_of,
    rewritten,
    taken_apart,
    values_of,
)
from selector.lowering.structure import loaded_names, peel_threads, stored_names

ROW_JOIN = "row."
WARPS = ".warps"  # what the warps of a row have found, behind the name of what a thread has
BLOCKS = ".blocks"  # what the blocks of a row have found
THREAD = Var("$n")


@dataclass(frozen=True, slots=True)
class _Parts:
    """What shared memory holds of the threads' ``own`` numbers: in element ``place`` that of thread
    ``$n``, those of all threads with this element joined, where ``tests`` of theirs hold.
    """

    own: str
    type: Type
    place: Expr
    elements: int
    op: BinaryOp | None = None
    tests: tuple[Expr, ...] = ()


def joined_rows(body: Stmt) -> tuple[Stmt, Row | None]:
    """The body of a kernel with one loop over threads, if they share nothing but rows."""
    if holds_tensor(body):
        return body, None
    shared: dict[str, Allocate] = {}
    regions: list[For] = []
    if not taken_apart(body, shared, regions) or len(regions) < 2:
        return body, None
    if stored_names(body) & loaded_names(body) - shared.keys() - local_names(regions):
        return body, None
    try:
        joining = _Joining(shared, regions)
        return joining.joined(), joining.row
    except NoRows:
        return body, None


@dataclass(slots=True)
class _Joining:
    """One kernel; ``held``: what stands for numbers of rows in shared memory, ``done``: whose parts
    are joined by now.
    """

    shared: dict[str, Allocate]
    regions: list[For]
    parts: dict[str, _Parts] = field(default_factory=dict[str, _Parts])
    held: dict[str, str] = field(default_factory=dict[str, str])
    done: set[str] = field(default_factory=set[str])
    threads: int = 0
    row: Row | None = None

    def joined(self) -> Stmt:
        peeled = [peel_threads(s) for s in self.regions]
        self.threads = max(prod(e for _, e in loops) for loops, _ in peeled)
        if self.threads % WARP:
            raise NoRows
        stmts: list[tuple[list[tuple[str, int]], Stmt, list[Stmt]]] = []
        for loops, inner in peeled:
            ahead: list[Stmt] = []
            written = stored_names(inner) & self.shared.keys()
            if prod(e for _, e in loops) < self.threads and written:
                self._step(loops, inner, ahead)
                stmts.append((loops, Block(()), ahead))
            else:
                stmts.append((loops, self._region(loops, inner, ahead), ahead))
        if self.row is None or {p.own for p in self.parts.values()} - self.done:
            raise NoRows
        body: list[Stmt] = []
        for loops, inner, ahead in stmts:
            body += [self._numbered(x) for x in ahead]
            body += [self._in_row(loops, inner)] if inner != Block(()) else []
        return self._allocated(Block(tuple(body)))

    def _allocated(self, inner: Stmt) -> Stmt:
        row = self.row
        assert row is not None
        types = {p.own: p.type for p in self.parts.values()}
        own = {**types, **{q: self.shared[name].type for name, q in self.held.items()}}
        for name, t in own.items():
            inner = Allocate(name, t, (IntImm(1),), Memory.STACK, inner)
        inner = For(row.x, IntImm(0), IntImm(row.threads), ForKind.GPU_THREAD, inner)
        inner = For(row.y, IntImm(0), IntImm(row.rows), ForKind.GPU_THREAD, inner)
        warps = IntImm(self.threads // row.blocks // WARP)
        for name, t in types.items() if row.threads > WARP else ():
            inner = Allocate(name + WARPS, t, (warps,), Memory.GPU_SHARED, inner)
        for name, t in types.items() if row.blocks > 1 else ():
            blocks = IntImm(row.blocks)
            inner = Allocate(name + BLOCKS, t, (blocks,), Memory.GPU_SHARED, inner)
        return inner

    # ------------------------------------------------------------------ what few threads do

    def _step(self, loops: list[tuple[str, int]], inner: Stmt, ahead: list[Stmt]) -> None:
        """A loop whose threads join parts: of each element, what comes to be there."""
        match inner:
            case Allocate(name, body=Block((Store(a, _, first, None), fold, last))):
                found = fold_of(fold)
            case _:
                raise NoRows
        if a != name or found is None or found.to != name or holds(first, Load):
            raise NoRows
        match last:
            case Store(to, index, Load(_, buffer, _, None), None) if (
                buffer == name and to in self.shared
            ):
                pass
            case _:
                raise NoRows
        parts = self._folded(found, loops)
        place = substitute(index, self._digits(found, loops, self._known(found)))
        elements, neutral = elements_of(self.shared[to]), neutral_of(found.op, parts.type)
        if dense_count(to_affine(index), dict(loops)) != elements:
            raise NoRows
        self.parts[to] = replace(parts, place=place, elements=elements)
        if to in self._folded_on():
            if first != neutral:
                raise NoRows
            return
        if not self._is_row(place, elements):
            raise NoRows
        self.held[to] = f"{to}.own"
        ahead += self._joins(parts)
        value = Binary(found.op, first, Load(parts.type, parts.own, IntImm(0)))
        ahead.append(Store(self.held[to], IntImm(0), value))

    def _folded_on(self) -> set[str]:
        """Shared memory that is joined further."""
        stmts = (x for s in self.regions for x in walk_stmt(s))
        return {fold.load.buffer for x in stmts if (fold := fold_of(x)) is not None}

    def _is_row(self, place: Expr, elements: int) -> bool:
        """Whether each element is of the threads of a row, which lie beside each other."""
        threads = self.threads // elements
        numbers = np.arange(self.threads)
        alike = bool((values_of(place, {THREAD.name: numbers}) == numbers // threads).all())
        if not alike or threads & (threads - 1) or threads < 2:
            return False
        found = Row("row.x", "row.y", threads, elements)
        if self.row is not None and found != self.row:
            return False
        self.row = found
        return True

    def _known(self, fold: Fold) -> _Parts:
        parts = self.parts.get(fold.load.buffer)
        if parts is None or parts.op not in (None, fold.op) or fold.op not in OPERATIONS:
            raise NoRows
        return parts

    def _folded(self, fold: Fold, loops: list[tuple[str, int]]) -> _Parts:
        """The parts that a fold joins, each once, with its test."""
        parts = self._known(fold)
        tests = parts.tests
        if fold.test is not None:
            tests = (*tests, substitute(fold.test, self._digits(fold, loops, parts)))
        return replace(parts, op=fold.op, tests=tests)

    def _digits(self, fold: Fold, loops: list[tuple[str, int]], parts: _Parts) -> dict[str, Expr]:
        """What the variables of a fold are for the part of thread ``$n``."""
        sizes = {**dict(loops), fold.var: fold.count}
        index = to_affine(fold.load.index)
        if dense_count(index, sizes) != parts.elements:
            raise NoRows
        found: dict[str, Expr] = {}
        for name, size in sizes.items():
            step = index.coefficient(Var(name)).constant
            if step:
                found[name] = mod(div(parts.place, IntImm(step)), IntImm(size))
            elif size == 1:
                found[name] = IntImm(0)
        return found

    def _joins(self, parts: _Parts) -> list[Stmt]:
        """The statements by which each thread has what those of its row have found."""
        row, own = self.row, Load(parts.type, parts.own, IntImm(0))
        if parts.own in self.done:
            return []
        assert parts.op is not None
        assert row is not None
        self.done.add(parts.own)
        found: list[Stmt] = []
        for test in parts.tests:
            value = Select(test, own, neutral_of(parts.op, parts.type))
            found.append(Store(parts.own, IntImm(0), value))
        call = Call(parts.type, f"{ROW_JOIN}{parts.op.name}", (own, IntImm(row.threads)))
        return [*found, Store(parts.own, IntImm(0), call)]

    # ------------------------------------------------------------------ what all threads do

    def _region(self, loops: list[tuple[str, int]], inner: Stmt, ahead: list[Stmt]) -> Stmt:
        """A loop that stays, without its shared memory."""
        own = self._own_digits(loops)

        def expr(e: Expr) -> Expr:
            if isinstance(e, Load) and e.buffer in self.shared:
                parts = self.parts.get(e.buffer)
                if parts is None or e.buffer not in self.held or e.type.lanes > 1:
                    raise NoRows
                if not self._alike(substitute(e.index, own), parts.place):
                    raise NoRows
                return Load(e.type, self.held[e.buffer], IntImm(0))
            return map_expr(e, expr)

        def stmt(s: Stmt) -> Stmt:
            fold = fold_of(s)
            if fold is not None and fold.load.buffer in self.shared:
                return self._fold_of_row(fold, loops, own, ahead)
            if isinstance(s, Store) and s.buffer in self.shared:
                raise NoRows
            return map_stmt(s, stmt, expr)

        def outer(s: Stmt) -> Stmt:
            match s:
                case Block(stmts):
                    return Block(tuple(outer(x) for x in stmts))
                case Allocate(body=body):
                    return replace(s, body=outer(body))
                case Store(buffer=name, predicate=None) if name in self.shared:
                    return self._part(s, own, expr)
                case _:
                    return stmt(s)

        return outer(inner)

    def _own_digits(self, loops: list[tuple[str, int]]) -> dict[str, Expr]:
        """The variables of a loop over all threads, by a thread's number; of one over rows, too."""
        total = prod(e for _, e in loops)
        if self.threads % total:
            raise NoRows
        found, step = dict[str, Expr](), self.threads // total
        for name, size in loops:
            found[name] = mod(div(THREAD, IntImm(step)), IntImm(size))
            step *= size
        return found

    def _alike(self, a: Expr, b: Expr) -> bool:
        numbers = {THREAD.name: np.arange(self.threads)}
        return bool((values_of(a, numbers) == values_of(b, numbers)).all())

    def _part(self, s: Store, own: Mapping[str, Expr], expr: Callable[[Expr], Expr]) -> Stmt:
        """What a thread has found of its row."""
        t, place = s.value.type, substitute(s.index, own)
        elements = elements_of(self.shared[s.buffer])
        numbers = np.arange(self.threads)
        places = values_of(place, {THREAD.name: numbers})
        if (
            elements != self.threads
            or not bool((places == numbers).all())
            or s.buffer in self.parts
        ):
            raise NoRows
        if t.lanes > 1 or t.bits != 32:
            raise NoRows
        self.parts[s.buffer] = _Parts(f"{s.buffer}.own", t, THREAD, elements)
        return Store(f"{s.buffer}.own", IntImm(0), expr(s.value))

    def _fold_of_row(
        self, fold: Fold, loops: list[tuple[str, int]], own: Mapping[str, Expr], ahead: list[Stmt]
    ) -> Stmt:
        """The last step of joining, which each thread of a row does: as one of them does it."""
        used = [(n, e) for n, e in loops if n in free_vars(fold.load.index)]
        if fold.test is not None and free_vars(fold.test) & (
            {n for n, _ in loops} - dict(used).keys()
        ):
            raise NoRows
        parts = self._folded(fold, used)
        digits = self._digits(fold, used, self._known(fold))
        if not all(self._alike(digits[n], own[n]) for n, _ in used):
            raise NoRows
        elements = prod(e for _, e in used)
        place: Expr = IntImm(0)
        step = 1
        for n, e in used:
            place = Binary(BinaryOp.ADD, place, Binary(BinaryOp.MUL, digits[n], IntImm(step)))
            step *= e
        if not self._is_row(place, elements):
            raise NoRows
        ahead += self._joins(parts)
        value = Load(parts.type, parts.own, IntImm(0))
        return Store(
            fold.to, IntImm(0), Binary(fold.op, Load(parts.type, fold.to, IntImm(0)), value)
        )

    # ------------------------------------------------------------------ the variables of rows

    def _numbered(self, s: Stmt) -> Stmt:
        """What is said of thread ``$n``, of thread ``row.x`` of ``row.y``."""
        row = self.row
        assert row is not None
        number = Affine.of(Var(row.x)) + Affine.of(Var(row.y)) * row.threads
        return substitute_stmt(s, {THREAD.name: number.to_expr()})

    def _in_row(self, loops: list[tuple[str, int]], inner: Stmt) -> Stmt:
        """A region's statements with the variables of rows for those of its loops."""
        row = self.row
        assert row is not None
        values: dict[str, Expr] = {}
        if prod(e for _, e in loops) == row.rows != self.threads:
            values |= mixed(loops, row.y)
            first = Compare(CompareOp.EQ, Var(row.x), IntImm(0))
            return IfThenElse(first, rewritten(inner, values))
        along, reached = list[tuple[str, int]](), 1
        while reached < row.threads and len(along) < len(loops):
            along.append(loops[len(along)])
            reached *= along[-1][1]
        if reached != row.threads or prod(e for _, e in loops) != self.threads:
            raise NoRows
        values = mixed(along, row.x) | mixed(loops[len(along) :], row.y)
        found = rewritten(inner, values)
        if any(free_vars(e) & dict(loops).keys() for e in walk_all_exprs(found)):
            raise NoRows
        return found
