"""The targets and their limits, as data.

Shared memory, registers and what a multiprocessor holds: CUDA C++ Programming Guide, table of
compute capabilities; of Blackwell, Blackwell Tuning Guide, "Occupancy", and for the blocks of 12.0,
where these differ, the fewer of ``cuda_occupancy.h``. A kernel for ``cuda`` is compiled for the GPU
at hand.
"""

from __future__ import annotations

from selector.dataclass import dataclass
from selector.diagnostics import TargetError

COMPILE_ONLY = "compile-only, not run on this hardware"
# Elements of a box of the copy engine along a dimension, with those between them, at most (CUDA
# Driver API, cuTensorMapEncodeTiled).
LARGEST_BOX = 256
VECTOR_BYTES = 16  # that a thread loads or stores at once
THREAD_LANES = 64  # of a thread's vector statement, at most
LEAST_KEPT, MOST_GIVEN = 32, 240  # registers of a thread: of one that feeds others, of any other


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """What the blocks on one multiprocessor share: at most ``warps`` and ``blocks``, bytes of
    shared memory and 32-bit registers.

    Registers are given to a warp in units of ``register_unit``, and each of the ``partitions`` has
    an equal part of them. Shared memory is given in units of ``shared_unit`` bytes, and the system
    takes ``reserved_shared`` bytes of each block's.
    """

    warps: int
    blocks: int
    shared_memory: int
    registers: int = 65536
    partitions: int = 4
    register_unit: int = 256
    shared_unit: int = 128
    reserved_shared: int = 1024


@dataclass(frozen=True, slots=True)
class Target:
    """What a kernel is compiled for. Bytes of shared memory are per block; registers are per
    thread. ``compile_only``: nobody has run its code on a GPU, only simulated and emulated it.
    """

    name: str
    family: str  # "cuda" or "amx"
    capability: int = 0  # 80 for sm_80
    shared_memory: int = 0
    registers: int = 255
    max_threads: int = 1024
    features: frozenset[str] = frozenset()
    multiprocessor: Multiprocessor | None = None  # None on a CPU
    compile_only: bool = False

    def has(self, feature: str) -> bool:
        return feature in self.features


_AMPERE = frozenset({"wmma", "mma", "cp.async", "ldmatrix"})
_ADA = _AMPERE | {"mma.fp8"}
_HOPPER = _ADA | {"bulk", "mbarrier", "stmatrix", "griddepcontrol"}
_BLACKWELL = _HOPPER | {"boxes"}
"""``boxes``: operands of warps that are staged ahead come by tensor maps. sm_90 could do that as
well; what it does was measured without, so that there it is asked for (``self_fed``).
"""
_SM_80 = Multiprocessor(64, 32, 164 * 1024)
_SM_86 = Multiprocessor(48, 16, 100 * 1024)
_SM_89 = Multiprocessor(48, 24, 100 * 1024)
_SM_90 = Multiprocessor(64, 32, 228 * 1024)
_SM_100 = Multiprocessor(64, 32, 228 * 1024)
_SM_120 = Multiprocessor(48, 24, 100 * 1024)

TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        Target("sm_80", "cuda", 80, 163 * 1024, features=_AMPERE, multiprocessor=_SM_80),
        Target("sm_86", "cuda", 86, 99 * 1024, features=_AMPERE, multiprocessor=_SM_86),
        Target("sm_89", "cuda", 89, 99 * 1024, features=_ADA, multiprocessor=_SM_89),
        Target("sm_90", "cuda", 90, 227 * 1024, features=_HOPPER, multiprocessor=_SM_90),
        Target(
            "sm_90a", "cuda", 90, 227 * 1024, features=_HOPPER | {"wgmma"}, multiprocessor=_SM_90
        ),
        Target(
            "sm_100", "cuda", 100, 227 * 1024, features=_BLACKWELL, multiprocessor=_SM_100,
            compile_only=True,
        ),
        Target(
            "sm_100a", "cuda", 100, 227 * 1024, features=_BLACKWELL | {"tcgen05"},
            multiprocessor=_SM_100, compile_only=True,
        ),
        Target(
            "sm_120", "cuda", 120, 99 * 1024, features=_BLACKWELL, multiprocessor=_SM_120,
            compile_only=True,
        ),
        Target("amx", "amx", features=frozenset({"amx"})),
    )
}  # fmt: skip


def find_target(name: str) -> Target:
    """The target of that name; ``TargetError`` lists the names there are."""
    if name not in TARGETS:
        raise TargetError(
            f"unknown target {name!r}", hint=f"known targets: cuda, {', '.join(TARGETS)}"
        )
    return TARGETS[name]


def given_registers(equal: int, groups: int) -> int:
    """Registers of a thread of so many groups that multiply, where one more only feeds them and
    gives them what it does not need of its ``equal`` share (PTX ISA, ``setmaxnreg``: steps of 8).
    """
    return min(MOST_GIVEN, (equal * (groups + 1) - LEAST_KEPT) // groups // 8 * 8)


def runs_on(target: Target, capability: int) -> bool:
    """Whether machine code for ``target`` runs on a device of that compute capability (90 for 9.0).

    Code runs on its own major version from its own minor version on; that of an ``a`` target on its
    own capability alone (CUDA C++ Programming Guide, binary compatibility).
    """
    if target.family != "cuda":
        return False
    if target.name.endswith("a"):
        return capability == target.capability
    same_major = capability // 10 == target.capability // 10
    return same_major and capability >= target.capability


def target_for(capability: int) -> Target:
    """The best target for a device of that compute capability; ``TargetError`` if there is none."""
    fitting = [t for t in TARGETS.values() if runs_on(t, capability)]
    if not fitting:
        raise TargetError(
            f"this GPU (compute capability {capability // 10}.{capability % 10}) has no target yet",
            why=f"the targets are {', '.join(t.name for t in TARGETS.values())}",
            hint="kernel.interpret(...) runs anywhere",
        )
    return max(fitting, key=lambda t: (t.capability, len(t.features)))
