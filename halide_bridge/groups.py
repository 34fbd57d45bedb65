"""``grouped``: sums over taps that begin where data say, as sums of neighbours that begin together.

    f[x, o] += source[x, clamp(start[o] + t, a, b)] * weights[t, o]

For all ``o`` of a group that is the product of a band of weights, 0 where a result has no tap, and
the pixels that any of them reads: what a tensor unit can do. ``cpp/grouped.cpp`` makes the Funcs.
"""

from __future__ import annotations

from typing import Any

from halide_bridge.checks import output_funcs
from halide_bridge.memory import caller_location
from halide_bridge.names import plain
from halide_bridge.native import native
from halide_bridge.stock import Func
from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError


@dataclass(frozen=True, slots=True)
class Taps:
    """A sum over taps. ``along``: the dimension of its results that has starts and weights of their
    own; ``source``, ``weights``: the Funcs, by Halide's names, that it reads from those starts on,
    and multiplies by. ``group`` neighbours are to begin together, with runs of ``run`` pixels.
    """

    along: int
    source: str
    weights: str
    group: int
    run: int


def grouped(output: Any, func: Func, consumer: Func, taps: Taps) -> tuple[Func, ...]:
    """Sums of groups of neighbours, which a pure ``consumer`` reads in place of ``func`` from now
    on; ``output``: of the pipeline, a Func or several. ``taps``: an ``hb.Taps`` of the dimension
    ``along`` which results have starts and weights of their own, the names of the Funcs ``source``
    and ``weights``, and how many results are a ``group``, how many pixels a ``run``.

    Returns new Funcs, all to be scheduled: a ``tile`` of what ``consumer`` makes of the sums, which
    it has from there; the sums, over two variables (the pixels of a run, and the runs); the pixels;
    the band; where taps start; and the table of their weights. Pixels are ``source`` itself where
    only ``func`` reads it; it is then defined beyond its edges. ``ScheduleError`` for sums whose
    taps no clamp holds inside of ``source``.
    """
    location = caller_location()
    outputs, name = output_funcs(output, location), plain(func.name())
    by = taps.along, taps.source, taps.weights, taps.group, taps.run
    try:
        return tuple(native().grouped(outputs, func, consumer, *by, f"{name}_grouped"))
    except ValueError as error:
        why = str(error)
        raise ScheduleError(
            f"the taps of `{name}` cannot be grouped", why=why, where=location
        ) from None
