"""With patience, waits that end the launch in an error.

Which: for barriers in shared memory, and for the other threads of the block at its own and named
barriers. Those cannot be asked whether they are complete, so threads count themselves in shared
memory instead, behind the kernel's own, in counts that are reset first.

The other waits are not for threads: copies and wgmma that were issued end, or fault, and so do
launches before this one. ``__syncwarp`` is for lanes of the same warp, which part only in code that
has no other waits than these. ``cluster_sync`` says why itself. Instructions that are one statement
with their waits wait for ever; so their barriers are awaited before it, too.
"""

from __future__ import annotations

from dataclasses import replace

from selector.diagnostics import ScheduleError, Where
from selector.gpu.ir.expressions import number
from selector.gpu.ir.nodes import Await, Body, Fused, Kernel, Node, ResetArrivals, Sync
from selector.gpu.passes.rebuilt import rebuilt

ARRIVALS_BYTES = 128  # of counts
BLOCKS_OWN = number(0)  # the barrier of all threads of a block, among the named ones


def bound_waits(kernel: Kernel, *, name: str, shared_memory: int, patience: float | None) -> Kernel:
    """The kernel, in which no thread waits for more than ``patience`` seconds. ``ScheduleError`` if
    ``shared_memory`` of the block has no room for the counts.
    """
    if patience is None:
        return kernel
    bounds = _Bounds(kernel.threads, round(patience * 1e9))
    body = rebuilt(kernel.body, bounds.of)
    if not bounds.counted:
        return replace(kernel, body=body)
    shared = kernel.shared + ARRIVALS_BYTES
    if shared > shared_memory:
        raise ScheduleError(
            f"the kernel of `{name}` has no room to count who comes to its barriers",
            f"with SELECTOR_PATIENCE it needs {ARRIVALS_BYTES} bytes of shared memory more",
            "fewer stages, or no SELECTOR_PATIENCE",
            Where(func=name),
        )
    declarations = (ResetArrivals(), *kernel.declarations)
    return replace(kernel, shared=shared, declarations=declarations, body=body)


class _Bounds:
    """``limit``: of each wait, in nanoseconds; ``counted``: whether there are threads to count."""

    def __init__(self, threads: int, limit: int) -> None:
        self.threads, self.limit = threads, limit
        self.counted = False

    def of(self, node: Node) -> Body:
        """What becomes of a node."""
        match node:
            case Await():
                return (replace(node, within=self.limit),)
            case Sync("block", note=note):
                self.counted = True
                return (Sync("named", BLOCKS_OWN, self.threads, note, self.limit),)
            case Sync("named"):
                self.counted = True
                return (replace(node, within=self.limit),)
            case Fused(body):
                waits = (x for x in body if isinstance(x, Await))
                own = tuple(replace(x, within=0) if isinstance(x, Await) else x for x in body)
                return (*waits, Fused(own))
            case _:
                return (node,)
