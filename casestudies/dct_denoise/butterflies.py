"""The DCT of 16 points by butterflies and rotations, fully unrolled (after G. Plonka and M. Tasche,
"Fast and numerically stable algorithms for discrete cosine transforms", 2005).

Everything is orthonormal, so the way back is the transpose. Values may be numbers, arrays or
Halide's expressions; ``number`` makes a constant that can be multiplied with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import cos, pi, sin, sqrt
from typing import Any

Values = Sequence[Any]
Number = Callable[[float], Any]


def forward(x: Values, number: Number = float) -> list[Any]:
    """DCT-II: the even bins are that of the sums of mirrored values, the odd ones the DCT-IV of
    their differences.
    """
    if len(x) == 1:
        return list(x)
    pairs, half = [(x[j], x[-1 - j]) for j in range(len(x) // 2)], number(sqrt(0.5))
    even = forward([(a + b) * half for a, b in pairs], number)
    odd = fourth([(a - b) * half for a, b in pairs], number)
    return [value for pair in zip(even, odd, strict=True) for value in pair]


def inverse(bins: Values, number: Number = float) -> list[Any]:
    """DCT-III, the transpose of ``forward``; the DCT-IV is its own."""
    if len(bins) == 1:
        return list(bins)
    even, odd, half = inverse(bins[0::2], number), fourth(bins[1::2], number), number(sqrt(0.5))
    pairs = list(zip(even, odd, strict=True))
    return [(u + v) * half for u, v in pairs] + [(u - v) * half for u, v in reversed(pairs)]


def fourth(x: Values, number: Number = float) -> list[Any]:
    """DCT-IV: rotations of mirrored values, two DCT-II of half the size, and butterflies."""
    n = len(x)
    if n == 1:
        return list(x)
    angles = [(2 * j + 1) * pi / (4 * n) for j in range(n // 2)]
    mirrored = [(x[j], x[-1 - j], number(cos(t)), number(sin(t))) for j, t in enumerate(angles)]
    cosines = forward([a * c + b * s for a, b, c, s in mirrored], number)
    turned = [b * c - a * s for a, b, c, s in mirrored]
    sines = forward([-v if j % 2 else v for j, v in enumerate(turned)], number)
    half = number(sqrt(0.5))
    inner = [(cosines[m], sines[-m]) for m in range(1, n // 2)]
    between = [v for a, b in inner for v in ((a - b) * half, (a + b) * half)]
    return [cosines[0], *between, -sines[0]]
