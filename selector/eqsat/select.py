"""Instruction selection for a module: scopes -> e-graphs -> instructions, with a report.

``select`` is a pure function of module, target and options. What was selected once in a process is remembered by
skeleton, so unrolled programs and repeated compilations stay cheap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from selector.eqsat.decode import Decoder, Term
from selector.eqsat.diagnose import Miss, diagnose
from selector.eqsat.explain import minimal_rules
from selector.eqsat.extract import Graph, Shape, common_shape, read_graph
from selector.eqsat.facts import instruction_facts, legal_instructions
from selector.eqsat.reporting import describe, raise_miss
from selector.eqsat.cost import IMPOSSIBLE
from selector.eqsat.saturate import Saturation, engine_for
from selector.eqsat.encode import encode_store
from selector.eqsat.scopes import Scope, direct_exprs, is_tensor, open_scope, touches_tensor
from selector.intrinsics import TensorInstruction
from selector.ir.nodes import Allocate, Evaluate, LocToLoc, Memory, Module, Stmt, Store
from selector.ir.traverse import map_stmt, walk_stmt
from selector.lowering.movement import annotate_movement
from selector.report import Report, StatementReport
from selector.targets import Target


@dataclass(frozen=True, slots=True)
class Selection:
    """The module with instructions in place of tensor statements, and what was done to each."""

    module: Module
    reports: tuple[StatementReport, ...]

    @property
    def report(self) -> Report:
        return Report(self.reports)


@dataclass(frozen=True)
class Solution:
    """What saturation found for the distinct statements of a scope: a Store term each, None for a miss."""

    statements: tuple[Store, ...]
    terms: tuple[Term | None, ...]
    shapes: tuple[frozenset[Shape], ...]
    saturation: Saturation
    facts: str

    @cached_property
    def rules(self) -> tuple[str, ...]:
        """The rules that matched, without those that only ask questions or know facts."""
        return tuple(sorted(r for r, n in self.saturation.matches.items() if n and _telling(r)))

    def decoded(self, index: int) -> Store:
        """A selected statement over the symbols of its skeleton."""
        term = self.terms[index]
        assert term is not None
        return Decoder().store(term)

    @cached_property
    def minimal(self) -> tuple[str, ...]:
        """A minimal set of rules with the same result."""
        return minimal_rules(self.statements, self.terms, self.facts, self.saturation)


_PLUMBING = (
    "and-", "band-", "block-", "convolve-ask", "convolve-masks", "demand-", "fold-", "gcd-",
    "lanes-", "mask-", "scaled-", "true-", "want-", "zero-",
)  # fmt: skip


def _telling(rule: str) -> bool:
    return not rule.startswith(_PLUMBING)


_solutions: dict[tuple[tuple[Store, ...], str], Solution] = {}
_MOST_SOLUTIONS = 4096


def select(
    module: Module,
    target: Target,
    strict: bool = True,
    instructions: Iterable[str] | None = None,
) -> Selection:
    """Put tensor instructions where allocations in tensor memory ask for them.

    ``instructions`` restricts the candidates to families ("wmma", "mma") or names. In strict mode a statement
    that cannot be mapped raises ``SelectionError``; otherwise its whole scope stays plain code in ordinary
    memory, and is reported.
    """
    only = None if instructions is None else tuple(instructions)
    legal = legal_instructions(target, only)
    selector = _Selector(module, target, legal, strict)
    body = selector.stmt(annotate_movement(module).body)
    return Selection(replace(module, body=body), tuple(selector.reports))


class _Selector:
    """One run over a module; ``reports`` grows in program order."""

    def __init__(
        self, module: Module, target: Target, legal: tuple[TensorInstruction, ...], strict: bool
    ) -> None:
        self.module, self.target, self.legal, self.strict = module, target, legal, strict
        self.facts = instruction_facts(legal)
        self.reports: list[StatementReport] = []

    def stmt(self, s: Stmt) -> Stmt:
        if isinstance(s, Allocate) and is_tensor(s):
            return self.scope(s)
        return map_stmt(s, self.stmt, lambda e: e)

    def scope(self, allocation: Allocate) -> Stmt:
        scope = open_scope(allocation)
        solution = solve(scope.distinct, self.facts)
        misses = self.misses(scope, solution)
        if misses and self.strict:
            raise_miss(self.module, scope, misses)
        self.reports += describe(self.module, scope, solution, misses)
        if misses:
            return _plain(allocation)
        found = dict(zip(solution.statements, solution.terms, strict=True))
        queue = iter(zip(scope.stores, scope.skeletons, strict=True))

        def rewrite(s: Stmt) -> Stmt:
            if isinstance(s, Store) and touches_tensor(s):
                store, skeleton = next(queue)
                assert store is s
                term = found[skeleton.store]
                assert term is not None
                return Decoder(skeleton.symbols, skeleton.buffers).store(term)
            return map_stmt(s, rewrite, lambda e: e)

        return replace(allocation, body=rewrite(allocation.body))

    def misses(self, scope: Scope, solution: Solution) -> tuple[Miss, ...]:
        """Why statements of the scope are not mapped, in program order; empty if all are."""
        found = dict(zip(solution.statements, solution.terms, strict=True))
        shapes = dict(zip(solution.statements, solution.shapes, strict=True))
        missing = [
            diagnose(scope, i, shapes[k.store], self.legal, self.target)
            for i, k in enumerate(scope.skeletons)
            if found[k.store] is None
        ]
        strays = [s for s in walk_stmt(scope.allocation.body) if _stray(s)]
        return (*missing, *(Miss.stray(s) for s in strays))


def _stray(s: Stmt) -> bool:
    """Tensor memory read outside of a store."""
    return not isinstance(s, Store) and any(isinstance(e, LocToLoc) for e in direct_exprs(s))


def _plain(s: Stmt) -> Stmt:
    """A scope left as it was, its accumulators in ordinary memory."""

    def expr(e):  # type: ignore[no-untyped-def]
        return e

    if isinstance(s, Allocate) and is_tensor(s):
        s = replace(s, memory=Memory.AUTO)
    return map_stmt(s, _plain, expr)


def solve(statements: tuple[Store, ...], facts: str) -> Solution:
    """Saturate and extract the distinct statements of a scope; remembered."""
    key = (statements, facts)
    if key not in _solutions:
        if len(_solutions) >= _MOST_SOLUTIONS:
            _solutions.clear()
        _solutions[key] = _solve(statements, facts)
    return _solutions[key]


def _solve(statements: tuple[Store, ...], facts: str) -> Solution:
    engine = engine_for(facts)
    with engine.scope([encode_store(s) for s in statements]) as saturation:
        graph = read_graph(engine.graph, len(statements))
    terms, shapes = choose(statements, graph)
    return Solution(statements, terms, shapes, saturation, facts)


def choose(
    statements: tuple[Store, ...], graph: Graph
) -> tuple[tuple[Term | None, ...], tuple[frozenset[Shape], ...]]:
    """The best Store term of each statement; updates of one accumulator share a shape."""
    options = [graph.blocks(i) for i in range(len(statements))]
    shapes: dict[str, Shape | None] = {}
    for buffer in dict.fromkeys(s.buffer for s in statements):
        mine = [o for o, s in zip(options, statements, strict=True) if s.buffer == buffer and o]
        shapes[buffer] = common_shape(mine)
    terms: list[Term | None] = []
    for i, s in enumerate(statements):
        shape = shapes[s.buffer]
        if options[i]:
            terms.append(options[i][shape][3] if shape is not None else None)
        else:
            plain = graph.plain(i)
            terms.append(plain[2] if plain is not None and plain[0] < IMPOSSIBLE else None)
    return tuple(terms), tuple(frozenset(o) for o in options)
