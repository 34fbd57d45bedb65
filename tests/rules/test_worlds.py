"""What the names of a graph stand for where its rules are checked."""

from __future__ import annotations

import dataclasses

import numpy as np
from soundness_programs import engine

from selector.eqsat.extract import read_graph
from selector.eqsat.valuation import World


def test_values_do_not_depend_on_how_a_graph_is_numbered():
    """What a name stands for follows from the names alone: a finding comes again in any process."""
    loads = [
        f'(Load "float16" "b{i}" (Ramp (Sym "s{i}") (Atom "int32" 1 "a{i}") 16) (Always 16))'
        for i in range(6)
    ]

    def world(order: list[int]) -> World:
        with engine().saturated([f"(let $load{i} {loads[i]})" for i in order]):
            graph = read_graph(engine().graph, 0)
        turned = dataclasses.replace(graph, nodes=graph.nodes[:: 1 if order[0] == 0 else -1])
        return World(turned, np.random.default_rng(0))

    one, other = world([0, 1, 2, 3, 4, 5]), world([5, 3, 1, 0, 2, 4])
    assert len(one.frame.variables) == 12
    for name, values in one.frame.variables.items():
        np.testing.assert_array_equal(values, other.frame.variables[name])
    for i in range(6):
        (mine,), (its,) = one.memory(f"b{i}"), other.memory(f"b{i}")
        np.testing.assert_array_equal(mine.data, its.data)
