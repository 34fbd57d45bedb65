"""What a lane has to do with one element of an accumulator block, as text: made once for the block,
filled in for each element.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial

from selector.emit.context import Accumulator, Element, KernelContext, Region
from selector.emit.kept_tiles import fill_tiles
from selector.emit.lane_numbers import fill_numbers
from selector.emit.pairs import PairText
from selector.emit.places import column_text, row_text
from selector.emit.row_registers import fill_rows
from selector.emit.staged_tiles import DOWN, EVEN, ODD

_ROUNDED = re.compile(r"to_f16\(((?:exp2?_rounded)\(.*\))\)")
"""A function's value, rounded to f16."""


@dataclass(frozen=True, slots=True)
class ElementTexts:
    """Templates: ``@m@`` and ``@n@`` stand for the coordinates, ``@name@`` for an accumulator's
    register.
    """

    value_text: str
    guard_text: str
    accumulators: dict[str, Accumulator]
    pair_text: PairText | None
    context: KernelContext

    def value(self, region: Region, element: Element) -> str:
        return self._at(self.value_text, region, element)

    def pair(self, region: Region, element: Element) -> str:
        """An element of 16 bits and its right neighbour, packed."""
        i, j, e = element
        first, second = (partial(self._at, region=region, element=(i, j, x)) for x in (e, e + 1))
        rounded = _ROUNDED.fullmatch(self.value_text)
        if self.pair_text is None and rounded:
            return f"round_pair({first(rounded[1])}, {second(rounded[1])})"
        if self.pair_text is None:
            return f"pack16({first(self.value_text)}, {second(self.value_text)})"
        return self.pair_text.fill(first, second)

    def _at(self, text: str, region: Region, element: Element) -> str:
        text = _fill_in(text, region, element)
        text = fill_tiles(text, region, element, self.context)
        text = fill_rows(text, region.offsets(element)[0], self.context)
        for name, accumulator in self.accumulators.items():
            text = text.replace(f"@{name}@", _register(accumulator, region, element))
        return text

    def guard(self, region: Region, element: Element) -> str:
        return _fill_in(self.guard_text, region, element)


def _fill_in(text: str, region: Region, element: Element) -> str:
    down, across = region.offsets(element)
    row, column, odd = row_text(down), column_text(across), across % 2
    m, n = (column, row) if region.swapped else (row, column)
    text = text.replace("@m@", m).replace("@n@", n)
    if EVEN in text:
        text = text.replace(EVEN, column_text(across - odd))
        text = text.replace(ODD, str(odd)).replace(DOWN, str(down))
    return fill_numbers(text, down, across)


def _register(accumulator: Accumulator, region: Region, element: Element) -> str:
    i, j, e = element
    name = f"{accumulator.register}[{region.fragment(i, j)}]"
    return f"half_of({name}[{e // 2}], {e % 2})" if accumulator.half else f"{name}[{e}]"
