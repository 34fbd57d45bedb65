"""Parts of a memory as text of CUDA."""

from __future__ import annotations

from selector.gpu.cuda.expressions import operand, spell, summand
from selector.gpu.ir.views import View


def pointer(view: View, *, terms: bool = False) -> str:
    """The begin of a view, but for its bytes ``at``; ``terms`` of its index are added one after the
    other.
    """
    start = "" if view.start is None else spell(view.start)
    text = f"({view.memory} + {start})" if start else view.memory
    if view.index is None:
        return text
    return f"{text} + {spell(view.index) if terms else summand(view.index)}"


def address(view: View) -> str:
    """Of a view in shared memory."""
    behind = "" if view.at is None else f" + {operand(view.at)}"
    return f"shared_address({pointer(view)}){behind}"
