"""How fast a GPU can do a job at most: the larger of its bytes over the memory's rate and its
multiply-adds over the tensor units' rate.
"""

from __future__ import annotations

from dataclasses import dataclass

from casestudies.common.case import Problem, bytes_of


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


_COPY = "memory: a device copy, measured; tensor units: data sheet, dense"
_SHEET = "data sheet, dense"
# The first whose name the device's holds: longer names first.
GPUS = (
    Ceilings("H200", 4.23, 495, 990, _COPY),
    Ceilings("H100 PCIe", 2.0, 378, 756, _SHEET),
    Ceilings("H100", 3.35, 495, 990, _SHEET),
    Ceilings("A100-SXM4-80GB", 2.04, 156, 312, _SHEET),
    Ceilings("A100 80GB PCIe", 1.94, 156, 312, _SHEET),
    Ceilings("A100", 1.56, 156, 312, _SHEET),
    Ceilings("RTX 4090", 1.01, 82.6, 330, _SHEET),
)


def ceilings_of(device: str) -> Ceilings | None:
    """The ceilings of a GPU by the name that CUDA gives it; None for one that is not known."""
    return next((gpu for gpu in GPUS if gpu.gpu in device), None)
