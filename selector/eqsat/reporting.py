"""Report entries and refusals in the user's own names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from selector.diagnostics import SelectionError, Where
from selector.eqsat.abstract import Skeleton
from selector.eqsat.decode import Decoder
from selector.eqsat.diagnose import Miss, stage_of
from selector.eqsat.scopes import Scope
from selector.intrinsics import TOEPLITZ, TOEPLITZ_TRANSPOSED, VNNI, find
from selector.ir.contents import holds
from selector.ir.module import Module
from selector.ir.nodes import Call, Expr, ExprVar, IntImm, Load, LocToLoc, Stmt, Store
from selector.ir.printer import print_stmt
from selector.ir.traverse import map_expr, map_stmt, walk_expr
from selector.operands.expand import PART
from selector.operands.halves import error_bounds
from selector.operands.updates import Update
from selector.report import Block, StatementReport

if TYPE_CHECKING:
    from selector.eqsat.solve import Solution


def where(module: Module, scope: Scope, s: Stmt) -> Where:
    """The user's Func, stage and line of a statement, with its text as it was before annotation."""
    buffer = scope.allocation.name
    stage = ""
    if isinstance(s, Store):
        stage = stage_of(s, scope)
        buffer = s.buffer
    buffer = buffer.partition(PART)[0]
    origin = next((o for o in module.origins if o.name == buffer), None)
    func = origin.func if origin is not None else buffer
    location = origin.location if origin is not None else ""
    return Where(func, stage, location, print_stmt(without_movement(s)).strip())


def without_movement(s: Stmt) -> Stmt:
    """A statement as the user's schedule produced it."""

    def expr(e):  # type: ignore[no-untyped-def]
        if not holds(e, LocToLoc):
            return e
        return expr(e.value) if isinstance(e, LocToLoc) else map_expr(e, expr)

    return map_stmt(s, without_movement, expr)


def raise_miss(module: Module, scope: Scope, misses: Sequence[Miss], capped: Sequence[str]) -> None:
    """SelectionError for the first miss of a scope, updates before the rest, the others counted."""

    def early(m: Miss) -> int:
        stage = stage_of(m.statement, scope) if isinstance(m.statement, Store) else ""
        return 0 if stage == "update" else 1

    first = min(misses, key=early)
    place = where(module, scope, first.statement)
    near = f"; nearest instruction: {first.nearest}" if first.nearest else ""
    more = _others(len(misses) - 1)
    limit = f"; the search stopped at its cap in: {', '.join(capped)}" if capped else ""
    raise SelectionError(
        f"`{place.func}` ({place.stage or 'condition'}) cannot go to the tensor unit{more}",
        first.why + near + limit,
        first.hint,
        place,
    )


def _others(count: int) -> str:
    match count:
        case 0:
            return ""
        case 1:
            return " (another statement of this scope misses too)"
        case _:
            return f" ({count} more statements of this scope miss too)"


def describe(
    module: Module, scope: Scope, solution: Solution, misses: Sequence[Miss]
) -> list[StatementReport]:
    """An entry for each distinct statement of a scope; equal ones are counted."""
    copies = Counter(k.term for k in scope.skeletons)
    reasons = {id(m.statement): m for m in misses}
    bounds = error_bounds(scope.stores, scope.computed)
    entries: list[StatementReport] = []
    for term in copies:
        store, skeleton = next(
            (s, k) for s, k in zip(scope.stores, scope.skeletons, strict=True) if k.term == term
        )
        place = where(module, scope, store)
        count = copies[term]
        if misses:
            miss = reasons.get(id(store))
            why = (
                miss.why if miss is not None else "another statement of its accumulator was refused"
            )
            hint = miss.hint if miss is not None else ""
            entries.append(
                StatementReport(place, place.stage, None, miss=why, hint=hint, copies=count)
            )
            continue
        found = _selected(place, scope, store, skeleton, solution, count)
        known = bounds.get(store.buffer, "") if found.block is not None else ""
        entries.append(replace(found, precision=known) if known else found)
    return entries


def merge_reports(entries: Sequence[StatementReport]) -> tuple[StatementReport, ...]:
    """Entries that differ in nothing but their text as one, in order of first appearance."""
    groups: dict[object, StatementReport] = {}
    for e in entries:
        key = (e.where.func, e.stage, e.where.location, e.block, e.matched, e.temporaries, e.miss)
        known = groups.get(key)
        groups[key] = e if known is None else replace(known, copies=known.copies + e.copies)
    return tuple(groups.values())


def _selected(
    place: Where, scope: Scope, store: Store, skeleton: Skeleton, solution: Solution, copies: int
) -> StatementReport:
    index = solution.index[skeleton.term]
    term = solution.terms[index]
    assert term is not None
    decoded = Decoder(skeleton.symbols, skeleton.buffers, scope.computed).store(term)
    call = next((e for e in walk_expr(decoded.value) if isinstance(e, Call) and find(e.name)), None)
    temporaries = tuple(
        _temporary(e.value) for e in walk_expr(decoded.value) if isinstance(e, ExprVar)
    )
    stage = "apply" if call is None and place.stage == "update" else place.stage
    return StatementReport(
        place,
        stage,
        None if call is None else _block(call, store),
        _matched(stage, solution),
        temporaries,
        capped=solution.saturation.capped,
        copies=copies,
        explain=lambda: _chain(stage, solution, index),
    )


def _chain(stage: str, solution: Solution, index: int) -> tuple[str, ...]:
    """The rules that led to an entry: fills and reads need one each, and elements that are
    computed where they lie need both.
    """
    alone = {"init": ("tile-fill",), "read": ("tile-read",), "apply": ("tile-read", "tile-fill")}
    return alone.get(stage) or solution.chain(index)


def _matched(stage: str, solution: Solution) -> tuple[str, ...]:
    """The rules that matched for an entry; those of its scope for an update."""
    if stage in ("init", "read", "apply"):
        return _chain(stage, solution, 0)
    if stage == "rescale":  # tiles are taken apart, no rule of products does that
        return ()
    return tuple(r for r in solution.matched if r not in ("tile-fill", "tile-read"))


def _temporary(e: Expr) -> str:
    match e:
        case Call(_, name, args) if name in (TOEPLITZ, TOEPLITZ_TRANSPOSED):
            k, n, stride, dilation, phases = (a.value for a in args[:5] if isinstance(a, IntImm))
            more = f", phases {phases}" if phases > 1 else ""
            bands = f"(stride {stride}, dilation {dilation}{more})"
            return f"{name} {k} x {n}{_source(args[5])} {bands}"
        case Call(_, name, (IntImm(k), IntImm(n), IntImm(packing), inner)) if name == VNNI:
            source = f" of {_temporary(inner)}" if isinstance(inner, Call) else _source(inner)
            return f"{k} x {n} in VNNI order (groups of {packing}){source}"
        case Call(t, name, _):
            return f"{name} ({t})"
        case Load(t, buffer, _, _):
            return f"{t.lanes} values of {buffer}, gathered into rows"
        case _:
            return f"{e.type.lanes} values{_buffers(e)}, computed one by one where they are read"


def _source(e: Expr) -> str:
    """The buffers that a temporary is made of, and whether it is computed from them."""
    return f"{'' if isinstance(e, Load) else ' computed'}{_buffers(e)}"


def _buffers(e: Expr) -> str:
    loads = dict.fromkeys(x.buffer for x in walk_expr(e) if isinstance(x, Load))
    return f" of {' and '.join(loads)}" if loads else ""


def _block(call: Call, store: Store) -> Block:
    instruction = find(call.name)
    assert instruction is not None
    m, n, k = (a.value for a in call.args[:3] if isinstance(a, IntImm))
    reduce = Update.of(store).reductions[0]
    return Block(
        instruction.name,
        (instruction.m, instruction.n, instruction.k),
        m, n, k,
        instruction.count(m, n, k),
        reduce.value.type.lanes,
        instruction.issued_macs(m, n, k),
    )  # fmt: skip
