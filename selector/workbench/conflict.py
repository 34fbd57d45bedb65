"""Which rule merged vectors of different length.

``lanes`` has no merge, so that an unsound union stops egglog, which does not say whose it was. The
run is repeated up to a step before the end; there each rule is matched without being believed:
its unions are written down as claims, the lanes of both sides are derived, and a claim whose sides
differ is the mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from selector.dataclass import dataclass
from selector.eqsat.bindings import egglog
from selector.eqsat.extract import read_graph
from selector.eqsat.saturate import Engine
from selector.eqsat.stepping import Step, run_text
from selector.workbench.cases import SCHEDULES, Case
from selector.workbench.ruleset import Rule
from selector.workbench.terms import cut, show_term

BACK = 10
"""Steps before the end in which the rule is looked for: lanes follow a union within a few."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The rule at fault, if it was found, and lines that show the two sides."""

    rule: Rule | None
    details: tuple[str, ...] = ()


def find_conflict(
    engine: Engine, case: Case, steps: Sequence[Step], rules: Mapping[str, Rule]
) -> Conflict:
    """The rule whose union made the graph of a test illegal. The graph on top of the engine's stack
    is thrown away, and a clean one left in its place.
    """
    for end in range(len(steps), max(-1, len(steps) - BACK), -1):
        _restart(engine, case, steps[:end])
        found = _claims(engine, list(rules.values()))
        if found is not None:
            return found
    _restart(engine, case, ())
    return Conflict(None)


def _restart(engine: Engine, case: Case, steps: Iterable[Step]) -> None:
    engine.run("(pop)")
    engine.run("(push)")
    for form in case.setup:
        if form.head not in SCHEDULES:
            run_text(engine.graph, form.text)
    for step in steps:
        run_text(engine.graph, f"(run-schedule (run {step.ruleset}))")


def _claims(engine: Engine, rules: Sequence[Rule]) -> Conflict | None:
    """Match every union on the graph as it is; the first whose sides differ in lanes."""
    for i, rule in enumerate(rules):
        for body, left, right in unions(engine.graph, rule):
            _claim(engine, i, body, left, right)
            break
    try:
        for _ in range(50):
            (output,) = run_text(engine.graph, "(run-schedule (run supporting))")
            assert isinstance(output, egglog.RunScheduleOutput)
            if not output.report.updated:
                break
    except egglog.EggSmolError:
        return None
    return _differing(engine, rules)


def _claim(engine: Engine, i: int, body: str, left: str, right: str) -> None:
    """Write down what a rule would union; nothing for a union of statements."""
    for text in (
        f"(relation claim-{i} (Expr Expr)) (ruleset claims-{i})",
        f'(rule ({body}) ((claim-{i} {left} {right})) :ruleset claims-{i} :name "claim-{i}")',
        f"(run-schedule (run claims-{i}))",
    ):
        try:
            run_text(engine.graph, text)
        except egglog.EggSmolError:
            return


def _differing(engine: Engine, rules: Sequence[Rule]) -> Conflict | None:
    functions = engine.graph.freeze().functions
    lanes = {r.inputs[0]: engine.graph.value_to_i64(r.output) for r in functions["lanes"].rows}
    graph = read_graph(engine.graph, 0)
    for i, rule in enumerate(rules):
        table = functions.get(f"claim-{i}")
        for row in table.rows if table is not None else ():
            left, right = row.inputs
            if left in lanes and right in lanes and lanes[left] != lanes[right]:
                sides = [
                    f"{lanes[v]} lanes: {cut(show_term(graph.best[v][2]))}"
                    for v in (left, right)
                    if v in graph.best
                ]
                return Conflict(rule, tuple(sides))
    return None


def unions(graph: egglog.EGraph, rule: Rule) -> Iterator[tuple[str, str, str]]:
    """(body, left, right) of every union that a rule makes between expressions, as text."""
    (command,) = graph.parse_program(rule.form.text)
    match command:
        case egglog.RewriteCommand() | egglog.BiRewriteCommand():
            made = command.rewrite
            conditions = " ".join(map(str, made.conditions))
            yield f"(= lhs0 {made.lhs}) {conditions}", "lhs0", str(made.rhs)
        case egglog.RuleCommand():
            body = " ".join(map(str, command.rule.body))
            for action in command.rule.head:
                if isinstance(action, egglog.Union):
                    yield body, str(action.lhs), str(action.rhs)
        case _:
            pass
