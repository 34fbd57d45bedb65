"""Which kernels of a pipeline compute the same in every call of one size: tables of weights and the
like, which depend on no input.
"""

from __future__ import annotations

from collections.abc import Set

from selector.ir.module import Module
from selector.ir.nodes import Allocate, Var
from selector.ir.traverse import walk_all_exprs, walk_expr, walk_stmt
from selector.lowering.kernels import Kernel, Program
from selector.lowering.structure import loaded_names, stored_names


def constant_kernels(program: Program, module: Module) -> frozenset[int]:
    """Numbers of the kernels that write intermediates only, from sizes and such intermediates.

    An intermediate that any other kernel writes as well is none of those: it has to start anew.
    """
    scalars = {s.name for s in module.scalars}
    traffic = [traffic_of(k) for k in program.kernels]
    constant = {b.name for b in program.buffers}
    changed = True
    while changed:
        changed = False
        for kernel, (reads, writes) in zip(program.kernels, traffic, strict=True):
            if writes & constant and (not reads | writes <= constant or _uses(kernel, scalars)):
                constant -= writes
                changed = True
    return frozenset(n for n, (_, writes) in enumerate(traffic) if writes <= constant)


def traffic_of(kernel: Kernel) -> tuple[Set[str], Set[str]]:
    """Buffers beyond the kernel that it reads, and those that it writes."""
    own = {s.name for s in walk_stmt(kernel.body) if isinstance(s, Allocate)}
    return loaded_names(kernel.body) - own, stored_names(kernel.body) - own


def _uses(kernel: Kernel, names: set[str]) -> bool:
    grid = (e for loop in kernel.grid for b in (loop.min, loop.extent) for e in walk_expr(b))
    found = (*walk_all_exprs(kernel.body), *grid)
    return any(isinstance(e, Var) and e.name in names for e in found)
