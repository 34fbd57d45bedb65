"""What no kernel can be: more threads than a block has, tensor statements outside of the warps of
their kernel, operands that nobody stages.
"""

from __future__ import annotations

from selector.diagnostics import ScheduleError, Where
from selector.emit.context import KernelContext
from selector.ir.nodes import Stmt, Store
from selector.lowering.normalize import is_tensor_store
from selector.lowering.structure import outside_threads


def check_threads(context: KernelContext, *, tensor: bool) -> None:
    """``ScheduleError`` for a block with more threads than the target has."""
    c = context
    if c.threads > c.target.max_threads:
        raise ScheduleError(
            f"`{c.name}` asks for {c.threads} threads per block of {c.target.max_threads}",
            f"in a kernel with tensor statements a gpu_thread loop counts {c.unit}s of "
            f"{c.unit_threads} threads"
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


def check_fed(context: KernelContext, *, fed: bool) -> None:
    """``ScheduleError`` for a kernel that is to feed itself, in which no loop is ``fed`` so."""
    if context.self_fed and not fed:
        raise ScheduleError(
            f"`{context.name}` cannot feed itself",
            "no loop of its kernel stages operands of tensor instructions ahead",
            "give the staged operands pipeline_stages(...); else drop self_fed(...)",
            Where(func=context.name),
        )
