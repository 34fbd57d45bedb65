"""What directives ask of the grids of kernels."""

from __future__ import annotations

from selector.diagnostics import ScheduleError, Where
from selector.gpu.codegen.arrangement import Arrangement
from selector.ir.kinds import GridKind
from selector.ir.module import Module
from selector.ir.nodes import IntImm
from selector.lowering.kernels import Kernel, Program

MOST_ACROSS = 65535  # blocks along y, and along z


def asked_of(kernel: Kernel, module: Module, kind: GridKind) -> int:
    """The number of blocks in a directive of that kind; 0 without one."""
    loops = {loop.name.split(".")[0] for loop in kernel.grid}
    return max((g.blocks for g in module.grids if g.kind is kind and g.func in loops), default=0)


def resident_of(kernel: Kernel, module: Module) -> int:
    """Blocks that are to be on a multiprocessor: that share it, or that stay there."""
    asked = (asked_of(kernel, module, kind) for kind in (GridKind.RESIDENT, GridKind.PERSISTENT))
    return next(filter(None, (*asked, kernel.resident)), 1)


def check_grids(module: Module, program: Program) -> None:
    """Every directive about a grid has a kernel that it is about."""
    computed = {loop.name.split(".")[0] for kernel in program.kernels for loop in kernel.grid}
    for g in module.grids:
        if g.func not in computed:
            known = ", ".join(f"`{name}`" for name in sorted(computed))
            raise ScheduleError(
                f"`{g.func}` has no kernel of its own",
                f"a directive asks for one ({g.kind.value}), and the kernels compute {known}",
                "name the Func whose loops are gpu_blocks",
                Where(func=g.func),
            )


def is_in_line(kernel: Kernel, module: Module, asked: Arrangement) -> bool:
    """Whether all blocks are along x, since somebody asks for it, or a loop has more of them than y
    and z have room for.
    """
    ordered = asked.persistent > 0 or asked.cluster > 1
    if asked_of(kernel, module, GridKind.IN_LINE) and ordered:
        func = kernel.grid[-1].name.split(".")[0]
        raise ScheduleError(
            f"the blocks of `{func}` cannot be numbered in line",
            "its grid is persistent, or of clusters, which are numbered in their own way",
            "leave out `in_line`, or the other",
            Where(func=func),
        )
    extents = [loop.extent for loop in kernel.grid[:-1]]
    long = any(isinstance(e, IntImm) and e.value > MOST_ACROSS for e in extents)
    return not ordered and (long or asked_of(kernel, module, GridKind.IN_LINE) > 0)
