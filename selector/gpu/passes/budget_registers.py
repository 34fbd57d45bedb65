"""How many registers a thread has: what the launch bounds leave it, and ``setmaxnreg``.

A multiprocessor has 65536, so four warpgroups 128 a thread. The compiler is told how many blocks
are to share them. Where a group only feeds the others, it gives them what it does not need; the
block has what it was launched with: asking for more than that together would wait forever.

Threads of their own that share nothing wait for memory, the more of them together the better: the
compiler is told how many blocks are to run at once where what a thread has in arrays says so. Told
nothing, it takes a few registers more than leave room for another block (65 of 64, by 16 %; of 60
pipelines, ``tests/gpu/build_plain.py``); but it takes all that it is told.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from math import prod

from selector.gpu.ir.lane_maps import ACCUMULATOR, BLOCK, ROWS
from selector.gpu.ir.memory import Array, Store
from selector.gpu.ir.nodes import (
    SHARED_ALIGNMENT,
    Body,
    For,
    If,
    Kernel,
    Leave,
    Let,
    Node,
    Registers,
    children,
    of_groups,
    walk,
)
from selector.gpu.ir.products import Fragment
from selector.gpu.ir.views import BYTES
from selector.gpu.passes.rebuilt import rebuilt
from selector.ir.nodes import Call, Compare, CompareOp, Expr, IntImm, Select, Var
from selector.ir.traverse import free_vars, walk_expr
from selector.targets import MOST_GIVEN, Multiprocessor, given_registers

REGISTERS = 512  # of a thread in each group of a multiprocessor
MOST_BOUND = 255  # of a thread without setmaxnreg
OTHERS = 32  # beside accumulators and operands
WARP, GROUP, MOST_THREADS = 32, 128, 2048  # threads, the last of a multiprocessor at most
WORDS = {32: 20, 40: 36, 64: 72}  # of arrays that a thread may have with so many registers
BESIDE = 16  # registers at most beside those words, where so many are taken anyway
FEW, MANY = 8, 8  # elements that are loaded one by one; iterations of a loop
RESERVED = 1024  # bytes of shared memory that a block takes beside its own (sm_80 and later)


def budget_registers(
    kernel: Kernel,
    *,
    resident: int,
    shared_memory: int,
    multiprocessor: Multiprocessor | None = None,
) -> Kernel:
    """The kernel with its launch bounds, and registers moved from the group that feeds to the
    others where equal shares would not do. ``resident``: the blocks that were asked for on one
    ``multiprocessor``, which has so many bytes of ``shared_memory``.
    """
    if of_groups(kernel):
        held = held_registers(kernel.body)
        blocks = _blocks(kernel, held, max(resident, kernel.resident), shared_memory)
        if blocks == 1:
            body = rebuilt(kernel.body, lambda node: _parted(node, held))
            kernel = replace(kernel, body=body)
        return replace(kernel, resident=blocks)
    own = kernel.shared - kernel.alignment
    if resident == 1 and own == 0 and multiprocessor is not None:
        return replace(kernel, resident=_of_threads(kernel, multiprocessor))
    room = min((shared_memory + RESERVED) // (own + RESERVED), MOST_THREADS // kernel.threads)
    blocks = max(1, min(resident, room))
    # Memory for swizzled tiles leaves room for few blocks anyway.
    told = blocks > 1 or kernel.alignment > SHARED_ALIGNMENT
    return replace(kernel, resident=blocks) if told else kernel


def _of_threads(kernel: Kernel, room: Multiprocessor) -> int:
    """Blocks of threads of their own that are to be on a multiprocessor; 0 if nothing is told."""
    if kernel.threads < 2 * WARP or any(_keeps(n) for n in walk(kernel.body)):
        return 0
    words, memory = _words(kernel.body), {p.name for p in kernel.parameters if p.way != "value"}
    singly = _singly(kernel.body, memory)
    for registers, most in WORDS.items():
        if words > most:
            continue
        threads = min(room.warps * WARP, room.registers // registers)
        blocks, full = min(threads // kernel.threads, room.blocks), threads == room.warps * WARP
        fits = words + singly <= most if full else words + BESIDE > registers and singly <= FEW
        return blocks if fits and blocks > 1 else 0
    return 0


def _keeps(node: Node) -> bool:
    """Whether what a thread has stays for long: a fragment, or rows that it moves on in an array,
    whose turns, written out, have as many at once as there is room for.
    """
    match node:
        case Store(Call(name="element", args=(to, _)), Call(name="element", args=(value, _))):
            return to == value
        case _:
            return isinstance(node, Fragment)


def _words(body: Body) -> int:
    """Words of arrays that a thread has at once."""
    arrays = (node for node in body if isinstance(node, Array))
    own = sum(-(-BYTES[a.kind] * a.count // 4) for a in arrays)
    parts = [
        part
        for node in body
        for part in ((node.then, node.otherwise) if isinstance(node, If) else (children(node),))
    ]
    return own + max(map(_words, parts), default=0)


def _singly(body: Body, memory: Set[str]) -> int:
    """Elements of memory that a thread computes with as it loads them, one by one."""
    count = 0
    for node in body:
        match node:
            case Store(to, value) if memory.isdisjoint(free_vars(to)) and not _is_loaded(value):
                count += _elements(value, memory)
            case Let(_, _, values):
                count += sum(_elements(value, memory) for value in values)
            case For(how, _, IntImm(start), IntImm(stop)) if how != "rolled":
                count += (stop - start) * _singly(node.body, memory)
            case For():
                count += MANY * _singly(node.body, memory)
            case _:
                count += _singly(children(node), memory)
    return count


def _elements(value: Expr, memory: Set[str]) -> int:
    """Elements of memory in a value."""
    elements = {e for e in walk_expr(value) if isinstance(e, Call) and e.name == "element"}
    return sum(not memory.isdisjoint(free_vars(e.args[0])) for e in elements)


def _is_loaded(value: Expr) -> bool:
    """Whether a value is an element, where something holds."""
    inner = value.then if isinstance(value, Select) else value
    return isinstance(inner, Call) and inner.name == "element"


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
    if held + OTHERS <= equal or equal >= MOST_GIVEN:
        return None
    more = given_registers(equal, groups)
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
