"""Laws by examples: what is drawn is what is computed, of every rule."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from workbench_command import Rules

from selector.ir.contents import nodes_of
from selector.ir.nodes import Call, Expr, Load, Store, Var
from selector.workbench.cases import Case, load
from selector.workbench.laws import Memory, decoded, terms_of
from selector.workbench.nests import drawn
from selector.workbench.ruleset import read_rules, standard_files

pytestmark = pytest.mark.verified

CASES = load()


def expressions(case: Case) -> list[Expr]:
    """The vectors that a test names."""
    found = [decoded(t) for t in terms_of(case).values()]
    return [e for e in found if e is not None and not isinstance(e, Store) and no_call(e)]


def no_call(e: Expr) -> bool:
    return not any(nodes_of(e, Call))


def python(text: str) -> str:
    """A lane in Python: ``sum(k < 2: body)`` is a sum over a range."""
    while found := re.search(r"(sum|max|min)\(((?:[a-z]'* < \d+(?:, )?)+): ", text):
        depth, end = 1, found.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        loops = " ".join(
            f"for {name} in range({n})" for name, n in re.findall(r"(\S+) < (\d+)", found[2])
        )
        body = text[found.end() : end - 1]
        text = f"{text[: found.start()]}{found[1]}_([{body} {loops}]){text[end:]}"
    text = (
        text.replace("&&", "and").replace("||", "or").replace("!", "not ").replace(" not =", "!=")
    )
    return re.sub(r"(?<=[\w)]) ?/ ?(?=[\w(])", "//", text)


@dataclass(frozen=True)
class Beyond:
    """Memory that is zero beyond its ends."""

    data: Any

    def __getitem__(self, i: int) -> float:
        return float(self.data[i]) if 0 <= i < len(self.data) else 0.0


def computed(lines: list[str], memory: Memory) -> list[float]:
    """What the drawn loops compute."""
    names: dict[str, Any] = {"sum_": sum, "max_": max, "min_": min, "min": min, "max": max}
    for name in ("float16", "float32", "float64", "bfloat16"):
        names[name] = float
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool"):
        names[name] = int
    for name, value in memory.frame.variables.items():
        names[name] = value[0] if value.shape[1] > 1 else value[0, 0]
    for name, buffer in memory.frame.buffers.items():
        names[name] = Beyond(buffer.data[0])
    if len(lines) == 1:
        return [float(eval(python(lines[0]), names))]
    extents = re.findall(r"(\S+) < (\d+)", lines[0])
    code = compile(python(lines[1].split(" = ", 1)[1]), "drawn", "eval")
    found = [{}]
    for name, n in extents:
        found = [{**at, name: i} for at in found for i in range(int(n))]
    return [float(eval(code, names | at)) for at in found]


def test_what_is_drawn_is_what_is_computed() -> None:
    compared = 0
    for case in CASES:
        for e in expressions(case):
            integers = all(x.type.element.bits == 32 for x in nodes_of(e, Load))
            memory = Memory()
            values = memory.values(e)
            if len(values) > 2048 or not (integers or e.type.element.is_float):
                continue
            lines = list(drawn(e))
            if re.search(r"[/%] -", lines[-1]):  # Python's quotient by a negative is another
                continue
            np.testing.assert_allclose(computed(lines, memory), values, err_msg="\n".join(lines))
            compared += 1
    assert compared > 300


def test_every_rule_has_an_example() -> None:
    from selector.workbench.laws import explained

    files = standard_files()
    for rule in read_rules(files):
        found = explained(rule, files, CASES)
        assert found.examples, rule.name
        assert rule.law in str(found)


def test_a_law(rules: Rules) -> None:
    done = rules("explain", "matmul")
    assert done.code == 0
    assert "[i, j] = sum(k < 2: float32(A[a + k + s*i])*float32(B[b + t*k + j]))" in done.out
    assert "matmul r M N K A B type-A type-B type-C: r = A * B" in done.out


def test_a_rule_of_ones_own(rules: Rules, tmp_path: Path) -> None:
    own = tmp_path / "own.egg"
    own.write_text(
        '; [own] fires\n(let $term (Bop "-" (Ramp (Sym "a") (Int 1) 4) (Broadcast (Int 0) 4)))\n'
        '(check (= $term (Ramp (Sym "a") (Int 1) 4)))\n'
        "; x - x0 -> x\n"
        '(rewrite (Bop "-" x (Broadcast (Int 0) n)) x :ruleset axioms :name "own")\n'
    )
    done = rules("explain", "own", "--rules", str(own))
    assert done.code == 0, done.err
    assert "[i] = a + i" in done.out


def test_a_rule_that_there_is_not(rules: Rules) -> None:
    done = rules("explain", "matmull")
    assert done.code != 0
    assert "rules like it: matmul" in done.err


@pytest.mark.parametrize("extents", [(3, 2), (4, 3)])
def test_lanes_that_do_not_divide_each_other(extents: tuple[int, int]) -> None:
    """A sum of two vectors of other loops is over one loop."""
    from selector.ir.kinds import BinaryOp
    from selector.ir.nodes import Binary, Broadcast, IntImm, Ramp

    n, m = extents
    a = Ramp(Broadcast(Var("a"), n), Broadcast(IntImm(1), n), m)
    b = Ramp(Broadcast(Var("b"), m), Broadcast(IntImm(1), m), n)
    e = Binary(BinaryOp.ADD, a, b)
    memory = Memory()
    values = memory.values(e)
    assert computed(list(drawn(e)), memory) == values
