"""What the machine code of a case study must hold."""

from __future__ import annotations

import re
from collections.abc import Mapping

from selector.runtime.nvrtc import resource_usage, sass

# Scans have no products for tensor units; layers of few pixels or channels leave warps idle.
ON_CORES = (
    "recursive_filter", "conv_layer-c16-16-1x1x1", "conv_layer-c3-16-2x5x9",
    "conv_layer-c24-20-s3-2x5x3",
)  # fmt: skip


def side_by_side(sources: Mapping[str, str]) -> dict[str, str]:
    """The sources of several programs such that one text can hold all: a namespace each, and its
    number in the names of its kernels. The machine code stays what it is.
    """
    found: dict[str, str] = {}
    for i, (program, source) in enumerate(sources.items()):
        numbered = re.sub(r"\bkernel_", f"kernel_{i}_", source)
        found[program] = f"namespace n{i} {{\n{numbered}\n}}"
    return found


def assert_machine_code(sources: Mapping[str, str], cubin: bytes) -> None:
    """The SASS of every kernel with tensor statements holds the matrix instruction, and none
    spills. ``sources``: what was compiled together, by program.
    """
    program_of: dict[str, str] = {}
    tensor: set[str] = set()
    for program, source in sources.items():
        bodies = source.split('extern "C" ')[1:]
        names = [re.findall(r"\bkernel_\w+", body)[0] for body in bodies]
        program_of |= dict.fromkeys(names, program)
        own = {name for name, body in zip(names, bodies, strict=True) if "mma" in body}
        assert own or program.startswith(ON_CORES), f"{program} has no tensor statement"
        tensor |= own
    codes = sass(cubin)
    assert codes.keys() == program_of.keys()
    for entry, code in codes.items():
        wanted = r"\bIG?MMA\b" if "s8" in program_of[entry] else r"\bHG?MMA\b"
        found = re.search(wanted, code)
        assert found or entry not in tensor, f"no {wanted} in {entry} of {program_of[entry]}"
    usages = resource_usage(cubin)
    assert usages.keys() == program_of.keys()
    for entry, usage in usages.items():
        assert not usage.local_accesses, (
            f"{entry} of {program_of[entry]} spills to local memory: {usage}"
        )
