"""Small programs with a hole, and whether what is put there is still recognised.

The instructions have the types of the real ones and 2 x 3 accumulators, so that a product has 30
lanes and no two of its extents are equal: nothing in the rules depends on sizes. A statement goes
the way of a selection: prepared, abstracted, all phases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from selector.dataclass import dataclass
from selector.diagnostics import InternalError
from selector.eqsat.decode import Decoder, Term
from selector.eqsat.extract import read_tables
from selector.eqsat.saturate import Engine
from selector.eqsat.scopes import open_scope
from selector.intrinsics import INSTRUCTIONS
from selector.ir.nodes import Allocate, IntImm, Memory
from selector.operands.prepare import prepare
from selector.operands.slices import slice_reductions
from selector.workbench.ruleset import RuleFiles

M, N, K = 2, 3, 5
LANES = M * N * K
_BATCH = 12
"""Programs that are asked about in one graph."""
_ASK = """
(relation selected! (i64))
(relation filled! (i64))
(ruleset asked!)
(rule ((= s (statement n)) (= s (Store b i (MultiplyAdd f M N K c x y) p))) ((selected! n))
      :ruleset asked! :name "selected!")
(rule ((= s (statement n)) (= s (Store b i (TileFill x) p))) ((filled! n))
      :ruleset asked! :name "filled!")
"""


def facts() -> str:
    """The instructions' types, with small shapes."""
    kinds = {(i.a_type, i.b_type, i.c_type): i.name for i in INSTRUCTIONS if i.family == "wmma"}
    lines = [
        f'(instruction "wmma" "{name}" {M} {N} "{a}" "{b}" "{c}") (packing "{name}" 1)'
        for (a, b, c), name in kinds.items()
    ]
    return "\n".join(lines)


def fill(term: Term, hole: Term, value: Term) -> Term:
    """A term with a value in the place of every ``hole``."""
    if term == hole:
        return value
    return tuple(fill(t, hole, value) if isinstance(t, tuple) else t for t in term)  # type: ignore[arg-type]


@dataclass
class Recogniser:
    """The rules, and what they recognise. ``extra`` are rules that were found and are loaded."""

    rules: RuleFiles
    without: frozenset[str] = frozenset()
    engine: Engine = field(init=False)
    asked: int = 0

    def __post_init__(self) -> None:
        self.engine = Engine(facts() + _ASK, self.without, rules=self.rules)

    def load(self, text: str) -> None:
        """Rules from now on."""
        self.engine.load("found", text)

    def ask(self, updates: Sequence[Term]) -> list[bool]:
        """Whether each update of an accumulator is selected."""
        found: list[bool] = []
        for start in range(0, len(updates), _BATCH):
            part = updates[start : start + _BATCH]
            try:
                found += self._asked(part)
            except InternalError:  # one of them stops the engine
                found += [self._alone(update) for update in part]
        self.asked += len(updates)
        return found

    def _alone(self, update: Term) -> bool:
        try:
            return self._asked([update])[0]
        except InternalError:
            return True  # of no use either way

    def _asked(self, updates: Sequence[Term]) -> list[bool]:
        forms = [_forms(update) for update in updates]
        numbers: dict[str, int] = {}
        for statement in (s for f in forms for statements in f for s in statements):
            numbers.setdefault(statement, len(numbers))
        with self.engine.scope(tuple(numbers)):
            self.engine.run("(run-schedule (run asked!))")
            tables = read_tables(self.engine.graph, ("selected!", "filled!"))
        selected = {row[0] for row in tables["selected!"]}
        done = selected | {row[0] for row in tables["filled!"]}
        return [
            any(
                all(numbers[s] in done for s in statements)
                and any(numbers[s] in selected for s in statements)
                for statements in f
            )
            for f in forms
        ]

    def helps(self, rule: str, update: Term) -> bool:
        """Whether an update is selected with one more rule."""
        self.engine.run("(push)")
        try:
            self.load(rule)
            return self._asked([update])[0]
        except InternalError:
            return False
        finally:
            self.engine.run("(pop)")

    def derives(self, a: str, b: str) -> bool:
        """Whether two terms become equal by themselves."""
        try:
            with self.engine.saturated([f"(let $one! {a})", f"(let $two! {b})"]):
                self.engine.run("(check (= $one! $two!))")
        except InternalError:
            return False
        return True


def _forms(update: Term) -> tuple[tuple[str, ...], ...]:
    """The statements of an update in all forms that a selection tries."""
    store = Decoder().store(update)
    memory = Memory.WMMA_ACCUMULATOR
    scope = Allocate("acc", store.value.type.element, (IntImm(M * N),), memory, store)
    prepared = prepare(scope)
    return tuple(open_scope(f).distinct for f in (prepared, *slice_reductions(prepared)))
