"""What the model of contractions has that is no property of a GPU: fitted to times of an H100
(``python -m casestudies model --fit``). Of eleven held-out sizes the choice loses 3 % in the mean,
10 % at most. ``overlap``, ``busy``, ``sectors`` and ``parts_of_lines`` are from 330 schedules of 25
large products on an H200; ``void``, ``by_threads``, ``idle`` and how results leave swapped are
from 400 of 24 small and flat ones.
"""

from __future__ import annotations

from selector.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Fitted:
    """Microseconds unless said otherwise.

    ``overlap``: exponent of the norm, ``overlap_few`` that of few runs. ``start``: until the
    first run is there, and from the last result to the end, beside the launch. ``warps_read``:
    times as long memory gives warps what it gives groups. ``arrival``: from asking for a slot
    to having it, under load; ``held``: slots of a ring that multiplication keeps,
    ``held_beside`` more where blocks stay beside each other. What a byte's requests take
    longer, times its own: where rows begin within ``sectors`` of 32 bytes (``sectors_along``:
    rows along the sum) or within ``lines``, where a tile has ``parts_of_lines``, and for
    ``short_rows`` of half a line. ``shared_lines``: of a line's bytes, where results of two
    boxes lie in it. ``void``: times a byte's, where the byte lies beyond an operand, in rows
    along the sum, and the copy engine makes it zero, more in ``void_boxes`` that lie there whole.
    ``merged``: of what neighbours ask for twice, that the L2 cache is asked for once;
    ``shared_twice``: times what a cluster asks for. ``by_threads``, ``by_warp``: 10^3 bytes a
    microsecond that the threads of a feeding group copy where the copy engine cannot, and a warp
    that multiplies as well. ``multicast``: of meeting in a cluster. ``again``: until the next block
    on a multiprocessor multiplies. ``idle``: times the share of time in which blocks that stay have
    no tile, memory takes longer.
    ``copy_kernel``: of a copy ahead, beside its bytes, which take ``turned_copy`` times as long
    where it turns them. ``store``: until a block has handed over its results, and clocks for a
    ``sector`` of them, for an element in a ``narrow`` strip, or for a byte that a lane stores by
    itself, where operands are swapped (``scattered``, beside ``turned_store`` of all), and of a
    thread for an ``operation`` on a result of its own; ``fetch``: until a strip has what it reads.
    ``busy``: times as long groups multiply as at the full clock, which no GPU keeps then.
    ``turn``: clocks between runs of a group alone; ``step``: from a warp's loads to its next ones,
    and for each result of ``single`` floats; ``turning``: times as long it reads bytes that do not
    lie along the sum. ``adding``: of the kernel that adds parts, beside ``round``, of the loads of
    a thread that are on their way at once, and ``meeting``, of the threads that add a result's.
    """

    overlap: float = 4.5
    overlap_few: float = 3.4
    start: float = 0.55
    warps_read: float = 1.04
    arrival: float = 1.08
    held: float = 1.44
    held_beside: float = 0.8
    sectors: float = 1.5
    sectors_along: float = 1.35
    lines: float = 0.05
    parts_of_lines: float = 1.0
    short_rows: float = 1.0
    shared_lines: float = 1.26
    void: float = 4.5
    void_boxes: float = 1.0
    by_threads: float = 12.0
    by_warp: float = 0.8
    multicast: float = 0.18
    merged: float = 0.68
    shared_twice: float = 1.12
    again: float = 1.8
    idle: float = 0.3
    copy_kernel: float = 0.78
    turned_copy: float = 1.65
    store: float = 0.36
    sector: float = 1.32
    narrow: float = 0.06
    scattered: float = 0.065
    turned_store: float = 250.0
    operation: float = 0.65
    fetch: float = 500.0
    busy: float = 1.15
    turn: float = 0.64
    step: float = 105.0
    single: float = 0.25
    turning: float = 16.4
    adding: float = 0.25
    meeting: float = 0.61
    round: float = 0.75


FITTED = Fitted()
