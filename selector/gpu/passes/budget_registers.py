"""How many registers a thread has: what the launch bounds leave it, and ``setmaxnreg``.

A multiprocessor has 65536, so four warpgroups 128 a thread. The compiler is told how many blocks
are to share them. Where a group only feeds the others, it gives them what it does not need; the
block has what it was launched with: asking for more than that together would wait forever.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from selector.gpu.ir.lane_maps import ACCUMULATOR, BLOCK, ROWS
from selector.gpu.ir.nodes import (
    SHARED_ALIGNMENT,
    Body,
    If,
    Kernel,
    Leave,
    Node,
    Registers,
    of_groups,
    walk,
)
from selector.gpu.ir.products import Fragment
from selector.gpu.passes.rebuilt import rebuilt
from selector.ir.nodes import Compare, CompareOp, IntImm, Var

REGISTERS, MOST = 512, 240  # of a thread in each group of a multiprocessor; of any thread
MOST_BOUND = 255  # of a thread without setmaxnreg
LEAST, OTHERS = 32, 32  # for copies by threads; beside accumulators and operands
GROUP = 128  # threads
RESERVED = 1024  # bytes of shared memory that a block takes beside its own (sm_80 and later)


def budget_registers(kernel: Kernel, *, resident: int, shared_memory: int) -> Kernel:
    """The kernel with its launch bounds, and registers moved from the group that feeds to the
    others where equal shares would not do. ``resident``: the blocks that were asked for on one
    multiprocessor, which has so many bytes of ``shared_memory``.
    """
    if of_groups(kernel):
        held = held_registers(kernel.body)
        blocks = _blocks(kernel, held, max(resident, kernel.resident), shared_memory)
        if blocks == 1:
            body = rebuilt(kernel.body, lambda node: _parted(node, held))
            kernel = replace(kernel, body=body)
        return replace(kernel, resident=blocks)
    own = kernel.shared - kernel.alignment
    blocks = max(1, min(resident, (shared_memory + RESERVED) // (own + RESERVED)))
    # Memory for swizzled tiles leaves room for few blocks anyway.
    told = blocks > 1 or kernel.alignment > SHARED_ALIGNMENT
    return replace(kernel, resident=blocks) if told else kernel


def _blocks(kernel: Kernel, held: int, resident: int, shared_memory: int) -> int:
    """Blocks of groups that share a multiprocessor."""
    room = (shared_memory + RESERVED) // (kernel.shared + RESERVED)
    return max(1, min(resident, room, _beside(held, kernel.threads)))


def left_registers(kernel: Kernel, resident: int, shared_memory: int) -> int:
    """Registers of a thread that multiplies, in a kernel of groups, beside what it holds and what
    all else takes.
    """
    held = held_registers(kernel.body)
    blocks = _blocks(kernel, held, resident, shared_memory)
    parted = shares(held, kernel.threads // GROUP - 1) if blocks == 1 else None
    share = equal_share(kernel.threads, blocks) if parted is None else parted[1]
    return min(MOST_BOUND, share) - held - OTHERS


def held_registers(body: Body) -> int:
    """Registers of a lane for accumulators, and for operands and numbers of rows that are kept
    there.
    """
    fragments = {node.name: node for node in walk(body) if isinstance(node, Fragment)}
    return sum(
        prod(fragment.registers)
        for fragment in fragments.values()
        if fragment.layout in (ACCUMULATOR, BLOCK, *ROWS.values())
    )


def _beside(held: int, threads: int) -> int:
    """Blocks that equal shares of the registers suffice for. The assembler refuses an instruction
    that does not fit into the share that a block is launched with, whatever ``setmaxnreg`` says.
    """
    return next((n for n in range(32, 1, -1) if held + OTHERS <= equal_share(threads, n)), 1)


def equal_share(threads: int, blocks: int) -> int:
    """Registers of each thread of so many blocks on a multiprocessor."""
    return GROUP * REGISTERS // (blocks * threads) // 8 * 8


def shares(held: int, groups: int) -> tuple[int, int] | None:
    """Registers of a thread of the group that feeds and of the ``groups`` that multiply, which have
    ``held`` ones all the time, in steps of 8; None where equal shares do, or are as many as a
    thread may have.
    """
    equal = equal_share(GROUP * (groups + 1), 1)
    if held + OTHERS <= equal or equal >= MOST:
        return None
    more = min(MOST, (equal * (groups + 1) - LEAST) // groups // 8 * 8)
    return equal * (groups + 1) - more * groups, more


def _parted(node: Node, held: int) -> Body:
    """A condition that sends the group behind all others another way, which ends there, and what
    both begin with.
    """
    match node:
        case If(Compare(CompareOp.EQ, Var("group"), IntImm(groups)), (*_, Leave("kernel")), rest):
            share = shares(held, groups)
            if share is None:
                return (node,)
            fewer, more = Registers("fewer", share[0]), Registers("more", share[1])
            fed = replace(node, then=(fewer, *node.then))
            # What the others do stands in the condition, or behind it where blocks stay.
            return (replace(fed, otherwise=(more, *rest)),) if rest else (fed, more)
        case _:
            return (node,)
