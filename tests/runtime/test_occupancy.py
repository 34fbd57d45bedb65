"""What a kernel takes of a multiprocessor: from the limits of targets, and read off cubins."""

from __future__ import annotations

import pytest

import selector
from rules import program_files
from selector.ir.parser import parse_module
from selector.runtime import nvrtc
from selector.runtime.occupancy import Occupancy, count_opcodes, kernel_resources, occupancy
from selector.targets import TARGETS, find_target


@pytest.mark.parametrize(
    ("target", "threads", "registers", "shared", "expected"),
    [
        # As the CUDA toolkit's occupancy calculator says.
        ("sm_80", 256, 32, 0, Occupancy(8, 1.0, "warps")),
        ("sm_86", 256, 32, 0, Occupancy(6, 1.0, "warps")),
        ("sm_80", 32, 16, 0, Occupancy(32, 0.5, "blocks")),
        ("sm_86", 32, 16, 0, Occupancy(16, 16 / 48, "blocks")),
        ("sm_89", 32, 16, 0, Occupancy(24, 0.5, "blocks")),
        ("sm_100", 256, 32, 0, Occupancy(8, 1.0, "warps")),
        ("sm_120", 256, 32, 0, Occupancy(6, 1.0, "warps")),
        ("sm_120", 32, 16, 0, Occupancy(24, 0.5, "blocks")),
        ("sm_90a", 256, 255, 0, Occupancy(1, 0.125, "registers")),
        ("sm_80", 128, 168, 0, Occupancy(3, 12 / 64, "registers")),
        # 33 registers are given as 40: 4 partitions x 12 warps of 1280 registers.
        ("sm_80", 1024, 33, 0, Occupancy(1, 0.5, "registers")),
        ("sm_80", 128, 33, 0, Occupancy(12, 0.75, "registers")),
        # 1 KiB of each block is the system's: 7 x (20 + 1) KiB fit into 164 KiB, 8 would without.
        ("sm_80", 64, 32, 20 * 1024, Occupancy(7, 14 / 64, "shared memory")),
        ("sm_90", 128, 32, 227 * 1024, Occupancy(1, 4 / 64, "shared memory")),
        ("sm_90", 128, 32, 227 * 1024 + 1, Occupancy(0, 0.0, "shared memory")),
        # A part of a warp is a warp.
        ("sm_80", 33, 32, 0, Occupancy(32, 1.0, "warps")),
    ],
)
def test_occupancy(
    target: str, threads: int, registers: int, shared: int, expected: Occupancy
) -> None:
    machine = find_target(target).multiprocessor
    assert machine is not None
    assert occupancy(machine, threads, registers, shared) == expected


def test_the_largest_block_of_every_target_fits() -> None:
    for target in TARGETS.values():
        if target.multiprocessor is None:
            assert target.family == "amx"
            continue
        found = occupancy(target.multiprocessor, 32, 32, target.shared_memory)
        assert found.blocks == 1
        assert occupancy(target.multiprocessor, 32, 32, target.shared_memory + 1).blocks == 0


def test_opcodes_are_counted_without_predicates_and_modifiers() -> None:
    text = """
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E R4, desc[UR6][R4.64+0x4] ;
        /*0020*/             @UP0 HMMA.16816.F32 R4, R4, R6, R8 ;
        /*0030*/                   HMMA.16816.F32 R4, R4, R6, R8 ;
.L_x_0:
        /*0040*/                   BRA `(.L_x_0);
        /*0050*/                   NOP;
    """
    found = count_opcodes(text)
    assert found == {"HMMA": 2, "BRA": 1, "LDC": 1, "LDG": 1}
    assert list(found) == ["HMMA", "BRA", "LDC", "LDG"]


@pytest.mark.nvrtc
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_a_kernel_is_read_off_its_machine_code(target: str) -> None:
    module = parse_module(dict(program_files())["conv1d.vir"], "conv1d.vir")
    kernel = selector.compile(module, target=target)
    cubin = nvrtc.compile_to_cubin(kernel.source, target)
    (found,) = kernel_resources(kernel.plan, cubin, find_target(target))
    (usage,) = nvrtc.resource_usage(cubin).values()
    assert (found.threads, found.registers) == (128, usage.registers)
    # The image's rows and the band, on either target; what the system takes is not the kernel's.
    assert found.shared_bytes >= 584 * 4 * 2
    assert found.instructions["HMMA"] >= 8
    assert found.occupancy.blocks >= 1
