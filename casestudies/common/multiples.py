"""Whole numbers that tiles are made of."""

from __future__ import annotations


def rounded(n: int, multiple: int = 8) -> int:
    """Up to the next multiple."""
    return -(-n // multiple) * multiple


def largest_divisor(n: int, most: int) -> int:
    """The largest divisor of ``n`` up to ``most``."""
    return next(d for d in range(most, 0, -1) if n % d == 0)
