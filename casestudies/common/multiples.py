"""Whole numbers that tiles are made of."""

from __future__ import annotations


def rounded(n: int, multiple: int = 8) -> int:
    """Up to the next multiple."""
    return -(-n // multiple) * multiple


def largest_divisor(n: int, most: int) -> int:
    """The largest divisor of ``n`` up to ``most``."""
    return next(d for d in range(most, 0, -1) if n % d == 0)


def power_of_two(n: int) -> int:
    """The largest power of two up to 8 that divides ``n``."""
    return next(d for d in (8, 4, 2, 1) if n % d == 0)
