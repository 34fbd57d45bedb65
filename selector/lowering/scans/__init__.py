"""A recurrence that is spread over the threads of a block becomes a scan.

    for tile:                          y[i] = f(i) + a*y[i - 1] + b*y[i - 2], or
      gpu_thread t < 256:              y[i] = max(y[i - 1], f(i))
        for s < 8:
          y[tile*2048 + t*8 + s] = ...

A thread runs through its steps from a state of zero; states of threads are joined in steps of 1, 2,
4, ... threads (Hillis and Steele); each thread runs again from the state that those before it leave
behind. A linear recurrence carries a state over n steps by the n-th power of its transition. Sums
are so taken in another order than one thread would take them.

Where blocks follow each other along the recurrence, and it soon forgets where it began
(``memory``), each block runs through some steps ahead of its own. Else a kernel before finds the
state that each block leaves behind, and each block joins those before it in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from selector.ir.nodes import Expr, For
from selector.lowering.scans.build import Ends, Scan, whole
from selector.lowering.scans.cascades import cascade, none_left
from selector.lowering.scans.find import find
from selector.lowering.scans.origins import Origin, begun_with, recurrent, without_array
from selector.lowering.scans.readers import taken_reader
from selector.lowering.scans.starts import taken_starts
from selector.lowering.scans.turns import turns_of
from selector.lowering.scans.walks import dims_of

__all__ = [
    "Ends",
    "Origin",
    "begun_with",
    "cascade",
    "dims_of",
    "none_left",
    "recurrent",
    "spread_scans",
    "taken_reader",
    "taken_starts",
    "without_array",
]


def spread_scans(
    kernel: For, unread: Set[str], begun: Mapping[str, tuple[Expr, ...]]
) -> tuple[tuple[For, ...], Ends | None]:
    """The kernels that a kernel becomes, and what lies between them; what is ``unread`` is not
    stored by those that store what is made of it; what some have ``begun`` with is not stored at
    all. ScheduleError for a recurrence over threads that is no scan.
    """
    turns = turns_of(kernel)
    if turns is not None:
        return (turns.shared(),), None
    found = find(kernel)
    if found is None:
        return (kernel,), None
    if found.then is not None:
        found = replace(found, kept=found.store.buffer not in unread)
    scan = Scan(replace(found, begun=begun.get(found.store.buffer, ())))
    if scan.alone:
        return (whole([scan]),), None
    return (scan.ends(), scan.rest()), scan.between()
