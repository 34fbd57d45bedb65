"""What makes a kernel slow without being wrong: said in its report, and once as a warning.

``warnings.filterwarnings("ignore", category=PerformanceWarning)`` silences it.
"""

from __future__ import annotations

import warnings
from typing import assert_never

from selector.diagnostics import PerformanceWarning
from selector.runtime.plan import CopyCost, CopyLimit, Plan

MOST = 0.5  # of a kernel's predicted time


def copies_of(plan: Plan) -> tuple[CopyCost, ...]:
    """All copies into shared memory of a plan's kernels."""
    return tuple(copy for launch in plan.launches for copy in launch.copies)


def describe_copy(copy: CopyCost) -> str:
    """One line."""
    conflicts = f", {copy.conflicts} conflicts a bank" if copy.conflicts > 1 else ""
    return (
        f"copy of {copy.source} to {copy.to}: {copy.threads} of {copy.of} threads, "
        f"{copy.width} bytes at a time{conflicts}, {100 * copy.share:.0f}% of the predicted time"
    )


def way_out(copy: CopyCost) -> str:
    """The directive that mends a copy which costs most of its kernel's time, or why none does;
    empty if it does not, or nothing is wrong with it.
    """
    if copy.share <= MOST:
        return ""
    to = copy.to
    if 10 * copy.threads <= copy.of:
        return (
            f"let more threads fill `{to}`: give the loops around it that are marked with "
            f"gpu_threads {copy.of} iterations in all"
        )
    if copy.conflicts > 2:
        return (
            f"let neighbouring threads store neighbours: reorder the loops of `{to}` so that the "
            "innermost is that of its innermost dimension"
        )
    return _wider(copy) if copy.width <= 2 else ""


def _wider(copy: CopyCost) -> str:
    """How a copy of one or two bytes at a time moves 16, or why it does not."""
    to, source, per = copy.to, copy.source, 16 // copy.width
    match copy.limit:
        case CopyLimit.START:
            return (
                f"let rows of `{to}` start at multiples of 16 bytes of `{source}`: "
                f"`{to}.align_bounds(x, {per}, r)`, where x is its innermost dimension and r the x "
                f"of `{to}` that holds element 0 of `{source}`, modulo {per}"
            )
        case CopyLimit.TURNED:
            return (
                f"let neighbours of `{source}` be neighbours in `{to}`, too: "
                f"`{to}.reorder_storage(...)` with the dimension first that is innermost in "
                f"`{source}`"
            )
        case CopyLimit.THREADS:
            return (
                f"leave gpu_threads of `{to}` out: all threads of the block copy it then, 16 bytes "
                "at a time"
            )
        case CopyLimit.APART:
            return (
                f"no directive does it: `{to}` takes no neighbours of `{source}`; another layout "
                f"of `{source}` would"
            )
        case CopyLimit.COMPUTED:
            return (
                f"no directive does it where `{to}` is: its elements are computed, one by one. "
                f"Where several blocks compute the same, `{to}.compute_root()` with blocks of its "
                f"own, and the copy `{to}.in_(...)` staged in its place"
            )
        case CopyLimit.NONE:
            return ""
        case _:
            assert_never(copy.limit)


def lines(copies: tuple[CopyCost, ...]) -> list[str]:
    """What a report says: the copies that cost most of their kernel's time, and what to do."""
    found = [(describe_copy(copy), way_out(copy)) for copy in copies]
    return [line for text, hint in found if hint for line in (text, f"  hint: {hint}")]


def warn(plan: Plan, stacklevel: int) -> None:
    """Warn of the copies that cost most of their kernel's time."""
    said = lines(copies_of(plan))
    if said:
        text = "\n".join((f"{plan.name} spends most of its time on copies:", *said))
        warnings.warn(text, PerformanceWarning, stacklevel + 1)
