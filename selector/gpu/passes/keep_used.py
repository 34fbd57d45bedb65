"""What a kernel declares and nobody mentions goes: parameters, and numbers of the prologue."""

from __future__ import annotations

from dataclasses import replace

from selector.gpu.ir.mentioned import mentioned
from selector.gpu.ir.nodes import Kernel, Let, Node


def keep_used(kernel: Kernel) -> Kernel:
    """The kernel without them. A declaration that declares several stays whole."""
    used = mentioned(kernel.body)
    kept: list[Node] = []
    for node in reversed(kernel.declarations):
        match node:
            case Let(names=names) if used.isdisjoint(names):
                continue
            case _:
                used |= mentioned((node,))
        kept.append(node)
    parameters = tuple(p for p in kernel.parameters if p.name in used)
    return replace(kernel, parameters=parameters, declarations=tuple(reversed(kept)))
