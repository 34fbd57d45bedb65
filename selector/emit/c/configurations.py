"""Which tile configuration is loaded where.

Tile registers belong to a thread: where all scopes of a stretch of one thread's code share one
configuration it is loaded at the start of the stretch, else at the start of each scope that finds
another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from selector.emit.c.context import CContext
from selector.emit.c.registers import TileScope, is_tile_allocation, tile_scope
from selector.emit.names import comment
from selector.ir.nodes import Allocate, For, ForKind, Stmt
from selector.ir.traverse import stmt_children, walk_stmt


class Configurations:
    """The scopes of a function with their configurations; writes what loads them."""

    def __init__(self, context: CContext) -> None:
        self.context = context
        self._scopes: dict[int, tuple[TileScope, str]] = {}  # by identity of the allocation
        self._configured = False  # one configuration holds throughout
        self._tracked = False  # which one is loaded is known at run time

    def of(self, s: Stmt) -> TileScope | None:
        """The scope that an allocation opens, if it opens one."""
        found = self._scopes.get(id(s))
        return None if found is None else found[0]

    def any_in(self, s: Stmt) -> bool:
        return any(id(x) in self._scopes for x in walk_stmt(s))

    def enter(self, s: Stmt) -> None:
        """The start of a scope: say what is where, and load its configuration if need be."""
        scope, shapes = self._scopes[id(s)]
        w = self.context.writer
        for line in _description(scope):
            w.line(comment(line))
        if not self._configured:
            with w.block(f"if (configured != &{shapes})"):
                w.line(f"tile_configure(&{shapes});")
                w.line(f"configured = &{shapes};")

    def forget(self) -> None:
        """After a parallel loop, whose first thread is this one."""
        if self._tracked:
            self.context.writer.line("configured = NULL;")

    def plan(self, s: Stmt) -> None:
        """Registers of every scope, and a constant for every configuration."""
        if is_tile_allocation(s):
            assert isinstance(s, Allocate)
            scope = tile_scope(s)
            self._scopes[id(s)] = (scope, self._constant(scope))
            return
        for child in stmt_children(s):
            self.plan(child)

    def _constant(self, scope: TileScope) -> str:
        """The name of a configuration, written ahead of the function."""
        row_bytes = ", ".join(str(b) for _, b in scope.shapes)
        rows = ", ".join(str(r) for r, _ in scope.shapes)
        value = f"{{.palette = 1, .row_bytes = {{{row_bytes}}}, .rows = {{{rows}}}}};"
        for number, known in enumerate(self.context.constants):
            if known.endswith(value):
                return f"shapes_{number}"
        name = f"shapes_{len(self.context.constants)}"
        self.context.constants.append(f"static const tile_shapes {name} = {value}")
        return name

    def thread(self, s: Stmt, write: Callable[[], None]) -> None:
        """Code of one thread, with the configurations that it needs."""
        c = self.context
        own = set(self._configurations(s))
        outer = self._configured, self._tracked
        self._configured = len(own) == 1 and not any(self._parallel_scopes(s))
        self._tracked = bool(own) and not self._configured
        if self._configured:
            c.writer.line(f"tile_configure(&{next(iter(own))});")
        elif own:
            c.writer.line("const tile_shapes *configured = NULL;")
        write()
        if own:
            test = "" if self._configured else "if (configured != NULL) "
            c.writer.line(f"{test}tile_release();")
        self._configured, self._tracked = outer

    def _configurations(self, s: Stmt) -> Iterator[str]:
        """Configurations that a thread uses outside of parallel loops further in."""
        if id(s) in self._scopes:
            yield self._scopes[id(s)][1]
            return
        for child in stmt_children(s):
            if not self.starts_threads(child):
                yield from self._configurations(child)

    def _parallel_scopes(self, s: Stmt) -> Iterator[Stmt]:
        """Parallel loops whose threads use tiles."""
        for child in stmt_children(s):
            if self.starts_threads(child):
                if any(id(x) in self._scopes for x in walk_stmt(child)):
                    yield child
            else:
                yield from self._parallel_scopes(child)

    def starts_threads(self, s: Stmt) -> bool:
        return isinstance(s, For) and s.kind is ForKind.PARALLEL and not self.context.parallel


def _description(scope: TileScope) -> Iterable[str]:
    for b in scope.blocks:
        registers = " ".join(str(r) for r in b.registers.values())
        yield f"{b.accumulator}[{b.offset} ...], {b.m} x {b.n}: tiles {registers}"
    for (rows, size), pool in scope.pools.items():
        registers = " ".join(str(r) for r in pool)
        yield f"operands of {rows} x {size} bytes: tiles {registers}"
