"""Families of schedules: directives on a user's Funcs, of a description that ``selector.families``
chooses by the sizes.
"""

from __future__ import annotations

from halide_bridge.schedules.attention import Attention, schedule_attention
from halide_bridge.schedules.contraction import Contraction, Operand, contract
from halide_bridge.schedules.windows import Windows, schedule_windows

__all__ = [
    "Attention",
    "Contraction",
    "Operand",
    "Windows",
    "contract",
    "schedule_attention",
    "schedule_windows",
]
