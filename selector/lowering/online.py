"""Sums along with their maximum: ``hb.online``.

    for k: m[q] = max(m[q], s[k, q])                 for k: old[q] = m[q]
    for k: o[d, q] += exp(x[k, q] - m[q]) * v[d, k]         m[q] = max(m[q], s[k, q])
                                                  =>        o[d, q] *= exp(old[q] - m[q])
                                                            o[d, q] += exp(x[k, q] - m[q]) * v[d, k]

A sum whose terms all have the factor ``exp(x - m)`` is, with another m', the sum times
``exp(m - m')``. So it may be taken with the maximum so far, and is rescaled when that grows: the
two loops become one, and what both compute of an iteration is computed once. Which x is taken, and
whether it is what the maximum is of, does not matter to the result, only to its range.

Runs on the vectorized loops, before selection; the loops' own form says whether it may.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError, Where
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Load,
    Stmt,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.traverse import change_stmts, stmt_exprs, substitute_stmt, walk_stmt
from selector.lowering.duplicates import Flat, flat, merge_equal, nested, rename, share_values
from selector.lowering.exponents import with_multiples
from selector.lowering.factors import Factors, Rows, as_index, rows_at
from selector.lowering.left_out import left_out
from selector.lowering.masks import floors_of
from selector.lowering.online_forms import (
    from_finite,
    grows,
    is_finite,
    is_zero,
    plain,
    terms_of,
    with_masked_exponents,
    with_powers_of_two,
)
from selector.lowering.structure import (
    loaded_names,
    peel_threads,
    stored_names,
    under_conditions,
    with_variable_of,
)
from selector.lowering.tile_functions import tile_functions
from selector.lowering.trim import constant_starts, trimmed


@dataclass(frozen=True, slots=True)
class Online:
    """A maximum and the sums that are taken along with it, by the names of their buffers."""

    maximum: str
    sums: tuple[str, ...]
    location: str = ""


def fuse_online(body: Stmt, asked: Online) -> Stmt:
    """The body with the loops over the maximum and over the sums as one.

    ``ScheduleError`` where that is not possible, with the reason.
    """
    found: list[Stmt] = []

    def fused(s: Stmt) -> Stmt | None:
        level = flat(s)
        if found or asked.maximum not in {a.name for a in level[0]}:
            return None
        found.append(s)
        return _Fusion(asked, level, floors.get(asked.maximum, 0.0)).fused()

    body = from_finite(plain(body), asked.maximum)
    floors = {k: v for k, v in floors_of(body).items() if k == asked.maximum}
    body = left_out(body, {asked.maximum, *asked.sums}, floors)
    body = with_masked_exponents(with_multiples(body, asked.maximum, floors), floors)
    result = change_stmts(body, fused)
    if not found:
        raise _refused(asked, f"`{asked.maximum}` is no array of its own", "compute_at a loop")
    return with_powers_of_two(result, floors)


def _refused(asked: Online, why: str, hint: str) -> ScheduleError:
    names = " and ".join(f"`{s}`" for s in asked.sums)
    return ScheduleError(
        f"{names} cannot be taken along with the maximum `{asked.maximum}`",
        why,
        hint,
        Where(func=asked.maximum, location=asked.location),
    )


class _Fusion:
    """One level of allocations and statements, which holds all the loops."""

    def __init__(self, asked: Online, level: Flat, floor: float) -> None:
        self.asked, self.floor = asked, floor
        self.allocations, self.stmts = level
        self.factor = f"{asked.maximum}.factor"

    def fused(self) -> Stmt:
        """The level, rewritten."""
        loops = [self._loop(name) for name in (self.asked.maximum, *self.asked.sums)]
        distinct = [x for i, x in enumerate(loops) if x not in loops[:i]]
        if len(distinct) == 1 or distinct[0] in loops[1:]:
            raise self.refuse("they are computed in one loop already", "use separate loops")
        self._check_starts(distinct)
        before, after = self._around(distinct)
        starts, made = constant_starts(before), {a.name for a in self.allocations}
        same = (with_variable_of(x, distinct[0]) for x in distinct)
        first, *rest = (trimmed(x, starts, made) for x in same)
        if any((x.min, x.extent) != (first.min, first.extent) for x in rest):
            raise self.refuse(
                "their loops do not have the same bounds", "split all of them by the same factor"
            )
        (allocations, stmts), renamed = merge_equal(self.allocations, before)
        for old, new in renamed.items():
            first = _renamed(first, old, new)
            rest = [_renamed(x, old, new) for x in rest]
            after = [rename(x, old, new) for x in after]
        loop = replace(first, body=self._body(first, rest))
        place = next(i for i, a in enumerate(allocations) if a.name == self.asked.maximum)
        factor = replace(allocations[place], name=self.factor)
        allocations = [*allocations[: place + 1], factor, *allocations[place + 1 :]]
        return nested(allocations, [*stmts, loop, *after])

    def refuse(self, why: str, hint: str) -> ScheduleError:
        return _refused(self.asked, why, hint)

    # ------------------------------------------------------------------ the loops and their places

    def _loop(self, name: str) -> For:
        """The loop at this level that updates a buffer."""
        found = [
            s
            for s in self.stmts
            if isinstance(s, For) and s.kind is ForKind.SERIAL and name in stored_names(s)
        ]
        if len(found) != 1 or name not in {a.name for a in self.allocations}:
            raise self.refuse(
                f"`{name}` has {len(found)} serial loops where `{self.asked.maximum}` is computed",
                "give all of them compute_at the same loop, and keep the reduction's outer loop "
                "outermost in their updates",
            )
        return found[0]

    def _check_starts(self, loops: list[For]) -> None:
        """The maximum starts at finite numbers: exp(m - m) is 1. Sums start at 0, which stays what
        it is with another maximum.
        """
        maximum, others = self.asked.maximum, [s for s in self.stmts if s not in loops]
        starts = (x for s in others for x in walk_stmt(s))
        for x in starts:
            if not isinstance(x, Store):
                continue
            if x.buffer == maximum and not is_finite(x.value):
                raise self.refuse(
                    f"`{maximum}` does not start at a finite number, and exp(-inf - -inf) is not a "
                    "number",
                    "start it at a low finite number, such as -3e38",
                )
            if x.buffer in self.asked.sums and not is_zero(x.value):
                raise self.refuse(
                    f"`{x.buffer}` does not start at 0, and what it starts with would go down as "
                    "the maximum grows",
                    "start it at 0, and add the rest where it is read",
                )

    def _around(self, loops: list[For]) -> tuple[list[Stmt], list[Stmt]]:
        """Statements before the fused loop and after it. What stands between the loops goes before
        it.
        """
        places = [next(i for i, s in enumerate(self.stmts) if s is x) for x in loops]
        if places[0] != min(places):
            raise self.refuse("the maximum is not computed first", "")
        between = [
            s for i, s in enumerate(self.stmts) if places[0] < i < max(places) and i not in places
        ]
        for place, loop in zip(places, loops, strict=True):
            reads, writes = loaded_names(loop), stored_names(loop)
            for s in between:
                late = next(i for i, x in enumerate(self.stmts) if x is s) > place
                if late and (loaded_names(s) & writes or stored_names(s) & (reads | writes)):
                    raise self.refuse(
                        f"`{min(stored_names(s), default='')}` is computed between the loops, of "
                        "what the first one leaves",
                        "compute it afterwards, or inside of a loop",
                    )
            for other in loops[: loops.index(loop)]:
                left = stored_names(other)
                if (reads & left) - {self.asked.maximum} or writes & (left | loaded_names(other)):
                    raise self.refuse(
                        "one of the loops reads what another leaves", "leave it out of hb.online"
                    )
        return [*self.stmts[: places[0]], *between], self.stmts[max(places) + 1 :]

    # ------------------------------------------------------------------ one iteration

    def _body(self, first: For, rest: list[For]) -> Stmt:
        parts = [flat(x.body) for x in (first, *rest)]
        ends = [_region(stmts) for _, stmts in parts]
        if not any(region for _, region in ends):
            allocations = [a for more, _ in parts for a in more]
            return self._joined(allocations, [stmts for _, stmts in parts])
        shapes = [peel_threads(region)[0] if region else [] for _, region in ends]
        found = [([n for _, n in s], under) for s, (under, _) in zip(shapes, ends, strict=True)]
        if not all(shapes) or any(x != found[0] for x in found):
            raise self.refuse(
                "their iterations are not given to the same threads",
                "split the rows of all of them alike, and give them the same gpu_threads loops",
            )
        outer = [s for _, stmts in parts for s in stmts[:-1]]
        inner: list[list[Stmt]] = []
        local: list[Allocate] = []
        for (_, region), shape in zip(ends, shapes, strict=True):
            assert region is not None
            pairs = zip(shape, shapes[0], strict=True)
            own = {a: Var(b) for (a, _), (b, _) in pairs if a != b}
            more, stmts = flat(substitute_stmt(peel_threads(region)[1], own))
            local += more
            inner.append(stmts)
        self._check_copies(outer, inner)
        (allocations, outer), renamed = merge_equal([a for more, _ in parts for a in more], outer)
        for old, new in renamed.items():
            inner = [[rename(s, old, new) for s in stmts] for stmts in inner]
        body = self._joined(local, inner)
        for name, extent in shapes[0]:
            body = For(name, IntImm(0), IntImm(extent), ForKind.GPU_THREAD, body)
        for condition in ends[0][0]:
            body = IfThenElse(condition, body)
        return nested(allocations, [*outer, body])

    def _check_copies(self, outer: list[Stmt], inner: list[list[Stmt]]) -> None:
        written = {name for stmts in inner for s in stmts for name in stored_names(s)}
        for s in outer:
            if (loaded_names(s) | stored_names(s)) & written:
                raise self.refuse(
                    f"`{min(stored_names(s), default='')}` is computed in an iteration, of what "
                    "its threads leave",
                    "compute it inside of the gpu_threads loops, or before the loop",
                )

    def _joined(self, allocations: list[Allocate], parts: list[list[Stmt]]) -> Stmt:
        """The statements of one iteration: the maximum, then the sums rescaled and added to."""
        indices = self._updated(parts[0])
        sums = [s for stmts in parts[1:] for s in stmts]
        rescaled, factors = self._rescaled(sums, self._covered(indices))
        maximum = self._maximum(parts[0], indices, factors)
        (kept, body), _ = merge_equal(allocations, [*maximum, *rescaled, *sums])
        return nested(kept, tile_functions(kept, share_values(kept, body)))

    def _updated(self, stmts: list[Stmt]) -> list[Expr]:
        """The places at which an iteration updates the maximum."""
        name, indices = self.asked.maximum, dict[Expr, None]()
        for s in stmts:
            if name not in stored_names(s):
                continue
            if not (isinstance(s, Store) and grows(s, name)):
                raise self.refuse(
                    f"`{name}` is not updated as `{name}[q] = max({name}[q], x)` by whole vectors",
                    "vectorize or unroll the loops over its rows",
                )
            indices[s.index] = None
        return list(indices)

    def _covered(self, indices: list[Expr]) -> list[Rows]:
        rows = [self._places(index, self.asked.maximum) for index in indices]
        _check_apart(rows, self.asked.maximum, self)
        return rows

    def _maximum(self, stmts: list[Stmt], indices: list[Expr], factors: Factors) -> list[Stmt]:
        """The first part, with the old maximum kept and made the factor."""
        updates = [i for i, s in enumerate(stmts) if self.asked.maximum in stored_names(s)]
        old = [self._copy(index) for index in indices]
        factor = [self._factor(index, factors) for index in indices]
        low, high = updates[0], updates[-1] + 1
        return [*stmts[:low], *old, *stmts[low:high], *factor, *stmts[high:]]

    def _places(self, index: Expr, name: str) -> Rows:
        rows = rows_at(index)
        if rows is None:
            raise self.refuse(f"an index of `{name}` is no walk over constant distances", "")
        return rows

    def _copy(self, index: Expr) -> Store:
        return Store(self.factor, index, self._load(self.asked.maximum, index))

    def _factor(self, index: Expr, factors: Factors) -> Store:
        old, new = (self._load(x, index) for x in (self.factor, self.asked.maximum))
        return Store(self.factor, index, factors.power(old, new))

    def _load(self, buffer: str, index: Expr) -> Load:
        element = next(a.type for a in self.allocations if a.name == self.asked.maximum).element
        return Load(element.with_lanes(index.type.lanes), buffer, index)

    # ------------------------------------------------------------------ the sums

    def _rescaled(self, stmts: list[Stmt], covered: list[Rows]) -> tuple[list[Stmt], Factors]:
        """A statement for every part of a sum that an iteration adds to; how terms depend on the
        maximum.
        """
        names = "` and `".join(self.asked.sums)
        factors = Factors(self.asked.maximum, names, self.asked.location, self.floor)
        found: dict[tuple[str, Expr], Rows] = {}
        for s in stmts:
            stored = stored_names(s)
            if not isinstance(s, Store):
                if stored & set(self.asked.sums) or self._mentions_maximum(s, factors):
                    raise self.refuse(
                        "a loop is around their statements", "vectorize or unroll all of its rows"
                    )
                continue
            if s.buffer not in self.asked.sums:
                factors.hold(s)
                continue
            rows = self._added(s, factors)
            known = found.setdefault((s.buffer, s.index), rows)
            if not known.same(rows):
                raise factors.refused(s.value, "other terms of the same sum have other rows")
        for name in self.asked.sums:
            places = [self._places(index, name) for buffer, index in found if buffer == name]
            _check_apart(places, name, self)
        parts = [(name, index, rows, covered) for (name, index), rows in found.items()]
        return [self._rescale(*part) for part in parts], factors

    def _mentions_maximum(self, s: Stmt, factors: Factors) -> bool:
        return any(factors.depends(e) for x in walk_stmt(s) for e in stmt_exprs(x))

    def _added(self, s: Store, factors: Factors) -> Rows:
        """The rows of a statement ``sum[i] = sum[i] + terms``."""
        terms = terms_of(s)
        if terms is None or s.predicate is not None:
            raise factors.refused(s.value, f"`{s.buffer}` is more than added to")
        reduced = terms.value if isinstance(terms, VectorReduce) else terms
        rows = factors.rows(reduced)
        if rows is None:
            raise factors.refused(reduced, f"it does not depend on `{self.asked.maximum}`")
        groups = rows.places.reshape(terms.type.lanes, -1)
        if not np.array_equal(groups, np.repeat(groups[:, :1], groups.shape[1], axis=1)):
            raise factors.refused(reduced, "one sum has terms of several rows")
        return Rows(rows.base, groups[:, 0])

    def _rescale(self, name: str, index: Expr, rows: Rows, covered: list[Rows]) -> Store:
        inside = [c for c in covered if c.base == rows.base]
        places = np.concatenate([c.places for c in inside]) if inside else np.zeros(0)
        factor = as_index(rows)
        if factor is None or not np.isin(rows.places, places).all():
            raise self.refuse(
                f"`{name}` has other rows where `{self.asked.maximum}` is taken further",
                "split the rows of all of them alike",
            )
        element = next(a.type for a in self.allocations if a.name == name).element
        value = Load(element.with_lanes(index.type.lanes), name, index)
        return Store(name, index, Binary(BinaryOp.MUL, value, self._load(self.factor, factor)))


def _check_apart(rows: list[Rows], name: str, fusion: _Fusion) -> None:
    """Different statements have different elements: each is rescaled once."""
    low = min((int(r.places.min()) for r in rows), default=0)
    end = max((int(r.places.max()) for r in rows), default=0) + 1
    written = np.zeros(end - low, np.bool_)
    for r in rows:
        if r.base != rows[0].base or written[r.places - low].any():
            raise fusion.refuse(
                f"parts of `{name}` that an iteration writes overlap, or may",
                "unroll the loops over its tiles, of whole tiles",
            )
        written[r.places - low] = True


def _region(stmts: list[Stmt]) -> tuple[list[Expr], For | None]:
    """The nest of thread loops at the end of an iteration, and what it stands under."""
    under, last = under_conditions(stmts[-1]) if stmts else ([], None)
    inside = isinstance(last, For) and last.kind is ForKind.GPU_THREAD
    return (under, last) if inside and isinstance(last, For) else ([], None)


def _renamed(loop: For, old: str, new: str) -> For:
    result = rename(loop, old, new)
    assert isinstance(result, For)
    return result
