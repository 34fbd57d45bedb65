"""Temporaries of a selected program as memory: computed once, as far out as that saves work.

Selection leaves ``ExprVar(value)`` where an instruction reads something that is not in memory as it
wants it: a swizzled matrix, a band, gathered rows. Here each becomes an allocation that is filled
before the outermost loop on which the value does not depend, with one copy for every iteration of
the loops in between on which it does. The result is plain IR: the interpreter runs it, and an
emitter sees loads.

Used for targets whose operands lie in memory (AMX); on a GPU the emitter lays bands out by itself.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import field, replace

from selector.dataclass import dataclass
from selector.ir.affine import Affine
from selector.ir.module import Module
from selector.ir.nodes import (
    Allocate,
    Block,
    Call,
    Expr,
    ExprVar,
    For,
    ForKind,
    IntImm,
    LetStmt,
    Load,
    Memory,
    Ramp,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import add, mul, sub
from selector.ir.traverse import (
    free_vars,
    map_expr,
    map_stmt,
    stmt_exprs,
    substitute,
    walk_all_exprs,
    walk_expr,
    walk_stmt,
)
from selector.lowering.normalize import inline_lets
from selector.lowering.structure import stored_names
from selector.lowering.swizzle import in_memory_order


def hoist(module: Module) -> Module:
    """The module without ``ExprVar``: its temporaries are allocations, filled where they are
    final."""
    if not any(isinstance(e, ExprVar) for e in walk_all_exprs(module.body)):
        return module
    used = {x.name for x in walk_stmt(module.body) if isinstance(x, (Allocate, For))}
    hoister = _Hoister(used | {b.name for b in module.buffers})
    return replace(module, body=hoister.placed(inline_lets(module.body), ()))


@dataclass(frozen=True, slots=True)
class _Temporary:
    """A value that is kept in ``name``, one copy for each iteration of ``loops`` (outermost
    first)."""

    name: str
    value: Expr
    loops: tuple[For, ...]
    level: int
    parallel: bool

    @property
    def lanes(self) -> int:
        return self.value.type.lanes

    def index(self, counters: tuple[Expr, ...]) -> Expr:
        """The lanes of the copy that belongs to these loop variables."""
        at: Expr = IntImm(0)
        for loop, counter in zip(self.loops, counters, strict=True):
            at = add(mul(at, loop.extent), sub(counter, loop.min))
        base = Affine.of(mul(at, IntImm(self.lanes))).to_expr()
        return base if self.lanes == 1 else Ramp(base, IntImm(1), self.lanes)

    def load(self) -> Load:
        return Load(self.value.type, self.name, self.index(tuple(Var(f.name) for f in self.loops)))

    def around(self, s: Stmt) -> Stmt:
        """``s`` with the temporary allocated around it and filled before it."""
        names = tuple(f"{f.name}.{self.name}" for f in self.loops)
        own = {f.name: Var(n) for f, n in zip(self.loops, names, strict=True)}
        value = substitute(self.value, own)
        fill: Stmt = Store(self.name, self.index(tuple(map(Var, names))), value)
        for i, (loop, name) in reversed(tuple(enumerate(zip(self.loops, names, strict=True)))):
            kind = ForKind.PARALLEL if self.parallel and i == 0 else ForKind.SERIAL
            fill = For(name, loop.min, loop.extent, kind, fill)
        extents = (IntImm(self.lanes), *(f.extent for f in reversed(self.loops)))
        element = self.value.type.element
        return Allocate(self.name, element, extents, Memory.HEAP, Block((fill, s)))


@dataclass(frozen=True, slots=True)
class _Frame:
    """An enclosing statement and the buffers that are written somewhere in it."""

    statement: Stmt
    stored: Set[str]


Frames = tuple[_Frame, ...]


@dataclass
class _Hoister:
    """One run over a module; ``pending`` are the temporaries whose place has not been reached."""

    names: set[str]
    pending: list[_Temporary] = field(default_factory=list[_Temporary])

    def placed(self, s: Stmt, frames: Frames) -> Stmt:
        """A statement below ``frames``, inside the temporaries that are filled just before it."""
        inner = self.stmt(s, frames)
        here = [t for t in self.pending if t.level == len(frames)]
        self.pending = [t for t in self.pending if t.level != len(frames)]
        for t in reversed(here):
            inner = t.around(inner)
        return inner

    def stmt(self, s: Stmt, frames: Frames) -> Stmt:
        if isinstance(s, Store):
            return map_stmt(s, lambda x: x, lambda e: self.expr(e, frames))
        inside = (*frames, _Frame(s, stored_names(s)))
        return map_stmt(s, lambda x: self.placed(x, inside), lambda e: e)

    def expr(self, e: Expr, frames: Frames) -> Expr:
        if isinstance(e, ExprVar):
            return self.temporary(in_memory_order(e.value), frames).load()
        return map_expr(e, lambda x: self.expr(x, frames))

    def temporary(self, value: Expr, frames: Frames) -> _Temporary:
        """The temporary of a value; an equal one at the same place is shared."""
        needed = free_vars(value)
        level = _level(value, frames)
        crossed = [f.statement for f in frames[level:] if isinstance(f.statement, For)]
        loops = tuple(loop for loop in crossed if loop.name in needed)
        for t in self.pending:
            if (t.value, t.level, t.loops) == (value, level, loops):
                return t
        parallel = any(loop.kind is ForKind.PARALLEL for loop in crossed)
        t = _Temporary(self.name(value), value, loops, level, parallel)
        self.pending.append(t)
        return t

    def name(self, value: Expr) -> str:
        """What the temporary holds: the buffer that it is made of, and how."""
        source = next((e.buffer for e in walk_expr(value) if isinstance(e, Load)), "value")
        calls = [e.name for e in walk_expr(value) if isinstance(e, Call)]
        base = f"{source}.{'band' if any('toeplitz' in c for c in calls) else 'packed'}"
        name, number = base, 1
        while name in self.names:
            name, number = f"{base}.{number}", number + 1
        self.names.add(name)
        return name


def _level(value: Expr, frames: Frames) -> int:
    """How many of the enclosing statements a temporary stays inside of.

    It leaves the outermost loop that it can leave and does not depend on: leaving more would keep
    more copies and save nothing.
    """
    needed = free_vars(value)
    first = _first_valid(value, frames)
    for i in range(first, len(frames)):
        loop = frames[i].statement
        if isinstance(loop, For) and loop.name not in needed:
            return i
    return len(frames)


def _first_valid(value: Expr, frames: Frames) -> int:
    """The outermost place where the value is final and the loops in between have known extents."""
    loads = {e.buffer for e in walk_expr(value) if isinstance(e, Load)}
    needed = free_vars(value)
    first = 0
    for i, frame in enumerate(frames):
        match frame.statement:
            case Allocate(name) if name in loads:
                first = i + 1
            case LetStmt(name) if name in needed:
                first = i + 1
            case _ if not loads.isdisjoint(frame.stored):
                first = i + 1
            case _:
                pass
    return _rectangular(needed, frames, first)


def _rectangular(needed: frozenset[str], frames: Frames, first: int) -> int:
    """Moved inwards until the extents of the loops that are copied do not depend on one another."""
    for i in range(len(frames) - 1, first - 1, -1):
        loop = frames[i].statement
        if not isinstance(loop, For) or loop.name not in needed:
            continue
        bounds = {n for e in stmt_exprs(loop) for n in free_vars(e)}
        for j in range(first, i):
            outer = frames[j].statement
            if isinstance(outer, (For, LetStmt)) and outer.name in bounds:
                first = j + 1
    return first
