"""The CPU that a schedule is made for: as GPUs are, data that costs are computed from.

A product of tile registers begins every 16 cycles (Intel 64 and IA-32 Architectures Optimization
Reference Manual, chapter on AMX). Measured, in products of 1024^3 on one core of a Xeon of that
kind: what a step's loads of tile registers take, and elements of B that are put in order.
"""

from __future__ import annotations

from selector.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Host:
    """A CPU. ``cores`` that loops are shared by; bytes of the second-level cache of one, and that
    a cycle brings there (``fill``); ``product`` and ``load`` of a tile register in cycles;
    elements that are ``swizzled`` in one.
    """

    name: str
    cores: int
    l2_bytes: int
    fill: float
    product: int = 16
    load: int = 32
    swizzled: float = 1.5


HOST = Host("Sapphire Rapids", cores=16, l2_bytes=2 << 20, fill=8.0)
"""What CPU targets stand for: the first with AMX. A schedule is right on any CPU."""
