"""One launch of a kernel, with its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from selector.dataclass import dataclass
from selector.gpu.ir.expressions import THREAD
from selector.gpu.ir.memory import Map
from selector.gpu.ir.nodes import Await, Body, If, Kernel, Let, Node, children, expressions, walk
from selector.gpu.ir.products import Mma
from selector.gpu.simulator.data.arithmetic import Arithmetic
from selector.gpu.simulator.data.machine import GROUP, SHARED, WARP, Boxes, Machine
from selector.gpu.simulator.data.run import Run
from selector.gpu.simulator.data.values import Mask, Pointer, Threads
from selector.ir.nodes import Expr, Var
from selector.ir.traverse import conjuncts, walk_expr

MOST_THREADS = 1 << 15  # that are run at once


@dataclass(frozen=True, slots=True)
class Launched:
    """A kernel and what it is launched with: blocks along each dimension, bytes of shared memory,
    the values of its parameters by name; extents and strides in elements of what its tensor maps
    are of.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    shared_bytes: int
    values: Mapping[str, Any]
    maps: Mapping[str, tuple[Pointer, tuple[int, ...], tuple[int, ...]]]


def run_launch(launched: Launched) -> tuple[tuple[str, ...], set[int]]:
    """Runs it on the memory that its pointers are to; what is wrong with it, each once, and the
    ids of the nodes that somebody came to.
    """
    kernel = launched.kernel
    x, y, z = launched.grid
    most = max(MOST_THREADS // kernel.threads // kernel.cluster, 1) * kernel.cluster
    faults: dict[str, None] = {}
    reached: set[int] = set()
    for first in range(0, x * y * z, most):
        blocks = np.arange(first, min(first + most, x * y * z))
        machine = _run_blocks(launched, blocks)
        faults |= machine.memories.faults
        reached |= machine.reached
    return tuple(faults), reached


def _run_blocks(launched: Launched, blocks: Any) -> Machine:
    kernel = launched.kernel
    declared = {n.name: n for n in walk(kernel.declarations) if isinstance(n, Map)}
    maps = {name: Boxes(declared[name], *given) for name, given in launched.maps.items()}
    machine = Machine(kernel, blocks.size, launched.shared_bytes, maps)
    whole = _placed(launched, machine, blocks)
    roles = [_among(whole, mask) for mask in _roles(kernel, whole, machine.arithmetic)]
    with np.errstate(all="ignore"):
        Run(machine, roles)
    return machine


def _placed(launched: Launched, machine: Machine, blocks: Any) -> Threads:
    """All threads, and where each is."""
    kernel, (x, y, _) = launched.kernel, launched.grid
    count = blocks.size * kernel.threads
    v = Threads(count)
    thread = np.tile(np.arange(kernel.threads, dtype=np.int32), blocks.size)
    block = np.repeat(blocks, kernel.threads)
    v.put(THREAD.name, thread)
    v.put("(block)", np.repeat(np.arange(blocks.size), kernel.threads))
    v.put("(thread)", np.arange(count))
    machine.memories.fences.of(count)
    place = {"x": block % x, "y": block // x % y, "z": block // x // y}
    for axis, number in place.items():
        same = (number == number[0]).all()
        v.put(f"blockIdx.{axis}", (number[0] if same else number).astype(np.int32))
    for axis, extent in zip("xyz", launched.grid, strict=True):
        v.put(f"gridDim.{axis}", np.int32(extent))
    v.put("cluster_rank", (block % kernel.cluster).astype(np.int32))
    grouped = any(x.name == "group" for x in _names(kernel))
    lane = thread % WARP
    v.put("lane", lane)
    v.put("warp", thread // WARP)
    v.put("group", thread // GROUP)
    v.put("q", lane % 4)
    v.put("g", lane // 4 + (thread // WARP % 4 * 16 if grouped else 0))
    v.put(SHARED, machine.shared(np.int64(0)))
    for name, value in launched.values.items():
        v.put(name, value)
    v.put("true", np.bool_(True))
    v.put("false", np.bool_(False))
    return v


def _names(kernel: Kernel) -> Iterator[Var]:
    """Variables that a kernel mentions."""
    for node in walk((*kernel.declarations, *kernel.body)):
        for e in expressions(node):
            yield from (x for x in walk_expr(e) if isinstance(x, Var))


# ------------------------------------------------------------------ roles


def _roles(kernel: Kernel, v: Threads, arithmetic: Arithmetic) -> list[Mask]:
    """The threads that run beside each other: warps, or groups where these multiply together, for
    which other conditions hold where somebody waits. All are one where nobody does.
    """
    everybody = np.ones(v.count, bool)
    if v.count % WARP or not any(isinstance(node, Await) for node in walk(kernel.body)):
        return [everybody]
    together = any(isinstance(node, Mma) and node.record.asynchronous for node in walk(kernel.body))
    unit = GROUP if together and kernel.threads % GROUP == 0 else WARP
    marks: list[Any] = [v[THREAD.name] // GROUP]
    _conditions(kernel.body, v.part(everybody), everybody, arithmetic, marks)
    units = np.stack(marks, -1).reshape(-1, unit, len(marks)).max(1)
    _, role = np.unique(units, axis=0, return_inverse=True)
    of = np.repeat(role.reshape(-1), unit)
    return [of == n for n in range(int(of.max()) + 1)]


def _conditions(
    body: Body, v: Threads, here: Mask, arithmetic: Arithmetic, marks: list[Any]
) -> None:
    """Of all conditions under which somebody waits, as far as places of threads decide them, for
    whom they hold of those who are ``here``.
    """
    for node in body:
        match node:
            case Let(_, names, values):
                for name, e in zip(names, values, strict=True):
                    v.restore(name, None)
                    known = _known(e, v, arithmetic)
                    v.put(name, arithmetic.of(e)(v) if known else None)
            case If(condition, then, otherwise) if _waits(node):
                holds = here
                for part in (x for x in conjuncts(condition) if _known(x, v, arithmetic)):
                    holds = holds & (arithmetic.of(part)(v) != 0)
                marks.append(holds)
                _conditions(then, v, holds, arithmetic, marks)
                _conditions(otherwise, v, here & ~holds, arithmetic, marks)
            case _:
                _conditions(children(node), v, here, arithmetic, marks)


def _waits(node: Node) -> bool:
    return any(isinstance(x, Await) for x in walk(children(node)))


def _known(e: Expr, v: Threads, arithmetic: Arithmetic) -> bool:
    """Whether it follows from what is set so far."""
    if arithmetic.loads(e):
        return False
    for name in arithmetic.names(e):
        at: Threads | None = v
        while at is not None and name not in at.own:
            at = at.within
        if at is None or at[name] is None:
            return False
    return True


def _among(v: Threads, mask: Mask) -> Threads:
    """Those threads by themselves."""
    if mask.all():
        return v
    part = v.part(mask)
    for name in tuple(v.own):
        _ = part[name]
    part.within = None
    return part
