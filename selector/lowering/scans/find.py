"""Recurrences over the threads of a block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError, Where
from selector.ir.affine import Affine
from selector.ir.nodes import (
    Allocate,
    BinaryOp,
    Block,
    Compare,
    CompareOp,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Load,
    Stmt,
    Store,
    Var,
)
from selector.ir.recurrences import ORDER, TYPES, along_domain, is_one, recurrence
from selector.ir.traverse import conjuncts, expr_children, free_vars, walk_expr, walk_stmt
from selector.ir.types import Type
from selector.lowering.predicates import slack
from selector.lowering.scans.turns import nested, turns_of


@dataclass(frozen=True, slots=True)
class Spread:
    """``loops`` over steps, outermost first, of which one is over threads and the first may be over
    blocks; ``others`` over threads that each have a recurrence of their own, ``grid`` over blocks;
    ``tests`` under which there is a step. ``weights``: of the outputs before, nearest first; none
    for a ``join``. ``then``: what is stored of each output (``readers``), instead of it unless it
    is ``kept``. ``begun``: the outputs before the first step, nearest first, where these are not
    stored (``origins``).
    """

    store: Store
    loops: tuple[For, ...]
    others: tuple[For, ...]
    threads: tuple[For, ...]
    grid: tuple[For, ...]
    tests: tuple[Expr, ...]
    step: Affine
    weights: tuple[Expr, ...]
    join: BinaryOp | None = None
    then: Store | None = None
    kept: bool = True
    begun: tuple[Expr, ...] = ()

    @property
    def type(self) -> Type:
        return self.store.value.type

    @property
    def order(self) -> int:
        return len(self.weights) or 1

    @property
    def along(self) -> For:
        return next(x for x in self.loops if x.kind is ForKind.GPU_THREAD)

    @property
    def inner(self) -> tuple[For, ...]:
        return self.loops[self.loops.index(self.along) + 1 :]

    @property
    def blocks(self) -> For | None:
        """The loop over blocks along the recurrence."""
        return self.loops[0] if self.loops[0].kind is ForKind.GPU_BLOCK else None

    @property
    def outer(self) -> tuple[For, ...]:
        return self.loops[self.blocks is not None : self.loops.index(self.along)]

    @property
    def input(self) -> Expr | None:
        """What a step reads besides outputs before it and what is the same for all steps, if that
        is one expression of their type.
        """
        steps = {x.name for x in self.loops}
        found = {x for x in self._inputs(self.store.value) if free_vars(x) & steps}
        return found.pop() if {x.type for x in found} == {self.type} and len(found) == 1 else None

    def _inputs(self, e: Expr) -> Iterator[Expr]:
        """The largest expressions that read memory, and no outputs before."""
        loads = [x for x in walk_expr(e) if isinstance(x, Load)]
        if not any(self._is_output(x) for x in loads):
            yield from [e] if loads else []
            return
        if not self._is_output(e):
            for child in expr_children(e):
                yield from self._inputs(child)

    def _is_output(self, e: Expr) -> bool:
        return isinstance(e, Load) and e.buffer == self.store.buffer and self.lag(e) != 0

    def is_before(self, e: Expr) -> bool:
        """Whether it reads what lies where a step stores."""
        return isinstance(e, Load) and e.buffer == self.store.buffer and self.lag(e) == 0

    @property
    def in_place(self) -> bool:
        """Whether a step begins with what lies where it stores."""
        return any(map(self.is_before, walk_expr(self.store.value)))

    @property
    def steps(self) -> int:
        """Of a thread between two joins."""
        return prod(x.extent.value for x in self.inner if isinstance(x.extent, IntImm))

    @property
    def upwards(self) -> bool:
        """Whether each step lies behind the one before."""
        return all(factor > 0 for _, factor in self.step)

    def begins_late(self, test: Expr) -> bool:
        """Whether a test leaves out the first steps, not the last ones."""
        room = slack(test)
        loops = [] if room is None else [room.coefficient(Var(x.name)) for x in self.loops]
        return any((factor.constant or 0) > 0 for factor in loops)

    def lag(self, e: Load) -> int | None:
        return lag(Affine.of(self.store.index), e, self.step)

    @property
    def plain(self) -> bool:
        """Whether states are joined as they are: running sums, extrema."""
        return not self.weights or (len(self.weights) == 1 and is_one(self.weights[0]))


def find(body: Stmt) -> Spread | None:
    if turns_of(body) is not None:
        return None
    nest, then = list(nested(body)), None
    store = nest[-1]
    match store:
        case Block((Store() as store, Store() as then)):
            pass
        case _:
            pass
    if not isinstance(store, Store) or store.index.type.lanes > 1:
        _refuse_hidden(body)
        return None
    fors = [x for x in nest if isinstance(x, For)]
    threads = tuple(x for x in fors if x.kind is ForKind.GPU_THREAD)
    single = [x for x in fors if x.kind is ForKind.GPU_BLOCK and x.extent == IntImm(1)]
    loops = tuple(x for x in fors if along_domain(x.name) and x not in single)
    others = tuple(x for x in threads if x not in loops)
    grid = tuple(x for x in fors if x.kind is ForKind.GPU_BLOCK)
    index = Affine.of(store.index)
    reads = [x for x in walk_expr(store.value) if isinstance(x, Load) and x.buffer == store.buffer]
    if sum(x.kind is ForKind.GPU_THREAD for x in loops) != 1 or all(
        Affine.of(x.index) == index for x in reads
    ):
        return None
    if not all(x in (*loops, *others, *grid) for x in fors):
        return _refuse(store, "another loop lies between those over steps")
    step = index.coefficient(Var(loops[-1].name))
    asked = [x.condition for x in nest if isinstance(x, IfThenElse)]
    if store.predicate is not None:
        asked.append(store.predicate)
    tests = tuple(t for condition in asked for t in conjuncts(condition))
    _check_steps(store, index, step, loops)
    if store.value.type not in TYPES:
        return _refuse(store, f"outputs of {store.value.type} are rounded at every step")
    weights, join = _form(store, index, step)
    _check_tests(store, tests, loops, linear=bool(weights))
    times = frozenset(x.name for x in loops)
    if any(free_vars(w) & times for w in weights):
        return _refuse(store, "what it multiplies outputs by differs from step to step")
    if any(free_vars(w) & {x.name for x in others} for w in weights):
        return _refuse(store, "what it multiplies outputs by differs from thread to thread")
    found = Spread(store, loops, others, threads, grid, tests, step, weights, join, then)
    if found.blocks is not None and not all(map(_is_power, (found.along, *found.outer))):
        return _refuse(store, "a block takes a number of turns or threads that is no power of two")
    return found


def _is_power(x: For) -> bool:
    return isinstance(x.extent, IntImm) and x.extent.value.bit_count() == 1


def _refuse_hidden(body: Stmt) -> None:
    """A recurrence over threads among other statements would be a race."""
    for x in walk_stmt(body):
        if not (isinstance(x, For) and x.kind is ForKind.GPU_THREAD and along_domain(x.name)):
            continue
        inside = list(walk_stmt(x.body))
        own = {y.name for y in inside if isinstance(y, Allocate)}
        names = [x.name, *(y.name for y in inside if isinstance(y, For) and "$" in y.name)]
        for store in inside:
            if isinstance(store, Store) and store.buffer not in own and _looks_back(store, names):
                _refuse(store, "other statements lie among its steps")


def _looks_back(store: Store, loops: Sequence[str]) -> bool:
    if store.index.type.lanes > 1:
        return False
    index = Affine.of(store.index)
    if not index.coefficient(Var(loops[0])).terms:
        return False
    steps = [index.coefficient(Var(name)) for name in loops]
    reads = (x for x in walk_expr(store.value) if isinstance(x, Load) and x.buffer == store.buffer)
    return any(lag(index, x, step) for x in reads if x.index.type.lanes == 1 for step in steps)


def lag(index: Affine, read: Load, step: Affine) -> int | None:
    """How many steps before what is stored at ``index`` a read looks; None if at none of those."""
    back = index - Affine.of(read.index)
    return next((n for n in range(ORDER + 1) if back == step * n), None)


def _refuse(store: Store, why: str) -> None:
    raise ScheduleError(
        f"`{store.buffer}` cannot be computed by threads along its recurrence",
        why,
        "run the reduction domain serially in a thread",
        Where(func=store.buffer),
    )


def _check_steps(store: Store, index: Affine, step: Affine, loops: Sequence[For]) -> None:
    """Neighbouring iterations are neighbouring steps."""
    factor = 1
    for x in reversed(loops):
        found = index.coefficient(Var(x.name))
        if not step.terms or found != step * factor or index.rest(Var(x.name)).mentions(x.name):
            _refuse(store, f"iterations of {x.name} are no steps behind each other")
        if x is loops[0]:
            break
        if not isinstance(x.extent, IntImm) or x.min != IntImm(0):
            _refuse(store, f"{x.name} has no constant extent")
            return
        factor *= x.extent.value


def _check_tests(
    store: Store, tests: Sequence[Expr], loops: Sequence[For], *, linear: bool
) -> None:
    """No step is left out of which a later one is done, but for the first ones of a recurrence that
    is ``linear``: from there it begins with zero, as what lies outside of an array is read.
    """
    for test in tests:
        if free_vars(test) & {x.name for x in loops}:
            late = _late(test)
            early = late is not None and linear and _is_late(-late, loops)
            if late is None or not (early or _is_late(late, loops)):
                _refuse(store, "steps are left out")


def _late(test: Expr) -> Affine | None:
    """What is too large where a test does not hold."""
    orderings = (CompareOp.LT, CompareOp.LE)
    if isinstance(test, Compare) and test.op in orderings and test.a.type.is_integer:
        return Affine.of(test.a) - Affine.of(test.b)
    return None


def _is_late(late: Affine, loops: Sequence[For]) -> bool:
    """Whether it is larger, if anything, with every step."""
    most = 0
    for x in reversed(loops):
        factor = late.coefficient(Var(x.name)).constant
        if factor is None or factor < most or late.rest(Var(x.name)).mentions(x.name):
            return False
        extent = x.extent.value if isinstance(x.extent, IntImm) else 1
        most += factor * (extent - 1)
    return True


def _form(store: Store, index: Affine, step: Affine) -> tuple[tuple[Expr, ...], BinaryOp | None]:
    """What outputs before are multiplied by, or how the one before is joined."""
    lags: dict[Expr, int] = {}
    for x in walk_expr(store.value):
        if isinstance(x, Load) and x.buffer == store.buffer:
            back = lag(index, x, step)
            if back is None:
                _refuse(store, f"it reads more than the {ORDER} outputs before, or others")
                return (), None
            lags[x] = back
    found = recurrence(store.value, lags)
    if isinstance(found, str):
        _refuse(store, found)
        return (), None
    return found.weights, found.join
