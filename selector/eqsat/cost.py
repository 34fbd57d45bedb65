"""What is preferred: the one table of costs.

A multiply-add block is compared first by the multiply-adds it issues (padding included, and more
where an operand has to be gathered), then by the number of instructions, then by whether its depth
is whole groups of a packed operand, then by the order of the instruction table. Everything else is
compared by size.
"""

from __future__ import annotations

from collections.abc import Iterable

from selector.eqsat.decode import Term
from selector.intrinsics import INSTRUCTIONS, TensorInstruction, find

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

GATHERED = 4
"""Instructions that could be issued while the operand of one is gathered element by element."""

_RANK = {i.name: rank for rank, i in enumerate(INSTRUCTIONS)}

BlockCost = tuple[int, int, int, int, int]


def block_cost(block: Term) -> BlockCost:
    """Issued multiply-adds, instructions, depth beyond whole groups, rank of the instruction, rows
    of a ``MultiplyAdd``."""
    assert isinstance(block, tuple)
    _, name, m, n, k, _, a, b = block
    assert isinstance(name, str)
    assert isinstance(m, int)
    assert isinstance(n, int)
    assert isinstance(k, int)
    instruction = find(name)
    assert instruction is not None, name
    count = instruction.count(m, n, k)
    beyond = k % instruction.packing
    gathered = any(_is_gathered(operand, instruction) for operand in (a, b))
    issued = instruction.issued_macs(m, n, k) * (GATHERED if gathered else 1)
    return (issued, count, beyond, _RANK[name], m)


def _is_gathered(operand: object, instruction: TensorInstruction) -> bool:
    """Whether an operand in memory cannot be fetched by ``ldmatrix``, whose rows of 16 bytes start
    at multiples of 16 bytes: neither its rows nor its columns are known to be such. Tiles that are
    configured load rows from anywhere; wgmma reads rows that overlap where they start 16 bytes
    apart. A band is gathered whose phases are windows over one another, of a signal say: it is the
    other operand that slides over that.
    """
    match operand:
        case ("Matrix", _, _, _, ("Int", int(outer)), _, ("Int", int(inner)), int(count), _):
            per = 16 // instruction.a_type.bytes
            rows, columns = inner == 1 and outer % per == 0, outer == 1 and inner % per == 0
            if instruction.reads_memory and outer < count:
                rows = rows and instruction.family == "wgmma" and outer == per
            return not (rows or columns or instruction.configurable)
        case ("Materialize", ("Toeplitz", _, _, _, _, _, int(phases), ("Load", _, _, taps, _))):
            return _windows_overlap(taps, phases)
        case _:
            return False


def _windows_overlap(taps: object, phases: int) -> bool:
    """Whether taps of several phases are known to share elements."""
    match taps:
        case ("Ramp", ("Ramp", _, ("Int", int(along)), int(count)), ("Int", int(apart)), _):
            return abs(apart) < count * abs(along) and abs(along) < phases * abs(apart)
        case _:
            return False


def total_cost(costs: Iterable[BlockCost]) -> tuple[int, ...]:
    """Cost of several blocks executed by one instruction shape."""
    blocks = tuple(costs)
    return (
        sum(c[0] for c in blocks),
        sum(c[1] for c in blocks),
        *(max(c[i] for c in blocks) for i in (2, 3, 4)),
    )
