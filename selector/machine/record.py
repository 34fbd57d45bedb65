"""What a cost needs to know of a GPU, besides its target's limits (registers, shared memory and
threads of a multiprocessor: ``Target.multiprocessor``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Literal

from selector.dataclass import dataclass

Rate = Literal["wgmma.f16", "wgmma.s8", "mma.f16", "mma.f16.f16", "mma.s8", "fma.f32"]


@dataclass(frozen=True, slots=True)
class Machine:
    """A GPU. Rates of a multiprocessor are per clock of ``megahertz``, the clock that it holds
    under load.

    ``name``: what the name that CUDA gives it holds. ``rates``: multiply-adds a clock of a
    multiprocessor, dense, by kind: of operands f16 (bf16 is the same) and bytes, sums in 32 bits
    but for ``mma.f16.f16``. ``dram``: 10^12 bytes a second by the data sheet; ``copy``: what a
    device copy reaches, read and written together. ``l2``: 10^12 bytes a second that all
    multiprocessors together get from the L2 cache of ``l2_bytes``; ``fill``: bytes a clock that one
    of them gets. ``shared``: bytes a clock from its shared memory. ``launch``: microseconds of
    an empty kernel in a graph of them, ``behind``: those that a kernel takes less which starts
    early behind another one, and reads what that has left in the L2 cache. ``latency``:
    nanoseconds from a load to the bytes of DRAM, ``barrier``: of a block of 256 threads at a
    barrier. ``clusters``: blocks of clusters of that size that run at once, one a
    multiprocessor, where it is known; ``boost``: the clock that data sheets count with, where
    it is another than ``megahertz``; ``measured``: the fields that were measured on such a GPU,
    the others are of ``source``, or follow from those of a GPU of the same generation.
    """

    name: str
    target: str
    multiprocessors: int
    megahertz: float
    rates: Mapping[Rate, float]
    dram: float
    copy: float
    l2_bytes: int
    l2: float
    fill: float
    source: str
    shared: float = 128.0
    launch: float = 1.3
    behind: float = 1.9
    latency: float = 700.0
    barrier: float = 20.0
    clusters: tuple[tuple[int, int], ...] = ()
    boost: float = 0.0
    measured: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        known = {field.name for field in fields(self)}
        assert self.measured <= known, f"{self.name}: no field {set(self.measured) - known}"

    def tera_macs(self, rate: Rate, *, boosted: bool = False) -> float:
        """10^12 multiply-adds a second of all multiprocessors, ``boosted`` as data sheets count; 0
        for a kind that it has not.
        """
        clock = self.boost if boosted and self.boost else self.megahertz
        return self.rates.get(rate, 0.0) * self.multiprocessors * clock / 1e6

    def running(self, cluster: int) -> int:
        """Multiprocessors that blocks in clusters of that size find, one a multiprocessor."""
        return dict(self.clusters).get(cluster, self.multiprocessors // cluster * cluster)

    def kilobytes(self, bytes_a_clock: float) -> float:
        """10^3 bytes a microsecond, of bytes a clock."""
        return bytes_a_clock * self.megahertz / 1e3
