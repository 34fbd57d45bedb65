"""Who has the copy engine store boxes waits, before it ends, until these are read: shared memory is
another block's afterwards.
"""

from __future__ import annotations

from dataclasses import replace

from selector.gpu.ir.memory import Map
from selector.gpu.ir.nodes import Commit, Drain, If, Kernel, walk

COMMIT, DRAIN = Commit("stores"), Drain("stores", 0, "read")


def drain_stores(kernel: Kernel) -> Kernel:
    """The kernel, at whose end that is waited for by the threads that have committed stores. That a
    thread has, its condition says at the end, too: it mentions parameters and the thread's place.
    """
    if not any(isinstance(node, Map) for node in kernel.declarations):
        return kernel
    conditions = dict.fromkeys(
        node.condition for node in walk(kernel.body) if isinstance(node, If) and COMMIT in node.then
    )
    drains = tuple(If(condition, (DRAIN,)) for condition in conditions)
    return replace(kernel, body=(*kernel.body, *drains)) if drains else kernel
