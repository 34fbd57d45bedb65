"""What makes a kernel slow without being wrong: said in its report, and once as a warning.

``warnings.filterwarnings("ignore", category=PerformanceWarning)`` silences it.
"""

from __future__ import annotations

import warnings

from selector.diagnostics import PerformanceWarning
from selector.runtime.plan import CopyCost, Plan

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
    """The directive that mends a copy which costs most of its kernel's time; empty if it does not,
    or nothing is wrong with it.
    """
    if copy.share <= MOST:
        return ""
    to = copy.to
    if 10 * copy.threads <= copy.of:
        return (
            f"let all threads of the block copy: leave gpu_threads of `{to}` out, or give its "
            f"loops {copy.of} threads"
        )
    if copy.conflicts >= 8:
        return f"let neighbouring threads store neighbours: reorder the loops of `{to}`"
    if copy.width <= 2:
        return (
            f"let rows of `{to}` start at multiples of 16 bytes of `{copy.source}` "
            f"(`{to}.align_bounds`), and be unchanged elements of it"
        )
    return ""


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
