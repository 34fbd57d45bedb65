"""Parts of a memory as text of CUDA."""

from __future__ import annotations

from collections.abc import Mapping

from selector.gpu.cuda.expressions import operand, spell, summand
from selector.gpu.ir.views import View


def pointer(view: View, numbers: Mapping[str, str], *, terms: bool = False) -> str:
    """The begin of a view, but for its bytes ``at``; ``terms`` of its index are added one after the
    other.
    """
    start = "" if view.start is None else spell(view.start, numbers)
    text = f"({view.memory} + {start})" if start else view.memory
    if view.index is None:
        return text
    return f"{text} + {spell(view.index, numbers) if terms else summand(view.index, numbers)}"


def address(view: View, numbers: Mapping[str, str]) -> str:
    """Of a view in shared memory."""
    behind = "" if view.at is None else f" + {operand(view.at, numbers)}"
    return f"shared_address({pointer(view, numbers)}){behind}"
