"""A test for a rule that was found: a graph in which it fires, and a close one in which not."""

from __future__ import annotations

from collections.abc import Iterator

from selector.eqsat.decode import Term
from selector.workbench.bench import Bench
from selector.workbench.cases import read_cases
from selector.workbench.infer.candidates import Candidate
from selector.workbench.infer.patterns import show
from selector.workbench.ruleset import RuleFiles

_SWAPPED = {
    "+": "-", "-": "+", "*": "+", "/": "%", "%": "/", "min": "max", "max": "min",
    "<": "==", "<=": "==", ">": "==", ">=": "==", "==": "<", "!=": "<", "&&": "||", "||": "&&",
}  # fmt: skip


def test_of(found: Candidate, files: RuleFiles) -> str:
    """The text of its tests; of the second only where one was found."""
    bench = Bench((*files, ("found.egg", f"{found.law}\n{found.rule}\n")))
    left, right = show(found.left), show(found.right)
    fires = f"; [{found.name}] fires\n(let $term {left})\n(check (= $term {right}))\n"
    if not _passes(bench, fires):
        return ""
    for about, near in _near(found.left):
        silent = (
            f"; [{found.name}] must not fire: {about}\n"
            f"(let $term {show(near)})\n(fail (check (= $term {right})))\n"
        )
        if _passes(bench, silent):
            return f"{fires}\n{silent}"
    return fires


def _passes(bench: Bench, text: str) -> bool:
    (case,) = read_cases(text, "found.egg")
    return bench.run(case).passed


def _near(term: Term) -> Iterator[tuple[str, Term]]:
    """Terms with another literal or operator in one place, outermost first."""
    match term:
        case ("Int", int(value)):
            yield f"{value + 1}, not {value}", ("Int", value + 1)
        case ("FLit", str(t), float(value)):
            yield f"{value + 1}, not {value}", ("FLit", t, value + 1)
        case ("Bop" | "Cmp", str(op), *rest):
            yield f"`{_SWAPPED[op]}`, not `{op}`", (term[0], _SWAPPED[op], *rest)
        case ("Not", tuple(inner)):
            yield "it is not turned", inner
        case _:
            pass
    for i, part in enumerate(term):
        if isinstance(part, tuple):
            for about, other in _near(part):
                yield about, (*term[:i], other, *term[i + 1 :])
