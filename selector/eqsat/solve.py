"""One scope: encode, saturate, extract, choose; remembered by skeleton.

What was solved once in a process is not solved again, so unrolled programs and repeated
compilations stay cheap.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property

from selector.dataclass import dataclass
from selector.diagnostics import InternalError
from selector.eqsat.blame import stopped
from selector.eqsat.cost import IMPOSSIBLE
from selector.eqsat.decode import Term
from selector.eqsat.explain import chain, is_telling, wanted
from selector.eqsat.extract import Graph, Shape, common_shape, read_graph
from selector.eqsat.saturate import Engine, Saturation, engine_for
from selector.eqsat.worlds import RuleFiles


@dataclass(frozen=True)
class Solution:
    """What saturation found for the distinct statements of a scope: a Store term each, None for a
    miss.

    ``statements`` are the encoded skeletons; ``shapes`` what each update could use; ``rules`` the
    rule files if they are not the standard ones.
    """

    statements: tuple[str, ...]
    terms: tuple[Term | None, ...]
    shapes: tuple[frozenset[Shape], ...]
    saturation: Saturation
    facts: str
    rules: RuleFiles | None = None
    chains: dict[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]], compare=False, repr=False
    )

    @cached_property
    def matched(self) -> tuple[str, ...]:
        """The rules that matched, without those that only ask questions or know facts."""
        return tuple(sorted(r for r, n in self.saturation.matches.items() if n and is_telling(r)))

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of an encoded skeleton."""
        return {s: i for i, s in enumerate(self.statements)}

    def chain(self, index: int) -> tuple[str, ...]:
        """The rules that led to a selected update, in the order in which they apply; empty for
        fills, reads and plain statements. Of statements that differ in the name of their
        accumulator only, one is looked at."""
        term, statement = self.terms[index], self.statements[index]
        result = None if term is None else wanted(term)
        if term is None or result is None:
            return ()
        alike = statement.replace(f'"{term[1]}"', '"accumulator"')
        if alike not in self.chains:
            found = chain(statement, self.facts, result, self.saturation, self.rules)
            self.chains[alike] = found
        return self.chains[alike]


_solutions: dict[tuple[tuple[str, ...], str], Solution] = {}
_MOST_SOLUTIONS = 4096


def forget() -> None:
    """Empty the memo table."""
    _solutions.clear()


def solve(statements: tuple[str, ...], facts: str) -> Solution:
    """Saturate and extract the distinct statements of a scope."""
    key = (statements, facts)
    if key not in _solutions:
        if len(_solutions) >= _MOST_SOLUTIONS:
            forget()
        graph, saturation = saturated(statements, engine_for(facts))
        _solutions[key] = Solution(statements, *choose(graph), saturation, facts)
    return _solutions[key]


def saturated(statements: tuple[str, ...], engine: Engine) -> tuple[Graph, Saturation]:
    """The graph of encoded statements after all phases, read out.

    InternalError that names the rule and its file if an unsound rule stopped the engine.
    """
    try:
        with engine.scope(statements) as saturation:
            return read_graph(engine.graph, len(statements)), saturation
    except InternalError as error:
        commands = [f"(set (statement {i}) {s})" for i, s in enumerate(statements)]
        raise stopped(error, commands, engine) from error


def _is_possible(graph: Graph, statement: int, plain: tuple[int, str, Term]) -> bool:
    """Whether a statement without an instruction can be executed: no movement is left over, and no
    reduction but of what a read-out makes of its tiles.
    """
    if plain[0] < IMPOSSIBLE:
        return True
    return not graph.is_accumulator(statement) and not _holds(plain[2], "Move")


def _holds(term: object, name: str) -> bool:
    """Whether a constructor occurs in a term."""
    return isinstance(term, tuple) and (term[:1] == (name,) or any(_holds(t, name) for t in term))


def choose(graph: Graph) -> tuple[tuple[Term | None, ...], tuple[frozenset[Shape], ...]]:
    """The best Store term of each statement; updates of one accumulator share a shape.

    Statements of an accumulator into which nothing is multiplied have no term: a tensor unit's
    memory without a tensor instruction is a mistake, not a place to keep vectors.
    """
    count = range(len(graph.statements))
    options = [graph.blocks(i) for i in count]
    buffers = [graph.buffer(i) for i in count]
    shapes = {
        buffer: common_shape(o for o, b in zip(options, buffers, strict=True) if b == buffer and o)
        for buffer in dict.fromkeys(buffers)
    }
    terms: list[Term | None] = []
    for i in count:
        shape = shapes[buffers[i]]
        if options[i]:
            terms.append(options[i][shape][3] if shape is not None else None)
        elif shape is None and graph.is_accumulator(i):
            terms.append(None)
        else:
            plain = graph.plain(i)
            possible = plain is not None and _is_possible(graph, i, plain)
            terms.append(plain[2] if plain is not None and possible else None)
    return tuple(terms), tuple(frozenset(o) for o in options)
