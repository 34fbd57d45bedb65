"""How fast a GPU can do a job at most: the larger of its bytes over the memory's rate and its
multiply-adds over the tensor units' rate.
"""

from __future__ import annotations

from dataclasses import dataclass

from casestudies.common.case import Problem, bytes_of
from selector.machine import Rate, machine_named

F16_AND_BYTES: tuple[tuple[Rate, ...], ...] = (("wgmma.f16", "mma.f16"), ("wgmma.s8", "mma.s8"))


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What a GPU does at most: 10^12 bytes a second, read and written together, and 10^12
    multiply-adds a second of f16 (bf16 the same) and of bytes. ``gpu`` is what its name holds.
    """

    gpu: str
    terabytes_per_second: float
    tera_macs: float
    tera_macs_of_bytes: float
    source: str

    def limit(self, moved: int, multiply_adds: int, element: str) -> Limit:
        """The limit of a job with operands of that element type."""
        macs = self.tera_macs_of_bytes if element in ("s8", "u8") else self.tera_macs
        memory = moved / self.terabytes_per_second / 1e6
        arithmetic = multiply_adds / macs / 1e6
        return Limit(max(memory, arithmetic), "memory" if memory >= arithmetic else "arithmetic")

    def limit_of(self, problem: Problem) -> Limit:
        return self.limit(bytes_of(problem), problem.multiply_adds, problem.inputs[0].element)


@dataclass(frozen=True, slots=True)
class Limit:
    """Microseconds below which a job cannot go, and what sets them."""

    microseconds: float
    bound: str


def ceilings_of(device: str) -> Ceilings | None:
    """The ceilings of a GPU by the name that CUDA gives it; None for one that is not known. Memory
    is what a device copy reaches, where that was measured, else the data sheet's; tensor units are
    the data sheet's, dense.
    """
    m = machine_named(device)
    if m is None:
        return None
    copied = "copy" in m.measured
    f16, s8 = (max(m.tera_macs(rate, boosted=True) for rate in rates) for rates in F16_AND_BYTES)
    memory = "a device copy, measured" if copied else "data sheet"
    source = f"memory: {memory}; tensor units: data sheet, dense"
    return Ceilings(m.name, m.copy if copied else m.dram, f16, s8, source)
