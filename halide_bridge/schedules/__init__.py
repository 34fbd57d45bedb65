"""Schedules: directives on a user's Funcs.

Families, of a description that ``selector.families`` chooses by the sizes: ``contraction``,
``windows``, ``attention``.

Schedules that nobody writes, in this order: ``auto`` (the call), ``recognise`` (what the pipeline
is), ``sizes`` (what it is to be fast at), ``terms`` and ``factors`` (sums as tensor units have
them), ``candidates`` (sums for tensor units, tried on a copy), ``places`` (every Func at its
place), and the kernels of what goes to CUDA cores: ``blocks`` (sums that share what they read),
``sweeps`` with ``rows`` (sums that read all once), ``reductions``, ``kernels`` with ``lanes`` (all
else); for CPUs ``host``. ``recorder`` applies directives and writes them down.
"""

from __future__ import annotations

from halide_bridge.schedules.attention import Attention, Joining, schedule_attention
from halide_bridge.schedules.contraction import Contraction, Operand, contract
from halide_bridge.schedules.windows import Windows, schedule_windows

__all__ = [
    "Attention",
    "Contraction",
    "Joining",
    "Operand",
    "Windows",
    "contract",
    "schedule_attention",
    "schedule_windows",
]
