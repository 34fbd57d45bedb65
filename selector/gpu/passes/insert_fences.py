"""Fences before what reads by another way than it was written. So far that of wgmma: registers that
a group of instructions takes, accumulators too, are those that its threads have written before
(PTX ISA, ``wgmma.fence``).

Those of the proxies stand where the emitter writes stores; of two that follow each other with
nothing stored between them the second is enough.
"""

from __future__ import annotations

from dataclasses import replace

from selector.gpu.ir.nodes import Body, Commit, Drain, Fence, Kernel, Node, of_groups
from selector.gpu.ir.products import Mma
from selector.gpu.passes.rebuilt import rebuilt_bodies


def insert_fences(kernel: Kernel) -> Kernel:
    """The kernel with a fence before the first instruction of each group that is committed, and
    none of the proxies twice.
    """
    if not of_groups(kernel):
        return kernel
    return replace(kernel, body=rebuilt_bodies(kernel.body, lambda b: _once(_fenced(b))))


def _once(body: Body) -> Body:
    found: list[Node] = []
    last: int | None = None  # where a fence stands after which nothing was stored
    for node in body:
        match node:
            case Fence("proxy"):
                if last is not None:
                    del found[last]
                last = len(found)
            case Commit("copies") | Drain("copies"):
                pass
            case _:
                last = None
        found.append(node)
    return tuple(found)


def _fenced(body: Body) -> Body:
    found: list[Node] = []
    begun = False
    for node in body:
        match node:
            case Mma(record=record) if record.asynchronous and not begun:
                found.append(Fence("matrix"))
                begun = True
            case Commit("matrix"):
                begun = False
            case _:
                pass
        found.append(node)
    return tuple(found)
