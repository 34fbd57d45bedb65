"""How a kernel is arranged: its threads, what operands of warpgroups lie in, who brings them; and
what no kernel can be.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import NoReturn

from selector.diagnostics import ScheduleError, Where
from selector.gpu.codegen.arrangement import Arrangement
from selector.gpu.codegen.products.register_tiles import register_names
from selector.gpu.codegen.shared_memory import Layouts
from selector.gpu.codegen.warpgroups.panels import find_panels
from selector.gpu.codegen.warpgroups.tensor_kernels import arrange_tensor, check_tensor
from selector.gpu.codegen.warpgroups.windows import find_slots, find_windows
from selector.ir.nodes import Allocate, For, ForKind, Memory, Stmt, Store
from selector.ir.traverse import walk_stmt
from selector.lowering.normalize import TENSOR_MEMORY, holds_tensor, is_tensor_store
from selector.lowering.structure import in_order, outside_threads, thread_regions
from selector.targets import Target


def arrange(
    body: Stmt, name: str, target: Target, asked: Arrangement
) -> tuple[Arrangement, Layouts]:
    """How the block of a kernel's ``body`` is arranged for which so much is ``asked``, and how the
    operands of warpgroups lie.
    """
    regions = list(thread_regions(body))
    warps = [prod(e for _, e in loops) for loops, inner in regions if holds_tensor(inner)]
    threads = [prod(e for _, e in loops) for loops, inner in regions if not holds_tensor(inner)]
    if warps:
        check_inside_threads(body)
    block = replace(asked, warps=max(warps, default=1))
    layouts = Layouts()
    if _of_groups(body, name):
        block = replace(block, group=True)
        if target.has("tcgen05"):
            block = arrange_tensor(body, name, block)
        layouts = _group_layouts(body)
        slots = frozenset(find_slots(body, {} if block.self_fed else layouts.windows))
        producer = not block.self_fed and bool(slots & layouts.group_operands)
        block = replace(block, slots=slots, producer=producer)
        if block.tensor:
            check_tensor(name, block)
    tensor = holds_tensor(body)
    count = block.consumers + 128 * block.producer if tensor else max([1, *threads])
    block = replace(block, threads=count)
    check_threads(name, target, block, tensor=tensor)
    return block, layouts


def _group_layouts(body: Stmt) -> Layouts:
    panels = find_panels(body, register_names(body))
    return Layouts(panels, find_windows(body, panels))


def _of_groups(body: Stmt, name: str) -> bool:
    """Whether this is a kernel of warpgroups."""
    memories = {
        s.memory: s
        for s in walk_stmt(body)
        if isinstance(s, Allocate) and s.memory in TENSOR_MEMORY
    }
    if Memory.WGMMA_ACCUMULATOR not in memories:
        return False
    if len(memories) > 1:
        raise ScheduleError(
            f"`{name}` has accumulators of warps and of warpgroups in one kernel",
            ", ".join(f"`{s.name}` is in {m.value}" for m, s in memories.items()),
            "keep all of them in one kind of memory",
        )
    return True


def last_for_all(body: Stmt) -> Stmt | None:
    """The last statement that the group that feeds takes part in: the groups do the rest alone."""
    last = None
    for s in in_order(body):
        if not (isinstance(s, For) and s.kind is ForKind.GPU_THREAD and holds_tensor(s)):
            last = s
    return last


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
