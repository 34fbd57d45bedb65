"""What each thread of a block keeps in its own registers, from one loop over the threads to the
next.

    allocate c[128 * 64] in Register            each thread: c[4 * 8]
    gpu_thread y < 8, x < 32:                   gpu_thread y < 8, x < 32:
      c[x*4 + y*1024 + 128] = 0                   c[4] = 0
    for k:                                =>    for k:
      gpu_thread y < 8, x < 32:                   gpu_thread y < 8, x < 32:
        c[x*4 + y*1024 + 128] += ...                c[4] += ...

An allocation in Register around thread loops is cut so if all of these loops cut it in the same
way: along each dimension a thread has so many elements beside each other, as often as the threads
together go into it (``x*4``, ``x*4 + 128`` of 256), and touches no others. Else it stays one of the
block, in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from math import prod

from selector.dataclass import dataclass
from selector.ir.access import access, walk
from selector.ir.affine import Affine
from selector.ir.contents import loaded
from selector.ir.nodes import (
    Allocate,
    Expr,
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
from selector.ir.traverse import map_expr, map_stmt, walk_all_exprs, walk_stmt
from selector.lowering.normalize import holds_tensor
from selector.lowering.predicates import holds_everywhere
from selector.lowering.structure import loaded_names, outside_threads, stored_names, thread_regions
from selector.lowering.term_vectors import by_vectors

UNROLLED = 32  # iterations of an innermost loop around such elements that are written out


def own_parts(body: Stmt) -> tuple[Stmt, frozenset[str]]:
    """The body of a kernel with the parts of threads numbered in each thread, and what is kept
    so.
    """
    if holds_tensor(body):
        return body, frozenset()
    cuts = [c for s in walk_stmt(body) if isinstance(s, Allocate) and (c := _cut(s))]
    for cut in cuts:
        body = _numbered(body, cut)
    names = frozenset(c.name for c in cuts)
    return (_unrolled(body, names) if names else body), names


@dataclass(slots=True)
class _Cut:
    """How an allocation of some ``extents`` is cut: for each thread loop, innermost first, the
    dimension that it cuts and the elements of a thread along it.
    """

    name: str
    extents: tuple[int, ...]
    loops: tuple[int, ...]
    by: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    indices: dict[Expr, Expr] = field(default_factory=dict[Expr, Expr])

    @property
    def shares(self) -> tuple[int, ...]:
        share = dict(self.by.values())
        return tuple(share.get(d, n) for d, n in enumerate(self.extents))

    def digits(self, factor: int) -> tuple[int, ...]:
        """Steps along each dimension that an index makes with a step of so many elements."""
        return _digits(factor, self.extents)


def _digits(factor: int, extents: tuple[int, ...]) -> tuple[int, ...]:
    found: list[int] = []
    for n in extents[:-1]:
        found.append(factor % n)
        factor //= n
    return (*found, factor)


@dataclass(frozen=True, slots=True)
class _Region:
    """Loops over threads, innermost first, and the last values of loops in a thread."""

    threads: tuple[str, ...]
    last: Mapping[str, int]


def _cut(s: Allocate) -> _Cut | None:
    """How an allocation is cut; None where it is none in registers or not cut up alike."""
    if s.memory is not Memory.REGISTER or s.stages != 1:
        return None
    extents = tuple(e.value for e in s.extents if isinstance(e, IntImm))
    regions = [r for r in thread_regions(s.body) if _touches(r[1], s.name)]
    plain = (x for x in outside_threads(s.body) if isinstance(x, Store | For | IfThenElse))
    if len(extents) != len(s.extents) or not extents or not regions:
        return None
    if any(s.name in _own_names(x) for x in plain):
        return None
    loops, first = regions[0]
    cut = _Cut(s.name, _in_turns(extents, next(_indices(first, s.name)), dict(loops)),
               tuple(n for _, n in loops))  # fmt: skip
    for loops, body in regions:
        known = _last_values(body)
        if tuple(n for _, n in loops) != cut.loops or known is None:
            return None
        region = _Region(tuple(name for name, _ in loops), known)
        if not all(_fits(i, region, cut) for i in _indices(body, s.name)):
            return None
    if any(n > 1 and i not in cut.by for i, n in enumerate(cut.loops)):
        return None
    for loops, body in regions:
        for index in _indices(body, s.name):
            cut.indices[index] = _own_index(index, tuple(name for name, _ in loops), cut)
    return cut


def _in_turns(extents: tuple[int, ...], index: Expr, threads: Mapping[str, int]) -> tuple[int, ...]:
    """Extents with each dimension that threads go into several times as two: what they go over at
    a time, and how often.
    """
    seen = access(index)
    if seen is None:
        return extents
    for name, count in threads.items():
        factor = seen.base.coefficient(Var(name)).constant
        for d, step in enumerate(_digits(max(factor or 0, 0), extents)):
            if step and step * count < extents[d] and extents[d] % (step * count) == 0:
                times = extents[d] // (step * count)
                extents = (*extents[:d], step * count, times, *extents[d + 1 :])
                break
    return extents


def _touches(s: Stmt, name: str) -> bool:
    return name in stored_names(s) | loaded_names(s)


def _own_names(s: Stmt) -> frozenset[str]:
    """What a statement touches beside the statements inside."""
    match s:
        case Store():
            return stored_names(s) | loaded_names(s)
        case For(_, low, extent):
            return loaded(low) | loaded(extent)
        case IfThenElse(condition):
            return loaded(condition)
        case _:
            return frozenset()


def _indices(s: Stmt, name: str) -> Iterator[Expr]:
    yield from (x.index for x in walk_stmt(s) if isinstance(x, Store) and x.buffer == name)
    yield from (x.index for x in walk_all_exprs(s) if isinstance(x, Load) and x.buffer == name)


def _last_values(s: Stmt) -> dict[str, int] | None:
    """Of the variables of loops in a thread that start at 0; None if a length is unknown."""
    found: dict[str, int] = {}
    for x in walk_stmt(s):
        if isinstance(x, For) and x.min == IntImm(0) and isinstance(x.extent, IntImm):
            found[x.name] = x.extent.value - 1
    return found


def _fits(index: Expr, region: _Region, cut: _Cut) -> bool:
    """Whether an index stays in the part of its thread, as others do."""
    seen = access(index)
    if seen is None:
        return False
    reach = list(cut.digits(seen.base.offset))
    by = dict[int, tuple[int, int]]()
    for atoms, factor in seen.base - seen.base.offset:
        match atoms:
            case (Var(name),) if name in region.threads and factor > 0:
                steps = cut.digits(factor)
                d, *others = (d for d, n in enumerate(steps) if n)
                if others:
                    return False
                by[region.threads.index(name)] = d, steps[d]
            case (Var(name),) if name in region.last and factor > 0:
                _advance(reach, cut.digits(factor), region.last[name])
            case _:
                return False
    for stride, count in seen.levels:
        if stride.constant is None or stride.constant < 0:
            return False
        _advance(reach, cut.digits(stride.constant), count - 1)
    if cut.by and by != cut.by:
        return False
    cut.by = by
    return len(dict(by.values())) == len(by) and all(
        low < n for low, n in zip(reach, cut.shares, strict=True)
    )


def _advance(reach: list[int], steps: tuple[int, ...], times: int) -> None:
    for d, step in enumerate(steps):
        reach[d] += step * times


def _own_index(index: Expr, threads: tuple[str, ...], cut: _Cut) -> Expr:
    """The index among a thread's own elements."""
    pitches = [prod(cut.shares[:d]) for d in range(len(cut.shares))]

    def own(factor: int) -> int:
        return sum(n * p for n, p in zip(cut.digits(factor), pitches, strict=True))

    seen = access(index)
    assert seen is not None
    base = Affine.build(
        {
            atoms: own(factor)
            for atoms, factor in seen.base
            if not any(isinstance(a, Var) and a.name in threads for a in atoms)
        }
    )
    levels = tuple((Affine.of(own(stride.offset)), count) for stride, count in seen.levels)
    return walk(base, levels)


def _numbered(s: Stmt, cut: _Cut) -> Stmt:
    """A body with the indices of a cut allocation among a thread's own elements."""

    def expr(e: Expr) -> Expr:
        e = map_expr(e, expr)
        if isinstance(e, Load) and e.buffer == cut.name:
            return replace(e, index=cut.indices[e.index])
        return e

    def stmt(s: Stmt) -> Stmt:
        s = map_stmt(s, stmt, expr)
        match s:
            case Store(buffer=cut.name):
                return replace(s, index=cut.indices[s.index])
            case Allocate(name=cut.name):
                return replace(s, extents=tuple(map(IntImm, cut.shares)))
            case _:
                return s

    return stmt(s)


def _unrolled(s: Stmt, names: frozenset[str]) -> Stmt:
    """The innermost loops of a thread around such elements, without what may end them early where
    all iterations are done.
    """
    s = map_stmt(s, lambda x: _unrolled(x, names), lambda e: e)
    match s:
        case For(name, IntImm(0), IntImm(n), ForKind.SERIAL, body) if n <= UNROLLED:
            inner = any(isinstance(x, For | Allocate) for x in walk_stmt(body))
            if inner or not names & stored_names(body):
                return s
            whole = replace(s, kind=ForKind.UNROLLED)
            if not isinstance(body, IfThenElse) or body.otherwise is not None:
                return by_vectors(whole, n)
            all_done = holds_everywhere(body.condition, {Var(name): n})
            if all_done is None:
                return whole
            return IfThenElse(all_done, by_vectors(replace(whole, body=body.then), n), s)
        case _:
            return s
