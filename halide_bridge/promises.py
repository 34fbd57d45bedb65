"""What the user has promised and Halide would assert at run time: refused, or checked at the call.

``PROMISES`` is the one list of what Halide asserts before a pipeline runs. Its other asserts are
about buffers as arguments (null, type, dimensions, device), which the call checks by itself, and
about ``no_asserts`` of stages that the bridge refuses (extern stages, memoization, tracing).

A condition that no argument can meet, or that depends on more than the arguments, is a
``ScheduleError`` where the pipeline is lowered. ``unsafe_promise_clamped`` is not checked, as in
Halide, and host alignment is nothing that emitted code relies on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from halide_bridge.names import plain
from halide_bridge.records import Reader, Record
from selector.diagnostics import InternalError, ScheduleError, Where
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    BufferParam,
    Compare,
    CompareOp,
    Expr,
    IntImm,
    Let,
    Load,
    ScalarParam,
    Var,
)
from selector.ir.printer import print_expr
from selector.ir.remarks import Everywhere, Promise
from selector.ir.traverse import free_vars, walk_expr
from selector.ir.types import BOOL


class Told(NamedTuple):
    """What an assert says: the Func that it is about, if any, what is broken, and the way out."""

    func: str
    what: str
    hint: str


Arguments = Sequence[str]
_LONGEST = 80  # characters of an expression that a message shows


def _explicit_bounds(a: Arguments) -> Told:
    var, func, low, high, needs_low, needs_high, extent, needed = a
    if max(map(len, a)) > _LONGEST:
        what = f"`{func}` is bounded to fewer elements along `{var}` than are needed"
        return Told(func, what, f"bound `{func}` to all that its consumers read")
    return Told(
        func,
        f"`{func}` is bounded to {extent} elements along `{var}` ({low} to {high}), "
        f"and {needed} are needed ({needs_low} to {needs_high})",
        f"bound `{func}` to all that its consumers read, in whole pieces of its splits, or leave "
        f"the bound of `{var}` out",
    )


def _parameter(relation: str) -> Callable[[Arguments], Told]:
    def told(a: Arguments) -> Told:
        return Told("", f"`{a[0]}` must be {relation} {a[2]}", f"the range is set on `{a[0]}`")

    return told


def _fold(a: Arguments) -> Told:
    return Told(
        a[0],
        f"`{a[0]}` is folded along `{a[1]}` more tightly than it is used",
        "fold it by a larger factor, or leave fold_storage out",
    )


def _requirement(a: Arguments) -> Told:
    message = " ".join(a[1:]).strip()[:200]
    return Told("", f"`{a[0]}` is required and does not hold: {message}", "see that requirement")


PROMISES: dict[str, Callable[[Arguments], Told]] = {
    "halide_error_explicit_bounds_too_small": _explicit_bounds,  # bound, bound_extent
    "halide_error_storage_bound_too_small": lambda a: Told(  # bound_storage
        a[0],
        f"the storage of `{a[0]}` is bounded to {a[2]} elements along `{a[1]}`, of {a[3]}",
        "bound it to all that is computed, or leave bound_storage out",
    ),
    "halide_error_bad_fold": _fold,  # fold_storage
    "halide_error_fold_factor_too_small": _fold,
    "halide_error_split_factor_not_positive": lambda a: Told(
        a[0], f"`{a[0]}` is split by {a[4]}, which must be positive", "pass a positive factor"
    ),
    "halide_error_specialize_fail": lambda a: Told(
        "",
        f"no specialization is for these arguments: {' '.join(a)}",
        "specialize for more, or pass other arguments",
    ),
    "halide_error_requirement_failed": _requirement,  # Pipeline.add_requirement
    "require": _requirement,  # halide.require
    "halide_error_constraint_violated": lambda a: Told(  # set_min, set_extent, set_stride
        "", f"`{a[0]}` must be {a[1]}", "the constraint is set on that parameter"
    ),
    **{
        f"halide_error_param_too_{word}_{kind}": _parameter(relation)  # Param.set_range
        for word, relation in (("small", "at least"), ("large", "at most"))
        for kind in ("i64", "u64", "f64")
    },
}


def promises_of(
    found: Sequence[Record],
    reader: Reader,
    buffers: Sequence[BufferParam],
    scalars: Sequence[ScalarParam],
    location: str,
) -> tuple[Promise, ...]:
    """The promises that the call has to check; ScheduleError for one that is broken as it is."""
    known = {s.name for s in scalars} | {
        f"{b.name}.{what}.{d}"
        for b in buffers
        for d in range(len(b.dims))
        for what in ("extent", "stride")
    }
    checked: list[Promise] = []
    for kind, arguments, index, loops, inside in found:
        told = PROMISES.get(kind)
        if told is None:
            raise InternalError(f"an assert that nobody checks: {kind}({', '.join(arguments)})")
        func, what, hint = told([plain(a) for a in arguments])
        condition = reader.expr(index)
        if not _at_the_call(condition, known):
            never = isinstance(condition, IntImm)
            raise ScheduleError(
                what,
                why="no argument is known for which this is kept"
                if never
                else f"whether it holds is known to nobody before the kernel runs: "
                f"{print_expr(condition)}",
                hint=hint,
                where=Where(func=func, location=location),
            )
        around = [(reader.name(n), reader.expr(a), reader.expr(b)) for n, a, b in loops]
        exactly = None if inside < 0 else _everywhere(around, reader.expr(inside), known)
        promise = Promise(condition, what, exactly)
        if promise not in checked:
            checked.append(promise)
    return tuple(checked)


def _everywhere(
    loops: Sequence[tuple[str, Expr, Expr]], condition: Expr, known: set[str]
) -> Everywhere | None:
    """The condition in all iterations; None if a call does not know them, or it is the same in all.
    Of a loop that nothing depends on one iteration is enough, if there is any.
    """
    found: list[tuple[str, Expr, Expr]] = []
    used = free_vars(condition)
    for name, low, extent in reversed(loops):
        count = extent if name in used else Binary(BinaryOp.MIN, extent, IntImm(1))
        found.insert(0, (name, low, count))
        used |= free_vars(low) | free_vars(extent)
    names = known | {name for name, _, _ in loops}
    varies = free_vars(condition) - known
    tests = (Compare(CompareOp.LE, low, extent) for _, low, extent in found)
    kept = varies and all(_at_the_call(e, names) for e in (*tests, condition))
    return Everywhere(tuple(found), condition) if kept else None


def _at_the_call(condition: Expr, known: set[str]) -> bool:
    """Whether a condition is one on the parameters alone."""
    if isinstance(condition, IntImm) or condition.type != BOOL:
        return False
    bound = {e.name for e in walk_expr(condition) if isinstance(e, Let)}
    for e in walk_expr(condition):
        if isinstance(e, Load) or (isinstance(e, Var) and e.name not in known | bound):
            return False
    return True
