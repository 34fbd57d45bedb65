"""Instruction selection for a module: scopes -> e-graphs -> instructions, with a report.

``select`` is a pure function of module, target and options.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from selector.dataclass import dataclass
from selector.eqsat.conditions.registers import too_many
from selector.eqsat.cost import block_cost, total_cost
from selector.eqsat.decode import Decoder
from selector.eqsat.diagnose import Miss, diagnose
from selector.eqsat.facts import EXECUTES, instruction_facts, legal_instructions
from selector.eqsat.reporting import describe, merge_reports, raise_miss, without_movement
from selector.eqsat.saturate import Engine, Saturation
from selector.eqsat.scopes import Scope, open_scope
from selector.eqsat.solve import Solution, choose, saturated, solve
from selector.intrinsics import TensorInstruction
from selector.ir.module import Module
from selector.ir.nodes import Allocate, Memory, Stmt, Store
from selector.ir.traverse import change_stmts, map_stmt, walk_stmt
from selector.operands.accumulators import is_tensor, touches_tensor
from selector.operands.computed import compute_operands
from selector.operands.computed_values import Computed
from selector.operands.decoded import as_decoded, as_stored
from selector.operands.expand import expand, split_sums
from selector.operands.gains import factor_gains
from selector.operands.movement import annotate_movement
from selector.operands.prepare import prepare
from selector.operands.slices import slice_reductions
from selector.report import Report, Search, StatementReport
from selector.targets import Target


@dataclass(frozen=True, slots=True)
class Selection:
    """The module with instructions in place of tensor statements, and what was done to each."""

    module: Module
    reports: tuple[StatementReport, ...]
    searches: tuple[Search, ...] = ()

    @property
    def report(self) -> Report:
        return Report(self.reports, searches=self.searches)


def select(
    module: Module,
    target: Target,
    strict: bool = True,
    instructions: Iterable[str] | None = None,
    engine: Engine | None = None,
) -> Selection:
    """Put tensor instructions where allocations in tensor memory ask for them.

    ``instructions`` restricts the candidates to families ("wmma", "mma") or names; ``engine`` has
    other rules than ours, and knows the instructions. In strict mode a
    statement that cannot be mapped raises ``SelectionError``; otherwise its whole scope stays plain
    code in ordinary memory, and is reported.
    """
    only = None if instructions is None else tuple(instructions)
    selector = _Selector(module, target, legal_instructions(target, only), strict, engine)
    body = selector.stmt(annotate_movement(module.body))
    searches = tuple(Search(s.rows, s.rounds, s.seconds) for s in selector.searched.values())
    return Selection(replace(module, body=body), merge_reports(selector.reports), searches)


@dataclass(frozen=True, slots=True)
class SolvedScope:
    """A scope in the form in which it was solved, for who looks at a selection from outside."""

    scope: Scope
    solution: Solution
    misses: tuple[Miss, ...]


def solved_scopes(
    module: Module,
    target: Target,
    instructions: Iterable[str] | None = None,
    engine: Engine | None = None,
) -> tuple[SolvedScope, ...]:
    """The scopes of a module in program order, solved; ``engine`` has other rules than ours."""
    only = None if instructions is None else tuple(instructions)
    selector = _Selector(module, target, legal_instructions(target, only), False, engine)
    found: list[SolvedScope] = []

    def stmt(s: Stmt) -> Stmt:
        if isinstance(s, Allocate) and is_tensor(s):
            found.append(SolvedScope(*selector.attempt(s)))
            return s
        return map_stmt(s, stmt, lambda e: e)

    stmt(annotate_movement(module.body))
    return tuple(found)


MOST_STATEMENTS = 1024
"""Of a scope that is tried in other words."""

Attempt = tuple[Scope, Solution, tuple[Miss, ...]]
Prepared = tuple[Allocate, Mapping[str, Computed]]


class _Selector:
    """One run over a module; ``reports`` grows in program order."""

    def __init__(
        self,
        module: Module,
        target: Target,
        legal: tuple[TensorInstruction, ...],
        strict: bool,
        engine: Engine | None = None,
    ) -> None:
        self.module, self.target, self.legal, self.strict = module, target, legal, strict
        self.engine = engine
        self.facts = instruction_facts(executing(legal, module))
        self.reports: list[StatementReport] = []
        self.entries: dict[object, list[int]] = {}
        self.searched: dict[tuple[str, ...], Saturation] = {}

    def stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, Allocate) and is_tensor(s):
            return self.scope(s)
        return map_stmt(s, self.stmt, lambda e: e)

    def scope(self, allocation: Allocate) -> Stmt:
        """A tensor allocation and everything in it."""
        scope, solution, misses = self.attempt(allocation)
        if misses and self.strict:
            raise_miss(self.module, scope, misses, solution.saturation.capped)
        self.describe(scope, solution, misses)
        self.searched.setdefault(solution.statements, solution.saturation)
        return _plain(allocation) if misses else _rewritten(scope, solution)

    def attempt(self, allocation: Allocate) -> Attempt:
        """The scope as it is prepared, with decoded bytes as elements if some are multiplied so; if
        that has no instructions, in parts of one stride, whichever takes least; or in other words.
        Misses are those of the first."""
        prepared = prepare(allocation)
        decoded = as_decoded(prepared, self.legal)
        first = self.solved(decoded or prepared, decoded=decoded is not None)
        if not first[2]:
            return first
        sliced = tuple(slice_reductions(prepared))
        solved = [self.solved(other) for other in sliced]
        found = [s for s in solved if not s[2]]
        if found:
            return min(found, key=lambda s: _cost(s[0], s[1]))
        other = (a for changed in self.otherwise(prepared) for a in [self.solved(*changed)])
        return next((a for a in other if not a[2]), first)

    def otherwise(self, prepared: Allocate) -> Iterator[Prepared]:
        """A scope in other words, those first that take least: its taps computed, an accumulator
        for each factor, its operands computed, its products expanded."""
        if sum(isinstance(s, Store) for s in walk_stmt(prepared.body)) > MOST_STATEMENTS:
            return
        legal = executing(self.legal, self.module)
        expanded = expand(prepared)
        others = (factor_gains(prepared), None if expanded is None else prepare(expanded))
        for form in (prepared, *others):
            if form is None:
                continue
            if form is not prepared:
                yield form, {}
            split = split_sums(form)
            forms = [f for f in (form, split) if f is not None]
            forms += [s for f in forms for s in slice_reductions(f)]
            for taps_only in (True, False):
                if not taps_only and split is not None:
                    yield split, {}
                for f in forms:
                    changed = compute_operands(f, legal, taps_only)
                    if changed is not None:
                        yield changed

    def solved(
        self,
        allocation: Allocate,
        computed: Mapping[str, Computed] | None = None,
        *,
        decoded: bool = False,
    ) -> Attempt:
        scope = open_scope(allocation, computed, decoded=decoded)
        if self.engine is None:
            solution = solve(scope.distinct, self.facts)
        else:
            graph, saturation = saturated(scope.distinct, self.engine)
            facts, rules = self.engine.facts, self.engine.rules
            solution = Solution(scope.distinct, *choose(graph), saturation, facts, rules)
        return scope, solution, self.misses(scope, solution)

    def describe(self, scope: Scope, solution: Solution, misses: tuple[Miss, ...]) -> None:
        """Report entries of a scope; an unrolled copy of an earlier scope is only counted."""
        key = (solution.statements, tuple(s.buffer for s in scope.stores), bool(misses))
        start = len(self.reports)
        if key not in self.entries:
            self.reports += describe(self.module, scope, solution, misses)
            self.entries[key] = list(range(start, len(self.reports)))
            return
        copies = Counter(k.term for k in scope.skeletons).values()
        for i, count in zip(self.entries[key], copies, strict=True):
            known = self.reports[i]
            self.reports[i] = replace(known, copies=known.copies + count)

    def misses(self, scope: Scope, solution: Solution) -> tuple[Miss, ...]:
        """Why statements of the scope are not mapped, in program order; empty if all are."""
        numbers = [solution.index[k.term] for k in scope.skeletons]
        missing = [
            diagnose(scope, i, solution.shapes[n], self.legal, self.target, self.module.origins)
            for i, n in enumerate(numbers)
            if solution.terms[n] is None
        ]
        strays = [s for s in walk_stmt(scope.allocation.body) if _stray(s)]
        misses = (*missing, *(Miss.stray(s) for s in strays))
        if misses or not scope.stores:
            return misses
        crowded = too_many(scope, [solution.terms[n] for n in numbers], self.module.origins)
        return () if crowded is None else (crowded,)


def executing(
    legal: tuple[TensorInstruction, ...], module: Module
) -> tuple[TensorInstruction, ...]:
    """Those of the instructions whose accumulators live in memory that the module allocates; all
    of them for a module without accumulators."""
    memories = {s.memory for s in walk_stmt(module.body) if isinstance(s, Allocate)}
    families = {f for m in memories for f in EXECUTES.get(m.location, ())}
    return tuple(i for i in legal if i.family in families) if families else legal


def _cost(scope: Scope, solution: Solution) -> tuple[int, ...]:
    """Cost of all instructions of a scope."""
    terms = [solution.terms[solution.index[k.term]] for k in scope.skeletons]
    blocks = [t[3] for t in terms if t is not None]
    return total_cost(
        block_cost(b) for b in blocks if isinstance(b, tuple) and b[0] == "MultiplyAdd"
    )


def _rewritten(scope: Scope, solution: Solution) -> Stmt:
    """The scope's allocation with the selected statements."""
    skeletons = iter(scope.skeletons)

    def rewrite(s: Stmt) -> Stmt | None:
        if not isinstance(s, Store) or not touches_tensor(s):
            return None
        skeleton = next(skeletons)
        term = solution.terms[solution.index[skeleton.term]]
        assert term is not None
        decoder = Decoder(skeleton.symbols, skeleton.buffers, scope.computed)
        found = decoder.store(term)
        return as_stored(found) if scope.decoded else found

    return replace(scope.allocation, body=change_stmts(scope.allocation.body, rewrite))


def _stray(s: Stmt) -> bool:
    """Tensor memory read outside of a store."""
    return not isinstance(s, Store) and touches_tensor(s)


def _plain(allocation: Allocate) -> Stmt:
    """A scope left as it was, its accumulators in ordinary memory."""

    def demote(s: Stmt) -> Stmt:
        if isinstance(s, Allocate) and is_tensor(s):
            s = replace(s, memory=Memory.AUTO)
        return map_stmt(s, demote, lambda e: e)

    return demote(without_movement(allocation))
