"""A scope and what a pass made of it compute the same: shown statement by statement.

Before each statement the accumulators of the one follow from those of the other, cell by cell:
they are the same, or what ``Relation`` says (a factor, a sum of several). Cells that nobody has
written nobody reads; a statement that keeps the relation, and stores the same in memory, makes it
hold of whole programs, however often loops run. Which it is is read off where values leave the
accumulators, and need not be trusted: a wrong one is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from itertools import pairwise

from selector.dataclass import dataclass
from selector.ir.contents import holds, loaded
from selector.ir.nodes import Allocate, Block, Broadcast, Expr, LetStmt, Load, LocToLoc, Stmt, Store
from selector.ir.traverse import (
    expr_children,
    stmt_children,
    stmt_exprs,
    substitute_stmt,
    walk_expr,
    walk_stmt,
)
from selector.operands.accumulators import accumulators_of, is_tensor
from selector.operands.computed_values import Computed
from selector.workbench.prove.expressions import Meaning
from selector.workbench.prove.lane_worth import Digit, Digits, LaneCut, OneByOne
from selector.workbench.prove.moves import misplaced
from selector.workbench.prove.sizes import Unproved
from selector.workbench.prove.terms import Key, Poly, Terms, TooMany, number

_MOST_CUTS = 64
_MOST_LANES = 1024


@dataclass(frozen=True, slots=True)
class Refuted(Exception):  # noqa: N818 (what was found)
    """Values that differ, in which statement, and with which numbers."""

    what: str
    numbers: str

    def __str__(self) -> str:
        return f"{self.what}: {self.numbers}"


@dataclass(frozen=True, slots=True)
class Relation:
    """What stands for the lanes of an accumulator that are read at an index, over those of the
    changed scope."""

    index: Expr
    value: Expr

    @property
    def is_uniform(self) -> bool:
        """Whether it is the same of every lane."""
        return _is_uniform(self.value)


def _is_uniform(e: Expr) -> bool:
    match e:
        case Load():
            return True
        case Broadcast(value):
            return value.type.lanes == 1 or _is_uniform(value)
        case _ if e.type.lanes == 1:
            return True
        case _:
            return bool(expr_children(e)) and all(map(_is_uniform, expr_children(e)))


@dataclass
class Pairs:
    """The statements of two scopes beside each other."""

    before: Allocate
    after: Allocate
    computed: Mapping[str, Computed]
    relations: dict[str, list[Relation]] = field(default_factory=dict[str, list[Relation]])

    def __post_init__(self) -> None:
        self.own = accumulators_of(self.before).keys()
        self.cells = accumulators_of(self.after).keys()
        self.stores = list(self._pairs(self.before, self.after))
        for s, others in self.stores:
            if s.buffer not in self.own and len(others) == 1:
                self._relate(s.value, others[0].value)

    def _pairs(self, b: Stmt, a: Stmt) -> Iterator[tuple[Store, tuple[Store, ...]]]:
        """Stores, and what stands in the place of each."""
        match b:
            case Store():
                yield b, tuple(_stores(a))
                return
            case LetStmt(name, value, body) if not (isinstance(a, LetStmt) and a.name == name):
                written = {s.buffer for s in walk_stmt(body) if isinstance(s, Store)}
                if written & loaded(value):
                    raise Unproved(f"`{name}` is read after what it is of has changed")
                yield from self._pairs(substitute_stmt(body, {name: value}), a)
                return
            case Allocate(name):
                while isinstance(a, Allocate) and isinstance(a.body, Allocate) and (
                    is_tensor(a.body) and a.body.name not in self.own
                ):  # fmt: skip
                    a = Allocate(a.name, a.type, a.extents, a.memory, a.body.body, a.stages)
            case _:
                pass
        if type(a) is not type(b) or stmt_exprs(a) != stmt_exprs(b) or _name(a) != _name(b):
            raise Unproved("statements of another form")
        if any(loaded(e) & self.own for e in stmt_exprs(b)):
            raise Unproved("accumulators that are read in no store")
        inner = stmt_children(b), stmt_children(a)
        if len(inner[0]) != len(inner[1]):
            raise Unproved("statements of another form")
        for x, y in zip(*inner, strict=True):
            yield from self._pairs(x, y)

    def _relate(self, b: Expr, a: Expr) -> None:
        match b:
            case LocToLoc(_, _, Load(_, buffer, index)) if buffer in self.own:
                found = Relation(index, a)
                if any(isinstance(x, Load) and x.buffer in self.cells and x.index != index
                       for x in walk_expr(a)):  # fmt: skip
                    raise Unproved("cells of other lanes")
                if found not in self.relations.setdefault(buffer, []):
                    self.relations[buffer].append(found)
            case _ if type(a) is type(b):
                for x, y in zip(expr_children(b), expr_children(a), strict=False):
                    self._relate(x, y)
            case _:
                pass


def _name(s: Stmt) -> object:
    return getattr(s, "name", None), getattr(s, "kind", None), getattr(s, "memory", None)


def _stores(s: Stmt) -> Iterator[Store]:
    match s:
        case Store():
            yield s
        case Block(stmts):
            for inner in stmts:
                yield from _stores(inner)
        case _:
            raise Unproved("a store becomes more than stores")


def same_scopes(
    before: Allocate,
    after: Allocate,
    computed: Mapping[str, Computed] | None = None,
    known: set[object] | None = None,
) -> int:
    """Prove that two scopes store the same in memory, the second one by moves where values enter
    and leave its accumulators; ``Refuted`` or ``Unproved`` where that fails. How many pairs of
    statements were looked at. ``known``: those that have been proved."""
    for found in misplaced(after):
        raise Refuted("a move", found)
    pairs = Pairs(before, after, computed or {})
    known = set() if known is None else known
    count = 0
    for relations in pairs.relations.values():
        _Step(pairs).one_value(relations)
    shown = tuple((b, tuple(r)) for b, r in sorted(pairs.relations.items()))
    for s, others in pairs.stores:
        if others == (s,) and not (loaded(s.value) | {s.buffer}) & pairs.relations.keys():
            continue
        key = (s, others, shown, tuple(sorted((n, c.value) for n, c in pairs.computed.items())))
        if key in known:
            continue
        _Step(pairs).proved(s, others)
        known.add(key)
        count += 1
    return count


@dataclass
class _Cells:
    """The accumulators of the changed scope while the statements in place of one are run."""

    terms: Terms
    state: dict[tuple[str, Key], Poly] = field(default_factory=dict[tuple[str, Key], Poly])

    def read(self, load: Load, index: Poly, _: Digits) -> Poly:
        if (load.buffer, index.key) in self.state:
            return self.state[load.buffer, index.key]
        if any(load.buffer == name for name, _ in self.state):
            raise Unproved(f"`{load.buffer}` is read at lanes that were written before")
        return self.terms.atom("cell", load.buffer, index.key, whole=load.type.is_integer)


@dataclass
class _Step:
    """One statement and those in its place, begun anew until its digits are cut as it asks."""

    pairs: Pairs
    cuts: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    way: int = 0

    def proved(self, s: Store, others: tuple[Store, ...]) -> None:
        for _ in range(_MOST_CUTS):
            try:
                for lane in self._lanes(s.value.type.lanes):
                    self._lane(s, others, lane)
                return
            except LaneCut as at:
                self._cut(at)
            except (OneByOne, TooMany) as why:
                self._singly(s.value.type.lanes, str(why) or "lanes that are nested in no one way")
        raise Unproved("digits that are cut without end")

    def _lanes(self, lanes: int) -> Iterable[int | None]:
        """All at once, or the values of the innermost digit, or of all."""
        match self.way:
            case 2:
                return range(min(self.cuts.get("lane", (lanes,))))
            case 3:
                return range(lanes)
            case _:
                return (None,)

    def _cut(self, at: LaneCut) -> None:
        ends = sorted({*self.cuts.get(at.digit, ()), at.end})
        if any(b % a for a, b in pairwise(ends)):
            self.way = 2
            self._singly(1, "")
        else:
            self.cuts[at.digit] = tuple(ends)

    def _singly(self, lanes: int, why: str) -> None:
        """First the summands, then the phases, then all lanes."""
        self.way += 1
        if self.way > 3 or (self.way == 3 and lanes > _MOST_LANES):
            raise Unproved(why)

    def _lane(self, s: Store, others: tuple[Store, ...], lane: int | None) -> None:
        terms = Terms()
        cells = _Cells(terms)
        new = Meaning(
            terms, dict.fromkeys(self.pairs.cells, cells.read), self.pairs.computed, self.cuts,
            self.way > 0,
        )  # fmt: skip
        at = self._digits(new, s.value.type.lanes, lane)

        def related(load: Load, index: Poly, where: Digits) -> Poly:
            return self._related(new, cells, load, index, where)

        old = Meaning(terms, dict.fromkeys(self.pairs.own, related), {}, self.cuts, self.way > 0)
        place, value = old.value(s.index, at).poly, old.value(s.value, at)
        wanted = value.poly if value.open else old.closed(value).poly
        held = None if s.predicate is None else old.value(s.predicate, at).poly
        own = s.buffer in self.pairs.own
        if not own and [t.buffer for t in others] != [s.buffer]:
            raise Unproved("stores to other buffers")
        for t in others:
            if t.value.type.lanes != s.value.type.lanes or (t.predicate is None) != (held is None):
                raise Unproved("stores of other lanes")
            self._same(terms, s, "an index", place, new.value(t.index, at).poly)
            if held is not None and t.predicate is not None:
                self._same(terms, s, "a predicate", held, new.value(t.predicate, at).poly)
            cells.state[t.buffer, place.key] = found = new.value(t.value, at).poly
            if not own:
                self._same(terms, s, "the value", wanted, found)
        if own:
            if not _injective(terms, place, at):
                raise Unproved("lanes of one cell")
            load = Load(s.value.type, s.buffer, s.index)
            self._same(terms, s, "the value", wanted, self._related(new, cells, load, place, at))

    def _digits(self, meaning: Meaning, lanes: int, lane: int | None) -> Digits:
        """Those of all lanes, or of the one, or of those with one phase."""
        at = meaning.digit("lane", lanes)
        if lane is None:
            return at
        if self.way == 3:
            return (Digit(number(lane), lanes),)
        return (Digit(number(lane), at[0].extent), *at[1:])

    def _related(self, new: Meaning, cells: _Cells, load: Load, index: Poly, where: Digits) -> Poly:
        """A cell of the scope as it was, by those of the changed one."""
        relations = self.pairs.relations.get(load.buffer, [])
        if not relations:
            return cells.read(load, index, where)
        own = [r for r in relations if r.index == load.index]
        chosen = (own or relations)[0]
        digits = where if own else new.digit("any", chosen.index.type.lanes)

        def there(e: Load, _index: Poly, _where: Digits) -> Poly:
            return cells.read(e, index, where)

        inner = Meaning(
            new.terms, dict.fromkeys(new.cells, there), {}, self.cuts, self.way > 0
        )  # fmt: skip
        return inner.value(chosen.value, digits).poly

    def _same(self, terms: Terms, s: Store, what: str, a: Poly, b: Poly) -> None:
        """Two values, with the sums in them summand by summand."""
        for atom in {x for p in (a, b) for x in terms.inside(p) if x.kind == "sum"}:
            mark = terms.atom("sum", *atom.args)
            (own, a), (other, b) = terms.parts(a, mark), terms.parts(b, mark)
            if not (own.terms and other.terms):
                raise OneByOne
            self._same_part(terms, s, what, own, other)
        self._same_part(terms, s, what, a, b)

    def _same_part(self, terms: Terms, s: Store, what: str, a: Poly, b: Poly) -> None:
        found = terms.equal(a, b)
        if found:
            if self.way == 0:
                raise OneByOne
            raise Refuted(f"{what} of `{s.buffer}`", found)

    def one_value(self, relations: list[Relation]) -> None:
        """A cell has one value, whichever of the reads it is seen by."""
        if all(r.is_uniform for r in relations):
            if len({_shape(r.value) for r in relations}) > 1:
                raise Unproved("cells that are read in several ways")
            return
        if len(relations) > 1:
            raise Unproved("cells that are read in several ways")
        (only,) = relations
        terms = Terms()
        for _ in range(_MOST_CUTS):
            try:
                meaning = Meaning(terms, cuts=self.cuts)
                at = meaning.digit("lane", only.index.type.lanes)
                if not _injective(terms, meaning.value(only.index, at).poly, at):
                    raise Unproved("lanes of one cell")
                return
            except LaneCut as cut:
                self.cuts[cut.digit] = tuple(sorted({*self.cuts.get(cut.digit, ()), cut.end}))
            except OneByOne:
                break
        raise Unproved("lanes that are nested in no one way")


def _injective(terms: Terms, place: Poly, at: Digits) -> bool:
    """Whether lanes are cells of their own: by strides that are larger than what is below."""
    reach = 0
    steps: list[tuple[int, int]] = []
    for d in at:
        if d.value.constant is not None:
            return True
        step, _ = terms.parts(place, d.value)
        if not isinstance(step.constant, int) or step.constant == 0:
            return False
        steps.append((abs(step.constant), d.extent))
    for step, extent in sorted(steps):
        if step <= reach:
            return False
        reach += step * (extent - 1)
    return True


def _shape(e: Expr) -> object:
    """A value of every lane, however many there are."""
    match e:
        case Load(_, buffer):
            return buffer
        case Broadcast(value) if value.type.lanes == 1:
            return value
        case _ if e.type.lanes == 1 and not holds(e, Load):
            return e
        case _:
            return type(e), getattr(e, "op", None), *map(_shape, expr_children(e))
