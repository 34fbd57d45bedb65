"""What each kernel of a plan takes of a multiprocessor, and how many of its blocks one holds.

It is read off the machine code and computed from the limits of the target: no GPU is asked. The
rules of allocation are those of the CUDA toolkit's occupancy calculator (``cuda_occupancy.h``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict

from selector.dataclass import dataclass
from selector.runtime import nvrtc
from selector.runtime.plan import Plan
from selector.targets import Multiprocessor, Target

_OPCODE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", re.MULTILINE)
_STATES_RESERVED = 90
"""Compute capability from which a cubin counts what the system takes as shared memory."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks on one multiprocessor, the ``share`` of its warps that they are, and which limit
    binds: "registers", "shared memory", "warps" or "blocks".
    """

    blocks: int
    share: float
    limit: str


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What one kernel takes: registers of a thread, bytes of shared memory of a block (static and
    dynamic), bytes of stack of a thread; how many instructions it has, by opcode without modifiers,
    most frequent first.
    """

    entry: str
    threads: int
    registers: int
    shared_bytes: int
    stack_bytes: int
    occupancy: Occupancy
    instructions: Mapping[str, int]

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def occupancy(machine: Multiprocessor, threads: int, registers: int, shared: int) -> Occupancy:
    """For blocks of that many ``threads``, each with so many ``registers``, and ``shared`` bytes.

    No blocks, where one does not fit at all.
    """
    warps = -(-threads // 32)
    held = _round_up(registers * 32, machine.register_unit)
    in_registers = machine.registers // machine.partitions // held * machine.partitions
    taken = _round_up(shared + machine.reserved_shared, machine.shared_unit)
    limits = {
        "warps": machine.warps // warps,
        "registers": in_registers // warps,
        "shared memory": machine.shared_memory // taken,
        "blocks": machine.blocks,
    }
    limit = min(limits, key=limits.__getitem__)
    return Occupancy(limits[limit], limits[limit] * warps / machine.warps, limit)


def kernel_resources(plan: Plan, cubin: bytes, target: Target) -> tuple[KernelResources, ...]:
    """Every kernel that the plan launches, each once, in order."""
    assert target.multiprocessor is not None, "machine code is for a GPU"
    usage, code = nvrtc.resource_usage(cubin), nvrtc.sass(cubin)
    reserved = target.multiprocessor.reserved_shared
    found: dict[str, KernelResources] = {}
    for launch in plan.launches:
        used = usage[launch.entry]
        static = used.shared_bytes
        if target.capability >= _STATES_RESERVED:
            static = max(static - reserved, 0)
        shared = static + launch.shared_bytes
        found[launch.entry] = KernelResources(
            launch.entry,
            launch.threads,
            used.registers,
            shared,
            used.stack_bytes,
            occupancy(target.multiprocessor, launch.threads, used.registers, shared),
            count_opcodes(code[launch.entry]),
        )
    return tuple(found.values())


def count_opcodes(disassembly: str) -> dict[str, int]:
    """How often each opcode occurs, modifiers aside; ``NOP``, which fills up, does not count."""
    counts = Counter(_OPCODE.findall(disassembly))
    del counts["NOP"]
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
