"""What parts of a kernel's time take together that overlap."""

from __future__ import annotations


def overlapped(exponent: float, *parts: float) -> float:
    """A norm of them: their sum for an exponent of 1, the longest for a large one."""
    total = 0.0
    for part in parts:
        total += part**exponent
    return total ** (1 / exponent)
