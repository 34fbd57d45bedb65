"""The terms of a sum in other words: as products of two factors, each of them for itself, counted
the other way, and of images that go on beyond their edges.
"""

from __future__ import annotations

from halide_bridge.instead import refused
from halide_bridge.names import plain
from halide_bridge.native import native
from halide_bridge.stock import Func, Named


def expanded(sum_: Func) -> Func:
    """Have a sum add products where it adds products of sums: ``f[...] += (a - b) * c`` is ``f[...]
    += a * c - b * c``, each product once, with how often it is there (``(a + a) * c`` is ``a * c *
    2``), and ``i32(-i16(a)) * b`` is subtracted. Of integers where no type on the way is too small;
    what is the same all along the sum stays where it is. So are ``widening_mul`` and such. Floats
    are rounded in another order: what is off is a part of the products, not of their difference.
    Returns ``sum_``; ``ScheduleError`` for a sum whose terms are products already.
    """
    if not native().expanded(sum_):
        raise refused(
            f"`{plain(sum_.name())}` adds no products of sums",
            why="they are to be sums of products",
            hint="a Func with one update, f[...] += (a - b) * c",
        )
    return sum_


def counted_down(sum_: Func, along: Named) -> Func:
    """Have a variable that a sum goes along count from its last value down: ``f[x] += image[x - t]
    * taps[t]`` over three terms is ``image[x - 2 + t] * taps[2 - t]``, a window as tensor units
    have it. Floats are added in another order. Returns ``sum_``; ``ScheduleError`` for a sum that
    does not go along it.
    """
    if not native().counted_down(sum_, along.name()):
        raise refused(
            f"`{plain(sum_.name())}` does not go along `{along.name()}`",
            why="it is to count down",
            hint="a Func with one update, and a variable of its reduction domain",
        )
    return sum_


def around(sum_: Func, factor: int) -> Func:
    """A Func of its own for what a factor, 0 or 1, of the products that a sum adds reads of an
    image around its edges, as ``hl.BoundaryConditions`` are: with ``image[clamp(x + t, 0, w - 1),
    y]`` as the first factor the sum reads ``f_around_a[x + t, y]``, which is ``image[clamp(i, 0, w
    - 1), j]``. Values that are chosen by where they would be read (``select(x + t < w, ..., 0)``)
    are its values, too. ``ScheduleError`` if the factor has other values inside than at the edges,
    or reads at several places.
    """
    name = f"{plain(sum_.name())}_around_{'ab'[factor]}"
    made: Func = native().around(sum_, factor, name)
    if not made.defined():
        raise refused(
            f"factor {factor} of `{plain(sum_.name())}` is not read around edges alone",
            why="its value is to follow from where it is read",
            hint="indices in `hl.clamp`, or conditions of the same indices",
        )
    return made
