"""One index, written in many ways: vectors of nested ramps, of sums, with lets, with div and mod.

A walk is a base and its levels (stride, count), innermost first; strides are numbers or text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

Stride = int | str
Level = tuple[Stride, int]
Levels = Sequence[Level]


def splat(value: Stride, lanes: int) -> str:
    """A scalar in every lane."""
    return str(value) if lanes == 1 else f"x{lanes}({value})"


def nest(base: Stride, levels: Levels) -> str:
    """Ramps and broadcasts inside one another; levels of one part are left out."""
    text, lanes = str(base), 1
    for stride, count in levels:
        if count == 1:
            continue
        if str(stride) == "0":
            text = f"x{count}({text})"
        else:
            text = f"ramp({text}, {splat(stride, lanes)}, {count})"
        lanes *= count
    return text


def lanes_of(levels: Levels) -> int:
    return prod(count for _, count in levels)


def _digit(levels: Levels, chosen: int, stride: Stride = 1) -> str:
    """The number of a lane along one level, times a stride."""
    return nest(0, [(stride if i == chosen else 0, count) for i, (_, count) in enumerate(levels)])


def _moving(levels: Levels) -> list[int]:
    return [i for i, (s, n) in enumerate(levels) if str(s) != "0" and n > 1]


def _terms(base: Stride, levels: Levels) -> list[str]:
    """A full-length vector for the base and for each level that moves."""
    found = [_digit(levels, i, levels[i][0]) for i in _moving(levels)]
    return [*found, splat(base, lanes_of(levels))] if str(base) != "0" or not found else found


def sums(base: Stride, levels: Levels) -> str:
    return " + ".join(_terms(base, levels))


def sums_backwards(base: Stride, levels: Levels) -> str:
    return " + ".join(reversed(_terms(base, levels)))


def sums_right(base: Stride, levels: Levels) -> str:
    first, *rest = _terms(base, levels)
    text = first
    for term in rest:
        text = f"{term} + ({text})"
    return text


def minus(base: Stride, levels: Levels) -> str:
    lanes = lanes_of(levels)
    return f"({sums(base, levels)} + {splat(7, lanes)}) - {splat(7, lanes)}"


def negated(base: Stride, levels: Levels) -> str:
    """What is subtracted walks backwards."""
    lanes = lanes_of(levels)
    opposite = [(-s if isinstance(s, int) else s if s == "0" else f"0 - {s}", n) for s, n in levels]
    return f"{splat(base, lanes)} - ({nest(0, opposite)})" if lanes > 1 else str(base)


def halves(base: Stride, levels: Levels) -> str:
    """Every even level as two."""
    cut: list[Level] = []
    for s, n in levels:
        if n % 2 or n == 2:
            cut.append((s, n))
        else:
            cut += [(s, 2), (2 * s if isinstance(s, int) else f"{s}*2", n // 2)]
    return nest(base, cut)


def ones(base: Stride, levels: Levels) -> str:
    """Levels of one part between the others."""
    text, lanes = f"x1({base})", 1
    for stride, count in levels:
        text = f"ramp({text}, {splat(5, lanes)}, 1)"
        text = (
            f"x{count}({text})"
            if str(stride) == "0"
            else f"ramp({text}, {splat(stride, lanes)}, {count})"
        )
        lanes *= count
    return f"x1({text})"


def times(base: Stride, levels: Levels) -> str:
    """Digits of the lane times their stride."""
    lanes = lanes_of(levels)
    terms = [f"{_digit(levels, i)}*{splat(levels[i][0], lanes)}" for i in _moving(levels)]
    return " + ".join([*terms, splat(base, lanes)])


def factored(base: Stride, levels: Levels) -> str:
    """The stride to the left of its digit, with an offset taken back inside the product."""
    lanes = lanes_of(levels)
    terms = [
        f"{splat(levels[i][0], lanes)}*({_digit(levels, i)} + {splat(2, lanes)})"
        for i in _moving(levels)
    ]
    back = [f"{splat(levels[i][0], lanes)}*{splat(2, lanes)}" for i in _moving(levels)]
    text = " + ".join([splat(base, lanes), *terms])
    return " - ".join([text, *back])


def let_bound(base: Stride, levels: Levels) -> str:
    """Names for the walk and for its base."""
    lanes = lanes_of(levels)
    return (
        f"(let start = {base} in (let walk = {nest(0, levels)} in walk + {splat('start', lanes)}))"
    )


def divmod_digits(base: Stride, levels: Levels) -> str:
    """Digits of one flat ramp, by div and mod."""
    lanes = lanes_of(levels)
    flat, inner, terms = f"ramp(0, 1, {lanes})", 1, list[str]()
    for stride, count in levels:
        digit = flat if inner == 1 else f"({flat}/{splat(inner, lanes)})"
        if inner * count < lanes:
            digit = f"({digit} % {splat(count, lanes)})"
        if str(stride) != "0" and count > 1:
            terms.append(f"{digit}*{splat(stride, lanes)}")
        inner *= count
    return " + ".join([*terms, splat(base, lanes)])


STYLES: dict[str, Callable[[Stride, Levels], str]] = {
    "nest": nest,
    "sums": sums,
    "sums backwards": sums_backwards,
    "sums to the right": sums_right,
    "minus": minus,
    "negated": negated,
    "halves": halves,
    "ones": ones,
    "times": times,
    "factored": factored,
    "let": let_bound,
    "divmod": divmod_digits,
}
