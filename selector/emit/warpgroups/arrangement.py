"""How a kernel of warpgroups is arranged: what its operands lie in, and who brings them."""

from __future__ import annotations

from selector.diagnostics import ScheduleError
from selector.emit.context import KernelContext
from selector.emit.warpgroups.panels import find_panels
from selector.emit.warpgroups.tensor_kernels import arrange_tensor, check_tensor
from selector.emit.warpgroups.windows import find_slots, find_windows
from selector.ir.nodes import Allocate, For, ForKind, Memory, Stmt
from selector.ir.traverse import walk_stmt
from selector.lowering.normalize import TENSOR_MEMORY, holds_tensor
from selector.lowering.structure import last_outside


def arrange_groups(body: Stmt, in_registers: frozenset[str], context: KernelContext) -> None:
    """Whether this is a kernel of warpgroups, and what follows from it; nothing for another one.
    ``in_registers``: first operands that are kept there.
    """
    c = context
    memories = {
        s.memory: s
        for s in walk_stmt(body)
        if isinstance(s, Allocate) and s.memory in TENSOR_MEMORY
    }
    if Memory.WGMMA_ACCUMULATOR not in memories:
        return
    if len(memories) > 1:
        raise ScheduleError(
            f"`{c.name}` has accumulators of warps and of warpgroups in one kernel",
            ", ".join(f"`{s.name}` is in {m.value}" for m, s in memories.items()),
            "keep all of them in one kind of memory",
        )
    c.group = True
    if c.target.has("tcgen05"):
        arrange_tensor(body, c)
    c.panels |= find_panels(body, in_registers)
    c.windows |= find_windows(body, c.panels)
    c.slots |= find_slots(body, {} if c.self_fed else c.windows)
    c.producer = not c.self_fed and bool(c.slots & c.group_operands)
    if c.tensor:
        check_tensor(c)


def last_for_all(body: Stmt) -> Stmt | None:
    """The last statement that the group that feeds takes part in: the groups do the rest alone."""
    return last_outside(
        body, lambda s: isinstance(s, For) and s.kind is ForKind.GPU_THREAD and holds_tensor(s)
    )
