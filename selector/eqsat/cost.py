"""What is preferred: the one table of costs.

A multiply-add block is compared first by the multiply-adds it issues (padding included), then by
the number of instructions, then by whether its depth is whole groups of a packed operand, then by
the order of the instruction table. Everything else is compared by size.
"""

from __future__ import annotations

from collections.abc import Iterable

from selector.intrinsics import INSTRUCTIONS, find

IMPOSSIBLE = 1 << 40
"""The cost of what no unit can do: a movement left over, a reduction outside an instruction."""

NODE: dict[str, int] = {
    "Move": IMPOSSIBLE,
    "Reduce": IMPOSSIBLE,
    "MultiplyAdd": IMPOSSIBLE,
    "Load": 8,
    "Select": 6,
    "RampV": 6,
    "Ramp": 4,
    "Bop": 3,
    "Matrix": 1,
    "Toeplitz": 2,
    "ToeplitzT": 2,
    "Vnni": 2,
}
"""Cost of a node by constructor; 1 for all others."""

_RANK = {i.name: rank for rank, i in enumerate(INSTRUCTIONS)}

BlockCost = tuple[int, int, int, int, int]


def block_cost(name: str, m: int, n: int, k: int) -> BlockCost:
    """Issued multiply-adds, instructions, depth beyond whole groups, rank of the instruction, rows
    of the block."""
    instruction = find(name)
    assert instruction is not None, name
    count = instruction.count(m, n, k)
    beyond = k % instruction.packing
    return (instruction.issued_macs(m, n, k), count, beyond, _RANK[name], m)


def total_cost(costs: Iterable[BlockCost]) -> tuple[int, ...]:
    """Cost of several blocks executed by one instruction shape."""
    blocks = tuple(costs)
    return (
        sum(c[0] for c in blocks),
        sum(c[1] for c in blocks),
        *(max(c[i] for c in blocks) for i in (2, 3, 4)),
    )
