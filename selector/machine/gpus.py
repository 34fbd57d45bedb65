"""The GPUs that are known.

Multiprocessors, clocks, caches and memory: NVIDIA H100, A100, Ada (AD102), GA102 and RTX Blackwell
architecture white papers, H200 and B200 data sheets. Rates of tensor units follow from the dense
TFLOPS there: TFLOPS / (2 x multiprocessors x the boost clock of that table). That of ``mma.sync``
on sm_90 is 62 % of wgmma's, measured; on sm_100 it is taken to be sm_80's, which nobody measured.
What one multiprocessor gets from L2 is 64 bytes a clock by design (Citadel, "Dissecting the Volta
GPU architecture via microbenchmarking", table 3.1; later ones the same); of Hopper that and the
rate of all of them are what fits timed products (``selector.families.contraction.fitted``).
"""

from __future__ import annotations

from selector.machine.record import Machine, Rate

_HOPPER: dict[Rate, float] = {
    "wgmma.f16": 2048, "wgmma.s8": 4096, "mma.f16": 1270, "mma.f16.f16": 1270, "mma.s8": 2540,
    "fma.f32": 128,
}  # fmt: skip
_A100: dict[Rate, float] = {"mma.f16": 1024, "mma.f16.f16": 1024, "mma.s8": 2048, "fma.f32": 64}
_CONSUMER: dict[Rate, float] = {
    "mma.f16": 256, "mma.f16.f16": 512, "mma.s8": 1024, "fma.f32": 128,
}  # fmt: skip
_B200: dict[Rate, float] = {"mma.f16": 1024, "mma.f16.f16": 1024, "mma.s8": 2048, "fma.f32": 128}

# Clusters of one block a multiprocessor that run at once, times their size: the GPU's processing
# clusters have 16 or 18 multiprocessors each (H200, measured).
_CLUSTERS = ((2, 132), (3, 117), (4, 120), (6, 102), (7, 105), (8, 120), (16, 112))
_MEASURED = frozenset({"megahertz", "copy", "launch", "clusters", "fill", "l2"})
_HOPPER_SHEET = "H100 white paper, table 3; H200 data sheet"
_ADA = "Ada white paper, appendix A"
_AMPERE = "A100 white paper, tables 1 and 4"

MACHINES: tuple[Machine, ...] = (
    Machine(
        "H200", "sm_90a", 132, 1662, _HOPPER, 4.8, 4.23, 60 << 20, 11.4, 107, _HOPPER_SHEET,
        clusters=_CLUSTERS, boost=1830, measured=_MEASURED,
    ),
    Machine(
        "H100 PCIe", "sm_90a", 114, 1620, _HOPPER, 2.04, 1.8, 50 << 20, 9.8, 107, _HOPPER_SHEET,
    ),
    Machine(
        "H100", "sm_90a", 132, 1662, _HOPPER, 3.35, 2.95, 50 << 20, 11.4, 107, _HOPPER_SHEET,
        clusters=_CLUSTERS, boost=1830,
    ),
    Machine("A100-SXM4-80GB", "sm_80", 108, 1410, _A100, 2.04, 1.8, 40 << 20, 4.5, 64, _AMPERE),
    Machine("A100 80GB PCIe", "sm_80", 108, 1410, _A100, 1.94, 1.7, 40 << 20, 4.5, 64, _AMPERE),
    Machine("A100", "sm_80", 108, 1410, _A100, 1.56, 1.37, 40 << 20, 4.5, 64, _AMPERE),
    Machine(
        "RTX 3090", "sm_86", 82, 1695, _CONSUMER, 0.936, 0.85, 6 << 20, 2.0, 64,
        "GA102 white paper, appendix A",
    ),
    Machine("RTX 4090", "sm_89", 128, 2520, _CONSUMER, 1.01, 0.92, 72 << 20, 5.0, 64, _ADA),
    Machine(
        "B200", "sm_100", 148, 1850, _B200, 8.0, 7.0, 126 << 20, 12.0, 64, "B200 data sheet",
    ),
    Machine(
        "RTX 5090", "sm_120", 170, 2407, _CONSUMER, 1.79, 1.6, 96 << 20, 7.0, 64,
        "RTX Blackwell white paper, appendix A",
    ),
)  # fmt: skip
"""The first whose name the device's holds: longer names first. The first of a target is what the
target stands for where no GPU is named."""
