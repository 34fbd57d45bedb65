"""Kernels that start while the launch before them still runs (PTX ISA, ``griddepcontrol``).

Of the launches of a plan that run in every call, each lets the next one start as soon as all of its
own blocks have, and each but the first waits, in every block, before it touches memory that those
before it write, or writes what they read; at its end if it does neither. So what lies before that
is done while the earlier launch ends: numbers of the block, barriers, and copies of what no launch
writes, or a whole launch that has nothing to do with those before. Whoever waits for a launch
waits, through its own waiting, for all those before it. Launches that run once are complete by
then: the call that holds them starts none early.

Blocks that start early stay where they found room first. Where no multiprocessor has any but those
that the launch before leaves idle, few of these get all of a small launch: ``crowd``.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from selector.gpu.ir.mentioned import mentioned
from selector.gpu.ir.nodes import Body, Dependents, Kernel, Local, of_groups
from selector.gpu.passes.budget_registers import MOST_BOUND, WARP, equal_share
from selector.targets import LEAST_KEPT, Multiprocessor

ALLOW_NEXT, AWAIT_EARLIER = Dependents("allow"), Dependents("await")


def start_early(kernel: Kernel, *, earlier: Set[str] | None, last: bool) -> Kernel:
    """The kernel, which lets the next launch start, unless it is the ``last``, and waits for those
    before it where it first mentions one of the pointers and maps to memory that it shares with
    ``earlier`` launches; None: it starts when these are complete.
    """
    body = kernel.body
    if earlier is not None:
        body = _awaiting(body, earlier)
    if not last:
        body = (ALLOW_NEXT, *body)
    return kernel if body is kernel.body else replace(kernel, body=body)


def crowd(earlier: Kernel, kernel: Kernel, room: Multiprocessor, asked: int = 1) -> int:
    """The blocks of a kernel that an idle multiprocessor takes, if one that has as many blocks of
    the ``earlier`` kernel as are told to share it takes none; else 0. Groups have all registers
    that their launch bounds leave them; how many others take, the assembler says. What shares no
    memory is told a number for its registers alone: as many share as were ``asked`` for.
    """
    own = of_groups(earlier) or earlier.shared > earlier.alignment
    blocks = max(1, earlier.resident if own else asked)
    shared = [k.shared + room.reserved_shared for k in (earlier, kernel)]
    taken = 0
    if of_groups(earlier):
        each = min(MOST_BOUND, equal_share(earlier.threads, blocks))
        taken = blocks * earlier.threads * each
    beside = taken + kernel.threads * LEAST_KEPT <= room.registers
    if beside and blocks * shared[0] + shared[1] <= room.shared_memory:
        return 0
    return min(room.blocks, room.warps * WARP // kernel.threads)


def _awaiting(body: Body, shared: Set[str]) -> Body:
    """The body that waits outside of its loops and branches, at its end if it mentions nothing."""
    for place, node in enumerate(body):
        if shared.isdisjoint(mentioned((node,))):
            continue
        match node:
            case Local(inner):
                return (*body[:place], Local(_awaiting(inner, shared)), *body[place + 1 :])
            case _:
                return (*body[:place], AWAIT_EARLIER, *body[place:])
    return (*body, AWAIT_EARLIER)
