"""What no kernel can be: more threads than a block has, tensor statements outside of the warps of
their kernel, operands that nobody stages.
"""

from __future__ import annotations

from typing import NoReturn

from selector.diagnostics import ScheduleError, Where
from selector.emit.arrangement import Arrangement
from selector.ir.nodes import Stmt, Store
from selector.lowering.normalize import is_tensor_store
from selector.lowering.structure import outside_threads
from selector.targets import Target


def check_threads(name: str, target: Target, block: Arrangement, *, tensor: bool) -> None:
    """``ScheduleError`` for a block with more threads than the target has."""
    if block.threads > target.max_threads:
        raise ScheduleError(
            f"`{name}` asks for {block.threads} threads per block of {target.max_threads}",
            f"in a kernel with tensor statements a gpu_thread loop counts {block.unit}s of "
            f"{block.unit_threads} threads"
            if tensor
            else "",
            "use fewer or smaller gpu_thread loops",
        )


def check_inside_threads(body: Stmt) -> None:
    """``ScheduleError`` for a tensor statement outside of the thread loops that others are in."""
    for s in outside_threads(body):
        if is_tensor_store(s):
            assert isinstance(s, Store)
            raise ScheduleError(
                f"a tensor statement of `{s.buffer}` stands outside the warps",
                "others of its kernel are inside gpu_thread loops, which enumerate warps",
                f"mark a loop of every stage of `{s.buffer}` with gpu_threads(...)",
                Where(func=s.buffer),
            )


def refuse_unfed(name: str) -> NoReturn:
    """``ScheduleError`` for a kernel that is to feed itself, in which no loop does."""
    raise ScheduleError(
        f"`{name}` cannot feed itself",
        "no loop of its kernel stages operands of tensor instructions ahead",
        "give the staged operands pipeline_stages(...); else drop self_fed(...)",
        Where(func=name),
    )
