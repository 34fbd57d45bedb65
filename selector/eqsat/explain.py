"""Which rules a result needs: greedy removal, on request only.

One rule after the other is taken away; if the same programs still come out, it stays away. What remains is a
minimal (not smallest) set. Only rules that matched are tried, which keeps it near a second.
"""

from __future__ import annotations

from selector.eqsat.decode import Term
from selector.eqsat.encode import encode_store
from selector.eqsat.extract import Graph, read_graph
from selector.eqsat.saturate import Engine, Saturation
from selector.ir.nodes import Store


def minimal_rules(
    statements: tuple[Store, ...],
    terms: tuple[Term | None, ...],
    facts: str,
    saturation: Saturation,
) -> tuple[str, ...]:
    """A minimal set of named rules with which saturation still gives ``terms``."""
    from selector.eqsat.select import choose

    encoded = [encode_store(s) for s in statements]

    def result(without: frozenset[str]) -> tuple[Term | None, ...]:
        engine = Engine(facts, without)
        with engine.scope(encoded):
            graph: Graph = read_graph(engine.graph, len(statements))
        return choose(statements, graph)[0]

    fired = sorted(r for r, n in saturation.matches.items() if n)
    silent = frozenset(r for r, n in saturation.matches.items() if not n)
    removed = silent
    for rule in fired:
        if result(removed | {rule}) == terms:
            removed |= {rule}
    return tuple(r for r in fired if r not in removed)
