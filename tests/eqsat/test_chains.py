"""The chain of rules of a result: enough, without anything that could be left out, in order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from clock import assert_quick
from subsets import Subsets
from tensor_programs import SM80, Spec, convolution, matmul

import selector
from rules import laws, rule_files
from selector.eqsat import select
from selector.eqsat.explain import GROWTH, Wanted, irreducible, is_telling, minimal, wanted
from selector.eqsat.extract import read_graph
from selector.eqsat.facts import instruction_facts, legal_instructions
from selector.eqsat.saturate import Engine
from selector.eqsat.scopes import open_scope
from selector.eqsat.solve import Solution, forget, solve
from selector.ir.module import Module
from selector.ir.nodes import Allocate
from selector.ir.parser import parse_module
from selector.operands.movement import annotate_movement
from selector.operands.prepare import prepare
from selector.report import Report
from selector.targets import Target, find_target
from selector.workbench.ruleset import read_rules, standard_files

pytestmark = pytest.mark.verified

AMX = find_target("amx")
BF16 = Spec("bfloat16", "float32")


def on_amx(module: Module) -> Module:
    return parse_module(str(module).replace("WMMAAccumulator", "AMXTile"))


PROGRAMS: dict[str, tuple[Module, Target]] = {
    "matmul": (matmul(16, 16, 16), SM80),
    "matmul of columns": (matmul(32, 16, 32, a_layout="column", b_layout="column"), SM80),
    "matmul written flat": (matmul(16, 16, 16, style="flat", swapped=True), SM80),
    "convolution": (convolution(256, 8), SM80),
    "convolution, stride 2, dilation 3": (convolution(256, 8, stride=2, dilation=3), SM80),
    "convolution, reversed taps": (convolution(256, 8, reverse="K"), SM80),
    "bytes": (matmul(16, 16, 32, Spec("int8", "int32")), SM80),
    "swizzled matmul": (on_amx(matmul(16, 16, 32, BF16)), AMX),
    "swizzled convolution": (on_amx(convolution(256, 9, spec=BF16)), AMX),
}


def solved(name: str) -> tuple[Solution, int, Wanted]:
    """The solution of a program, the number of its update, and its result."""
    module, target = PROGRAMS[name]
    body = annotate_movement(module.body)
    assert isinstance(body, Allocate)
    scope = open_scope(prepare(body))
    solution = solve(scope.distinct, instruction_facts(legal_instructions(target)))
    results = [None if t is None else wanted(t) for t in solution.terms]
    (index,) = [i for i, r in enumerate(results) if r is not None]
    result = results[index]
    assert result is not None
    return solution, index, result


SUBSETS = Subsets(rule_files())
RULES = tuple(rule for rules in SUBSETS.rulesets.values() for rule in rules)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_chain_is_enough_and_nothing_of_it_can_go(name: str):
    solution, index, result = solved(name)
    chain = solution.chain(index)
    silent = frozenset(r for r in RULES if not is_telling(r))

    def selects(rules: frozenset[str]) -> bool:
        graph, run = SUBSETS.run(solution.statements[index], solution.facts, silent | rules)
        large = run.rows > GROWTH * solution.saturation.rows
        return result(graph) and not run.capped and not large

    assert selects(frozenset(chain))
    for rule in chain:
        assert not selects(frozenset(chain) - {rule}), f"{rule} can be left out"
    assert set(chain) <= set(solution.matched)


@pytest.mark.parametrize("name", ["convolution", "swizzled matmul"])
def test_engines_with_these_rules_alone_agree(name: str):
    solution, index, result = solved(name)
    chain = solution.chain(index)
    others = frozenset(r for r in RULES if is_telling(r)) - set(chain)

    def selects(without: frozenset[str]) -> bool:
        engine = Engine(solution.facts, without)
        with engine.scope([solution.statements[index]]):
            return result(read_graph(engine.graph, 1))

    assert selects(others)
    assert not selects(others | {chain[len(chain) // 2]})
    assert not selects(others | {chain[-1]})


def test_the_chain_tells_the_story_in_order():
    solution, index, _ = solved("convolution")
    chain = solution.chain(index)
    story = ("product", "tile", "convolve", "toeplitz", "multiply-add")
    assert [r for r in chain if r in story] == list(story)
    assert not {"matmul", "select-load"} & set(chain)
    again = Solution(solution.statements, solution.terms, solution.shapes, solution.saturation,
                     solution.facts)  # fmt: skip
    assert again.chain(index) == chain


def test_swizzles_are_in_the_story():
    solution, index, _ = solved("swizzled matmul")
    chain = solution.chain(index)
    story = ("product", "matmul", "swizzle", "multiply-add-packed")
    assert [r for r in chain if r in story] == list(story)


def test_laws_are_told_on_request():
    report = select(matmul(16, 16, 16), SM80).report
    (update,) = report.updates
    assert set(update.laws) == set(update.rules)
    text = report.text(laws=True)
    assert "reduce(cast(A) * cast(B)) is a product" in text
    assert laws()["matmul"] in text
    assert laws()["matmul"] not in str(report)
    data = json.loads(json.dumps(report.as_dict(laws=True)))
    assert data["statements"][1]["laws"]["matmul"] == laws()["matmul"]
    assert Report.from_dict(data) == report


def test_laws_are_those_of_the_files():
    assert laws() == {rule.name: rule.law for rule in read_rules(standard_files())}


def test_chains_travel_as_data():
    report = select(matmul(16, 16, 16), SM80).report
    data = json.loads(json.dumps(report.as_dict()))
    back = Report.from_dict(data)
    assert back.updates[0].rules == report.updates[0].rules
    assert set(back.updates[0].rules) < set(back.updates[0].matched)
    assert str(back) == str(report)


def test_temporaries_have_the_users_names():
    report = select(convolution(256, 8), SM80).report
    assert report.updates[0].temporaries == ("toeplitz 15 x 8 of K (stride 1, dilation 1)",)
    module, target = PROGRAMS["swizzled matmul"]
    (update,) = select(module, target).report.updates
    assert update.temporaries == ("32 x 16 in VNNI order (groups of 2) of B",)


def staged(module: Module) -> Module:
    """A product inside a kernel's block and warp, as it is compiled."""
    head, body = str(module).split("body {", 1)
    kernel = body.rstrip().removesuffix("}")
    loops = "gpu_block<CUDA> (block, 0, 1) {\ngpu_thread<CUDA> (warp, 0, 1) {"
    return parse_module(f"{head}body {{\n{loops}\n{kernel}\n}}\n}}\n}}")


def test_chains_are_found_once_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Their time is counted; a kernel that was found, or loaded, has them without a search."""
    module = staged(matmul(16, 16, 16, a_layout="column"))
    monkeypatch.setenv("SELECTOR_CACHE_DIR", str(tmp_path / "cache"))
    forget()
    first = selector.compile(module, "sm_80")
    assert list(first.stages) == ["verify", "select", "explain", "emit"]
    assert "explain" in str(first.report).splitlines()[-1]

    def not_again(*_: object) -> tuple[str, ...]:
        raise AssertionError("a chain was looked for twice")

    forget()
    monkeypatch.setattr("selector.eqsat.solve.chain", not_again)
    monkeypatch.setattr("selector.eqsat.solve.saturated", not_again)
    second = selector.compile(module, "sm_80")
    assert "cached" in second.stages
    chain = first.report.updates[0].rules
    assert "matmul" in chain
    assert second.report.updates[0].rules == chain
    first.save(tmp_path / "product.kernel")
    loaded = selector.load(tmp_path / "product.kernel")
    assert loaded.report.updates[0].rules == chain
    assert str(loaded.report) == str(first.report)


def test_a_report_is_quick() -> None:
    """A chain costs a few saturations, not one for each rule, and reading a report none."""
    selected = [select(matmul(16, 16, k), SM80).report for k in (16, 32, 48)]
    assert str(selected[0]), "what all share is loaded"
    assert_quick(lambda: forget() or str(select(convolution(256, 24), SM80).report), 0.110)
    report = selected[0]
    assert_quick(lambda: Report.from_dict(report.as_dict()).text(), 0.005)


def test_what_is_expected_does_not_change_a_chain() -> None:
    """Two of three ways lead to the result; the rules that are taken away first are not it."""
    order = ("a", "b", "c", "d", "e")
    ways = ({"a", "b"}, {"b", "d", "e"}, {"c", "d"})
    tried: list[int] = []

    def attempt(some: Sequence[frozenset[str]]) -> list[bool]:
        tried.append(len(some))
        return [any(way <= rules for way in ways) for rules in some]

    for expected in (set(order), {"b", "d", "e"}, set[str](), {"a", "b"}):
        assert minimal(order, expected, attempt) == {"c", "d"}
    tried.clear()
    assert minimal(order, {"c", "d"}, attempt) == {"c", "d"}
    assert tried == [3]
    assert minimal(("a", "e"), set(), attempt) is None


def test_rules_of_searches_that_grew_are_looked_at_again() -> None:
    """Without `a` alone the search grows, without `a` and `b` it does not."""

    def attempt(some: Sequence[frozenset[str]]) -> list[bool]:
        return ["d" in rules and ("a" in rules or "b" not in rules) for rules in some]

    kept = minimal(("a", "b", "c", "d"), set(), attempt)
    assert kept == {"a", "d"}
    assert irreducible(kept, ("a", "b", "c", "d"), attempt) == {"d"}


def test_a_search_too_large_has_no_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selector.eqsat.explain.MOST_ROWS", 1000)
    forget()
    (update,) = select(matmul(16, 16, 16), SM80).report.updates
    assert not update.rules
    assert "  matched add-commutes " in str(update)
    forget()


def test_rules_that_matched_are_printed_where_there_is_no_chain():
    report = select(matmul(16, 16, 16), SM80).report
    data = report.as_dict()
    data["statements"][1]["rules"] = []  # type: ignore[index]
    assert "  matched add-commutes " in str(Report.from_dict(data))
