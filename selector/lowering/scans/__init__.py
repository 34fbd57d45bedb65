"""A recurrence that is spread over the threads of a block becomes a scan.

    for tile:                          y[i] = f(i) + a*y[i - 1] + b*y[i - 2], or
      gpu_thread t < 256:              y[i] = max(y[i - 1], f(i))
        for s < 8:
          y[tile*2048 + t*8 + s] = ...

A thread runs through its steps from a state of zero; states of threads are joined in steps of 1, 2,
4, ... threads (Hillis and Steele); each thread runs again from the state that those before it leave
behind. A linear recurrence carries a state over n steps by the n-th power of its transition. Sums
are so taken in another order than one thread would take them.

Where blocks follow each other along the recurrence, a kernel before finds the state that each block
leaves behind, and each block joins those before it in the same way.
"""

from __future__ import annotations

from selector.ir.nodes import For
from selector.lowering.scans.build import Ends, Scan
from selector.lowering.scans.find import find
from selector.lowering.scans.starts import taken_starts

__all__ = ["Ends", "spread_scans", "taken_starts"]


def spread_scans(kernel: For) -> tuple[tuple[For, ...], Ends | None]:
    """The kernels that a kernel becomes, and what lies between them. ScheduleError for a recurrence
    over threads that is no scan.
    """
    found = find(kernel)
    if found is None:
        return (kernel,), None
    if found.blocks is None:
        return (Scan(found).whole(),), None
    scan = Scan(found)
    return (scan.ends(), scan.rest()), scan.between()
