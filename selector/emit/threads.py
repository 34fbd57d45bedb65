"""Plain code: nests spread over threads, and whole statements executed by one thread."""

from __future__ import annotations

from dataclasses import replace

from selector.diagnostics import EmitError
from selector.emit.context import KernelContext
from selector.emit.nests import Nest, vector_digits
from selector.emit.scalar import Space, Storage, c_type
from selector.emit.thread_runs import as_run, emit_run
from selector.ir.affine import to_affine
from selector.ir.lanes import Digits, lane
from selector.ir.nodes import (
    Allocate,
    Block,
    Evaluate,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    LetStmt,
    Load,
    ReduceOp,
    Stmt,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.traverse import map_expr, walk_expr

UNROLLED_STEPS = 32
UNROLLED_LANES = 64
"""Values, terms of sums counted, that a thread's vector statement is unrolled to."""
COMBINE = {
    ReduceOp.ADD: "{0} + {1}",
    ReduceOp.MUL: "{0} * {1}",
    ReduceOp.MIN: "min({0}, {1})",
    ReduceOp.MAX: "max({0}, {1})",
    ReduceOp.AND: "{0} && {1}",
    ReduceOp.OR: "{0} || {1}",
}


class ThreadCode:
    """Writes statements for single threads."""

    def __init__(self, context: KernelContext) -> None:
        self.context = context

    # ------------------------------------------------------------------ spread over a unit

    def spread(self, nest: Nest, rank: str, size: int) -> None:
        """A nest whose iterations are independent, over ``size`` threads numbered ``rank``."""
        w, scalar = self.context.writer, self.context.scalar
        total = " * ".join(scalar.index(d.extent) for d in nest.digits) or "1"
        counts = [d.count for d in nest.digits]
        if all(c is not None for c in counts):
            product = 1
            for c in counts:
                product *= c or 1
            total = str(product)
            few = product % size == 0 and 1 < product // size <= UNROLLED_STEPS
            if few and self._copies_shared(nest):
                self._copy_out(nest, rank, size, product // size)
                return
        with w.block(f"for (int i = {rank}; i < {total}; i += {size})"):
            self._digits(nest)
            self._guarded(nest.store, nest.condition)

    def _digits(self, nest: Nest) -> None:
        """Declare the digits of iteration ``i``."""
        rest = "i"
        for position, digit in enumerate(nest.digits):
            extent = self.context.scalar.index(digit.extent)
            last = position == len(nest.digits) - 1
            name = self.context.names.get(digit.var.name)
            self.context.writer.line(
                f"const int {name} = {rest}{'' if last else f' % ({extent})'};"
            )
            rest += f" / ({extent})"

    def _copy_out(self, nest: Nest, rank: str, size: int, steps: int) -> None:
        """A copy out of shared memory: all elements of a thread are read, then stored under their
        conditions.
        """
        w, scalar, store = self.context.writer, self.context.scalar, nest.store
        held, t = self.context.names.fresh("held"), store.value.type
        loop = f"for (int step = 0; step < {steps}; ++step)"
        with w.block(""):
            w.line(f"{c_type(t)} {held}[{steps}];")
            for value in (scalar.expr(store.value), ""):
                w.line("#pragma unroll")
                with w.block(loop):
                    w.line(f"const int i = {rank} + step * {size};")
                    self._digits(nest)
                    if value:
                        w.line(f"{held}[step] = {value};")
                        continue
                    kept = self.context.names.variable(f"{held}[step]", t)
                    self._guarded(replace(store, value=kept), nest.condition)

    def _copies_shared(self, nest: Nest) -> bool:
        """Whether a nest stores elements of shared memory as they are."""
        value = nest.store.value
        known = self.context.storages.get(value.buffer) if isinstance(value, Load) else None
        return known is not None and known.space is Space.SHARED

    def _guarded(self, s: Store, condition: Expr | None) -> None:
        scalar, w = self.context.scalar, self.context.writer
        tests = [scalar.expr(t) for t in (condition, s.predicate) if t is not None]
        if tests:
            with w.block(f"if ({' && '.join(tests)})"):
                self._store_scalar(s)
        else:
            self._store_scalar(s)

    def _store_scalar(self, s: Store) -> None:
        storage = self.context.storages[s.buffer]
        target = self.context.scalar.address(storage, s.index)
        self.context.writer.line(f"{target} = {self.context.scalar.expr(s.value)};")

    # ------------------------------------------------------------------ one thread

    def statement(self, s: Stmt) -> None:
        """A statement as one thread executes it."""
        w, scalar, names = self.context.writer, self.context.scalar, self.context.names
        match s:
            case Block(stmts):
                for x in stmts:
                    self.statement(x)
            case Store():
                self._store(s)
            case For(name, low, extent, kind, body):
                c_name = names.get(name)
                if kind is ForKind.UNROLLED:
                    w.line("#pragma unroll")
                start, count = scalar.index(low), scalar.index(extent)
                stop = count if start == "0" else f"{start} + {count}"
                with w.block(f"for (int {c_name} = {start}; {c_name} < {stop}; ++{c_name})"):
                    self.statement(body)
            case IfThenElse(c, t, f):
                with w.block(f"if ({scalar.expr(c)})"):
                    self.statement(t)
                if f is not None:
                    with w.block("else"):
                        self.statement(f)
            case LetStmt(name, value, body):
                with w.block(""):  # the same name may come again after it
                    w.line(f"const {c_type(value.type)} {names.get(name)} = {scalar.expr(value)};")
                    self.statement(body)
            case Allocate():
                self._local(s)
            case Evaluate():
                pass
            case _:
                raise EmitError(f"a {type(s).__name__} statement has no form in a thread")

    def _local(self, s: Allocate) -> None:
        total = 1
        for extent in s.extents:
            if not isinstance(extent, IntImm):
                raise EmitError(f"`{s.name}` is local to a thread and has no constant size")
            total *= extent.value
        name = self.context.names.get(s.name)
        self.context.storages[s.name] = Storage(name, s.type.element, Space.LOCAL)
        with self.context.writer.block(""):
            self.context.writer.line(f"{c_type(s.type.element)} {name}[{total}];")
            self.statement(s.body)

    def _store(self, s: Store) -> None:
        lanes = s.value.type.lanes
        if lanes == 1:
            self._guarded(_expanded(s, self), None)
            return
        extents = vector_digits(lanes, s.index)
        w = self.context.writer
        own = any(
            isinstance(e, Load) and e.buffer == s.buffer and not _same_index(e.index, s.index)
            for e in walk_expr(s.value)
        )
        if own:
            raise EmitError(f"a vector of `{s.buffer}` is made from other elements of itself")
        run = as_run(s, self.context)
        if run is not None:
            emit_run(run, self.context)
            return
        with w.block(""):
            digits = tuple((Var(f"$l{i}"), n) for i, n in enumerate(extents))
            self._lanes(s, digits, len(digits) - 1)

    def _lanes(self, s: Store, digits: tuple[tuple[Var, int], ...], level: int) -> None:
        if level < 0:
            p = s.predicate
            scalar = Store(
                s.buffer,
                lane(s.index, digits),
                self.lane_of(s.value, digits),
                None if p is None else p if p.type.lanes == 1 else lane(p, digits),
            )
            self._guarded(scalar, None)
            return
        var, extent = digits[level]
        name = self.context.names.get(var.name)
        self.context.writer.line("#pragma unroll" if _few(s) else "#pragma unroll 1")
        with self.context.writer.block(f"for (int {name} = 0; {name} < {extent}; ++{name})"):
            self._lanes(s, digits, level - 1)

    def lane_of(self, e: Expr, digits: Digits) -> Expr:
        """One lane of a value; reductions become loops written ahead of the statement."""
        match e:
            case VectorReduce(op, value, lanes) if value.type.lanes != lanes:
                return self.reduce(op, value, value.type.lanes // lanes, digits)
            case _ if any(isinstance(x, VectorReduce) for x in walk_expr(e)):
                return _map_lanes(e, digits, self)
            case _:
                return lane(e, digits) if e.type.lanes > 1 else e

    def reduce(self, op: ReduceOp, value: Expr, factor: int, digits: Digits) -> Expr:
        w, names = self.context.writer, self.context.names
        step, total = Var(f"$r{names.fresh('r')}"), names.fresh("total")
        counter = names.get(step.name)
        t = value.type.element
        inner = ((step, factor), *digits)
        first = self.context.scalar.expr(self.lane_of(value, ((IntImm(0), factor), *digits)))
        w.line(f"{c_type(t)} {total} = {first};")
        with w.block(f"for (int {counter} = 1; {counter} < {factor}; ++{counter})"):
            text = self.context.scalar.expr(self.lane_of(value, inner))
            w.line(f"{total} = {COMBINE[op].format(total, text)};")
        return names.variable(total, t)


def _few(s: Store) -> bool:
    """Whether a vector statement of one thread is short enough to be written out lane by lane."""
    sums = [e for e in walk_expr(s.value) if isinstance(e, VectorReduce)]
    terms = sum(e.value.type.lanes for e in sums)
    return max(s.value.type.lanes, terms) <= UNROLLED_LANES


def _map_lanes(e: Expr, digits: Digits, code: ThreadCode) -> Expr:
    """``lane`` for element-wise nodes above a reduction."""
    from selector.ir.nodes import Binary, Cast, Select

    match e:
        case Binary(op, a, b):
            return Binary(op, code.lane_of(a, digits), code.lane_of(b, digits))
        case Cast(t, v):
            return Cast(t.element, code.lane_of(v, digits))
        case Select(c, a, b):
            test = c if c.type.lanes == 1 else lane(c, digits)
            return Select(test, code.lane_of(a, digits), code.lane_of(b, digits))
        case _:
            raise EmitError(f"a reduction inside a {type(e).__name__} has no form in a thread")


def _expanded(s: Store, code: ThreadCode) -> Store:
    """A scalar store whose value may hold a reduction to one lane."""
    if not any(isinstance(x, VectorReduce) for x in walk_expr(s.value)):
        return s

    def expand(e: Expr) -> Expr:
        match e:
            case VectorReduce(op, value, 1):
                return code.reduce(op, value, value.type.lanes, ())
            case _:
                return map_expr(e, expand)

    return Store(s.buffer, s.index, expand(s.value), s.predicate)


def _same_index(a: Expr, b: Expr) -> bool:
    if a == b:
        return True
    if a.type.lanes != b.type.lanes or a.type.lanes == 1:
        return a.type.lanes == b.type.lanes and (to_affine(a) - to_affine(b)).constant == 0
    digits = ((Var("$lane"), a.type.lanes),)
    return (to_affine(lane(a, digits)) - to_affine(lane(b, digits))).constant == 0
