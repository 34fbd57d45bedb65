"""Products on tile registers: which pieces are loaded when, and the tests ahead of the loops around
them.

A test ahead says once for all iterations, or for the first so many, that operands lie inside their
buffers; these are loaded in place (``loads``), the others checked piece by piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack

from selector.cpu.ahead import Fetch, Rotated, Wanted, directly, in_next, issued, rotated
from selector.cpu.context import CContext, loop_head
from selector.cpu.cover import Tests, stores_in
from selector.cpu.loads import OperandLoads, Piece
from selector.cpu.operands import COLUMN, INNER, ROW, TILE_ROWS, Dense, Matrix, Product, as_product
from selector.cpu.plain import PlainCode
from selector.cpu.registers import TileScope, depths
from selector.cpu.sums import SumsCode
from selector.diagnostics import EmitError
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Block, Compare, CompareOp, Expr, For, IntImm, Ramp, Stmt, Store, Var
from selector.ir.traverse import conjuncts, free_vars, substitute, walk_stmt
from selector.lowering.predicates import TRUE
from selector.lowering.ranges import Ranges, digit_bounds, holds_in, loop_bounds

_STEP = Var("$k")  # number of a piece of k, where they are a loop
_UNROLLED = 2  # pieces of k that are written one after the other


class TileCode:
    """Writes the tile statements of one scope."""

    def __init__(self, context: CContext, plain: PlainCode, scope: TileScope) -> None:
        self.context = context
        self.scope = scope
        self.loads = OperandLoads(context, plain)
        self.sums = SumsCode(context, plain, scope)
        self.pipelined: set[str] = set()  # accumulators with a loop whose tiles are loaded ahead

    def covered(self, products: Iterable[tuple[Product, Ranges]]) -> tuple[
        frozenset[Dense], tuple[Expr, ...]
    ]:  # fmt: skip
        """Operands that can be loaded in place if the tests hold."""
        tests = Tests.ahead(self.context.ranges)
        inner = tests.ranges
        direct: set[Dense] = set()
        failing: set[Dense] = set()
        for product, ranges in products:
            for matrix in (product.a, product.b):
                dense = matrix.dense
                if dense is None:
                    continue
                tests.ranges = inner.extended({**ranges.bounds, **_matrix_bounds(matrix)})
                holds = TRUE if dense.predicate is None else holds_in(dense.predicate, tests.ranges)
                storage = self.context.storages[dense.buffer]
                size, place = storage.elements, dense.base + dense.step * ROW
                place += to_affine(COLUMN) * matrix.packing + INNER
                inside = size is not None and tests.inside(place, size)
                rows = all(tests.inside(c, n) for _, c, n in matrix.along_sum(storage))
                if holds is None or not inside or not rows:
                    failing.add(dense)
                    continue
                direct.add(dense)
                if holds != TRUE:
                    tests.others.append(holds)
        return frozenset(direct - failing), tests.condition()

    def products(self, run: Sequence[Product]) -> None:
        """Consecutive products; their operands are loaded as seldom as registers allow."""
        if self.context.guarded:
            self._run(run)
            return
        direct, tests = self.covered((p, Ranges()) for p in run)
        self._two_versions(tests, lambda d: self._covered(d, lambda: self._run(run)), direct)

    def loop(self, s: For) -> None:
        """A loop around nothing but products (and loops): the iterations up to the first whose
        operands are not all inside their buffers, then the others.
        """
        c = self.context
        bounds = {s.name: loop_bounds(s)}
        with c.inside(bounds):
            direct, tests = self.covered(_loop_products(s.body, Ranges()))
        split = self._split(tests, s.name, Ranges({}, c.ranges.nonnegative).extended(bounds))
        if split is None:
            self._loop(s, frozenset())
            return
        always, prefix = split
        if not prefix:
            self._two_versions(always, lambda d: self._loop(s, d), direct)
            return
        first, stop = c.scalar.index(s.min), c.scalar.index((to_affine(s.min) + s.extent).to_expr())
        name, inside = c.names.get(s.name), c.names.fresh("inside")
        with c.writer.block(""):
            start = f"{c.conjunction(always)} ? {stop} : {first}" if always else stop
            c.writer.line(f"int {inside} = {start}, {name} = {first};")
            last = {s.name: c.names.variable(f"({inside} - 1)")}
            test = c.conjunction(tuple(substitute(t, last) for t in prefix))
            c.writer.line(f"while ({inside} > {first} && !({test})) --{inside};")
            with self.loads.pointers(_loop_names(s)), c.inside(bounds):
                self._covered(direct, lambda: self._iterations(s, inside))
            with c.writer.block(f"for (; {name} < {stop}; ++{name})"), c.inside(bounds):
                self._covered(frozenset(), lambda: self._body(s.body))

    def _iterations(self, s: For, stop: str) -> None:
        """Those from where the loop's variable stands."""
        if not self._pipelined(s, stop):
            name = self.context.names.get(s.name)
            with self.context.writer.block(f"for (; {name} < {stop}; ++{name})"):
                self._body(s.body)

    def _split(
        self, tests: tuple[Expr, ...], loop: str, ranges: Ranges
    ) -> tuple[tuple[Expr, ...], tuple[Expr, ...]] | None:
        """Tests for the whole loop, and tests that hold up to some iteration; None if one of them
        is neither.
        """
        always: list[Expr] = []
        prefix: list[Expr] = []
        for test in (part for whole in tests for part in conjuncts(whole)):
            if loop not in free_vars(test):
                always.append(test)
                continue
            match test:
                case Compare(CompareOp.LE, a, b):
                    difference = to_affine(b) - to_affine(a)
                case Compare(CompareOp.LT, a, b):
                    difference = to_affine(b) - to_affine(a) - 1
                case _:
                    return None
            factor = difference.coefficient(Var(loop))
            linear = not (factor.mentions(loop) or difference.rest(Var(loop)).mentions(loop))
            if linear and ranges.at_least_zero(-factor):
                prefix.append(test)
                continue
            found = ranges.interval(difference)
            if found is None:
                return None
            always.append(Compare(CompareOp.LE, IntImm(0), found[0].to_expr()))
        return tuple(dict.fromkeys(always)), tuple(dict.fromkeys(prefix))

    def _two_versions(
        self,
        tests: tuple[Expr, ...],
        write: Callable[[frozenset[Dense]], None],
        direct: frozenset[Dense],
    ) -> None:
        """With ``direct`` operands under the tests, and without."""
        self.context.either(tests, lambda: write(direct), lambda: write(frozenset()))

    def _covered(self, direct: frozenset[Dense], write: Callable[[], None]) -> None:
        outer, self.loads.direct = self.loads.direct, self.loads.direct | direct
        with self.context.covered(frozenset(), frozenset()):
            write()
        self.loads.direct = outer

    def _loop(self, s: For, direct: frozenset[Dense]) -> None:
        c = self.context
        with ExitStack() as stack:
            if direct:
                stack.enter_context(c.writer.block(""))
                stack.enter_context(self.loads.pointers(_loop_names(s)))
            stack.enter_context(c.inside({s.name: loop_bounds(s)}))
            if self.scope.ahead:
                first = c.scalar.index(s.min)
                stop = c.scalar.index((to_affine(s.min) + s.extent).to_expr())
                stack.enter_context(c.writer.block(""))
                c.writer.line(f"int {c.names.get(s.name)} = {first};")
                self._covered(direct, lambda: self._iterations(s, stop))
                return
            stack.enter_context(c.writer.block(loop_head(s, c)))
            self._covered(direct, lambda: self._body(s.body))

    def _body(self, s: Stmt) -> None:
        """What is inside a loop around products; tests stand further out where they cover all."""
        match s:
            case For():
                products = list(_loop_products(s, Ranges()))
                if all(d in self.loads.direct for p, _ in products for d in _dense(p)):
                    self._loop(s, frozenset())
                else:
                    self.loop(s)
            case Block(stmts) if any(isinstance(x, For) for x in stmts):
                for x in stmts:
                    self._body(x)
            case _:
                self._run([p for p, _ in _loop_products(s, Ranges())])

    def _run(self, run: Sequence[Product]) -> None:
        rest = list(run)
        while rest:
            group = [rest.pop(0)]
            while rest and self._goes_with(rest[0], group):
                group.append(rest.pop(0))
            for p in group:
                if p.initial is not None:
                    self._fill_initial(p)
            self._group(group)

    def _goes_with(self, p: Product, group: Sequence[Product]) -> bool:
        """Whether a product may be done together with those before it."""
        first = group[0]
        again = any((q.accumulator, q.offset) == (p.accumulator, p.offset) for q in group)
        return (p.k, p.depth) == (first.k, first.depth) and not (again and p.initial is not None)

    def _fill_initial(self, p: Product) -> None:
        lanes = p.m * p.n
        assert p.initial is not None
        self.sums.fill(Store(p.accumulator, Ramp(IntImm(p.offset), IntImm(1), lanes), p.initial))

    def _group(self, group: Sequence[Product]) -> None:
        """Products of one k: all of them for each piece of k."""
        first, c = group[0], self.context
        whole, tail = divmod(first.k, first.depth)
        if whole > _UNROLLED:
            name = c.names.get(_STEP.name)
            bounds = {_STEP.name: (IntImm(0), IntImm(whole - 1))}
            head = f"for (int {name} = 0; {name} < {whole}; ++{name})"
            with c.writer.block(head), c.inside(bounds):
                self._step(group, to_affine(_STEP), first.depth)
        else:
            for number in range(whole):
                self._step(group, Affine.of(number), first.depth)
        if tail:
            self._step(group, Affine.of(whole), tail)

    def _step(self, group: Sequence[Product], number: Affine, k: int) -> None:
        """One piece of k of every product."""
        self._issue(self._wanted(group, number, k))

    def _wanted(self, group: Sequence[Product], number: Affine, k: int) -> list[Wanted]:
        """What one piece of k of every product needs, in order."""
        wanted: list[Wanted] = []
        for p in group:
            block = self.scope.block(p)
            for (i, j), register in block.registers.items():
                tiles = self._pieces(p, i, j, number, k)
                wanted.append(Wanted(tiles, f"{p.function}({register}, {{a}}, {{b}});"))
        keys = [[w.tiles[side].key() for w in wanted] for side in (0, 1)]
        rows, columns = (list(dict.fromkeys(found)) for found in keys)
        by_rows = len(rows) >= len(columns)  # the smaller side stays in registers

        def order(w: Wanted) -> tuple[int, int]:
            row, column = rows.index(w.tiles[0].key()), columns.index(w.tiles[1].key())
            return (row, column) if by_rows else (column, row)

        wanted.sort(key=order)
        return wanted

    def _pieces(self, p: Product, i: int, j: int, number: Affine, k: int) -> tuple[Piece, Piece]:
        v, pad = p.instruction.packing, self.scope.padding
        rows, columns = min(TILE_ROWS, p.m - 16 * i), min(TILE_ROWS, p.n - 16 * j)
        depth = p.depth_bytes(k)
        a = Piece(
            p.a, Affine.of(16 * i), number * p.depth, rows, k, pad.a(rows, depth)
        )  # fmt: skip
        groups = -(-k // v)
        b = Piece(
            p.b, number * (p.depth // v), Affine.of(16 * j * v), groups, columns * v,
            pad.b(depth, columns),
        )  # fmt: skip
        return a, b

    def _issue(self, wanted: Sequence[Wanted]) -> None:
        """Loads and instructions in order."""
        for issue in issued(wanted, self.scope.pools):
            self._fetch(wanted, issue.loads)
            self.context.writer.line(issue.text)

    def _fetch(self, wanted: Sequence[Wanted], loads: Iterable[Fetch]) -> None:
        for fetch in loads:
            self.loads.load(wanted[fetch.use].tiles[fetch.side], fetch.register)

    # ------------------------------------------------------------------ loads ahead

    def _pipelined(self, s: For, stop: str) -> bool:
        """A loop from where its variable stands to ``stop``, tiles loaded ahead, where that was
        asked for and all operands lie in place; whether it is written.
        """
        run = [p for p, _ in _loop_products(s.body, Ranges())]
        inner = any(isinstance(x, For) for x in walk_stmt(s.body))
        asked = {p.accumulator for p in run} <= self.scope.ahead
        if inner or not asked or any(p.initial is not None for p in run):
            return False
        if any(not self._goes_with(p, run) for p in run):
            return False
        if any(m.dense not in self.loads.direct for p in run for m in (p.a, p.b)):
            return False
        now = self._whole(run)
        then = self._whole([in_next(p, s.name) for p in run])
        if not all(piece.exact for w in now for piece in w.tiles):
            return False
        turn = rotated(issued(now, self.scope.pools), now)
        w, name = self.context.writer, self.context.names.get(s.name)
        with w.block(f"if ({name} < {stop})"):
            self._fetch(now, turn.first)
            with w.block(f"for (; {name} < {stop} - 1; ++{name})"):
                moved = directly(run, s.name, self.loads.direct)
                self._covered(moved, lambda: self._turn(turn, now, then))
            self._turn(turn, now, None)
            w.line(f"++{name};")
        self.pipelined |= {p.accumulator for p in run}
        return True

    def _turn(self, turn: Rotated, now: Sequence[Wanted], then: Sequence[Wanted] | None) -> None:
        for text, own, ahead in zip(turn.texts, turn.after, turn.next, strict=True):
            self.context.writer.line(text)
            self._fetch(now, own)
            if then is not None:
                self._fetch(then, ahead)

    def _whole(self, group: Sequence[Product]) -> list[Wanted]:
        """All pieces of k of products."""
        first = group[0]
        found: list[Wanted] = []
        for number, k in enumerate(depths(first)):
            found += self._wanted(group, Affine.of(number), k)
        return found


def _loop_names(s: For) -> frozenset[str]:
    """Variables of a loop and of those inside it, the pieces of k among them."""
    return frozenset({_STEP.name, *(x.name for x in walk_stmt(s) if isinstance(x, For))})


def _dense(p: Product) -> list[Dense]:
    return [m.dense for m in (p.a, p.b) if m.dense is not None]


def _matrix_bounds(m: Matrix) -> dict[str, tuple[Expr, Expr]]:
    return digit_bounds({ROW.name: m.rows, COLUMN.name: m.columns, INNER.name: m.packing})


def _loop_products(s: Stmt, ranges: Ranges) -> Iterator[tuple[Product, Ranges]]:
    """Every product below a statement with the loops around it."""
    for store, inner in stores_in(s, ranges):
        product = as_product(store)
        if product is None:
            raise EmitError(f"a store to `{store.buffer}` among products is none")
        yield product, inner
