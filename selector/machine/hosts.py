"""The CPU that a schedule is made for: as GPUs are, data that costs are computed from.

Tiles: Intel 64 and IA-32 Architectures Optimization Reference Manual, chapter on AMX: a product of
tile registers begins every 16 cycles; a load of one from the second-level cache, whose lines are as
long as its rows, takes as many.
"""

from __future__ import annotations

from selector.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Host:
    """A CPU. ``cores`` that loops are shared by; bytes of the second-level cache of one, and that
    a cycle brings there (``fill``); of a vector register; ``product`` and ``load`` of a tile
    register in cycles.
    """

    name: str
    cores: int
    l2_bytes: int
    fill: float
    vector: int = 64
    product: int = 16
    load: int = 16


HOST = Host("Sapphire Rapids", cores=16, l2_bytes=2 << 20, fill=8.0)
"""What CPU targets stand for: the first with AMX. A schedule is right on any CPU."""
