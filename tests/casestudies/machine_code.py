"""What the machine code of a case study must hold; the tests of selection and those of compile
times share it, so that a program is compiled once for both.
"""

from __future__ import annotations

import re
from typing import Any

from selector.runtime.nvrtc import resource_usage, sass


def assert_machine_code(kernel: Any, program: str) -> None:
    """The SASS of every kernel with tensor statements holds the matrix instruction, and none
    spills.
    """
    target, cubin = kernel.target.name, kernel.cubin()
    wanted = r"\bIG?MMA\b" if "s8" in program else r"\bHG?MMA\b"
    bodies = kernel.source.split('extern "C" ')[1:]
    tensor = {re.findall(r"\bkernel_\w+", body)[0] for body in bodies if "mma" in body}
    assert tensor
    for entry, code in sass(cubin).items():
        found = re.search(wanted, code)
        assert found or entry not in tensor, f"no {wanted} in {entry} of {program} for {target}"
    for entry, usage in resource_usage(cubin).items():
        assert not usage.local_accesses, f"{entry} of {program} spills to local memory: {usage}"
