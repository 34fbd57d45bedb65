"""Follows all threads of a launch through the nodes of its kernel, with numbers.

Threads that go the same way are one, an axis of arrays, in all blocks at once. Where a condition
parts them, each part goes its way and they go on together (warps do the same). Only kernels whose
threads wait at barriers in shared memory have several that run beside each other: groups of warps,
told apart by the conditions under which they wait (``roles``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from selector.diagnostics import InternalError
from selector.gpu.ir import memory, nodes
from selector.gpu.ir.memory import Array, LoadShifted, LoadVector, Point, Store
from selector.gpu.ir.nodes import (
    Advance,
    Assign,
    Body,
    For,
    Let,
    Local,
    Memory,
    Node,
    State,
    children,
)
from selector.gpu.ir.products import (
    Descriptor,
    Fragment,
    LoadFragment,
    MatrixRows,
    Mma,
    Pin,
    SetTile,
)
from selector.gpu.simulator.data import engine, lane_stores, moves, products
from selector.gpu.simulator.data.barriers import Barriers
from selector.gpu.simulator.data.machine import Machine
from selector.gpu.simulator.data.values import Threads
from selector.ir.nodes import Call, Expr, Var

Left = Any  # of each thread how it leaves a body (0: not at all); None: nobody does
Way = Generator[Callable[[], bool], None, Left]

_LEAVES = {"loop": 1, "iteration": 2, "kernel": 3}
_LOOP, _KERNEL = 1, 3
MOST_STEPS = 200_000
_NOTHING = (
    nodes.Comment, nodes.Commit, nodes.Drain, nodes.Registers, nodes.Dependents,
    memory.Map, memory.Prefetch, Pin,
)  # fmt: skip
_STEPS: dict[type, Callable[[Machine, Threads, Any], None]] = {
    **dict.fromkeys(_NOTHING, lambda m, v, node: None),
    nodes.Fence: moves.fence,
    nodes.Let: moves.declare,
    nodes.State: moves.declare,
    nodes.Memory: moves.memory,
    memory.Point: moves.point,
    memory.Array: moves.array,
    nodes.Assign: moves.assign,
    nodes.Advance: moves.advance,
    memory.Store: moves.store,
    memory.StorePair: lane_stores.store_pair,
    memory.StoreQuad: lane_stores.store_quad,
    memory.StoreEight: lane_stores.store_eight,
    memory.StoreRun: lane_stores.store_run,
    SetTile: moves.set_tile,
    memory.StoreWords: moves.store_words,
    memory.StoreChunk: moves.store_chunk,
    memory.StoreRows: moves.store_rows,
    memory.LoadVector: moves.load_vector,
    memory.StoreVector: moves.store_vector,
    memory.StoreThere: moves.store_there,
    memory.CopyAsync: moves.copy_async,
    memory.CopyElement: moves.copy_element,
    memory.LoadShifted: moves.load_part,
    memory.Evaluate: moves.evaluate,
    Fragment: products.fragment,
    MatrixRows: products.matrix_rows,
    Descriptor: products.descriptor,
    LoadFragment: products.load_fragment,
    Mma: products.multiply,
    memory.EngineStore: engine.store,
}


class Stopped(Exception):  # noqa: N818
    """Threads wait forever, or take too many steps."""


class Run:
    """One launch. ``roles`` are threads that run beside each other."""

    def __init__(self, machine: Machine, roles: list[Threads]) -> None:
        self.machine, self.steps = machine, 0
        self.barriers = Barriers(machine, alone=len(roles) == 1)
        self.assigned: dict[int, frozenset[str]] = {}
        self.declared: dict[int, tuple[str, ...]] = {}
        kernel = machine.kernel
        self._schedule([self._body(v, (*kernel.declarations, *kernel.body)) for v in roles])

    def _schedule(self, ways: list[Way]) -> None:
        """Each goes on as far as it can."""
        ready: dict[int, Callable[[], bool]] = dict.fromkeys(range(len(ways)), lambda: True)
        waiting: dict[int, nodes.Node | None] = {}
        while ready:
            able = [i for i, test in ready.items() if test()]
            if not able:
                for i in ready:
                    self.machine.node = waiting[i]
                    self.machine.memories.fault("waits forever")
                return
            for i in able:
                try:
                    ready[i] = next(ways[i])
                    waiting[i] = self.machine.node
                except StopIteration:
                    del ready[i]
                except Stopped:
                    self.machine.memories.fault("the kernel takes too many steps")
                    return

    # ------------------------------------------------------------------ control

    def _body(self, v: Threads, body: nodes.Body) -> Way:
        """Run it; what is declared in it ends with it."""
        names = self.declared.get(id(body))
        if names is None:
            names = self.declared[id(body)] = tuple(declared_in(body))
        outer = [(name, v.kept(name)) for name in names]
        left, here = None, v
        for node in body:
            gone = yield from self._node(here, node)
            if gone is None:
                continue
            left = np.zeros(v.count, np.int8) if left is None else left
            left[here.places_in(v)] = gone
            if gone.all():
                break
            here = here.part(gone == 0)
        if here is not v:
            self._join(here, v, self._sets(body))
        for name, kept in outer:
            v.restore(name, kept)
        return left

    def _join(self, here: Threads, v: Threads, names: frozenset[str]) -> None:
        while here is not v:
            assert here.within is not None
            here.within.join(here, names)
            here = here.within

    def _sets(self, body: nodes.Body) -> frozenset[str]:
        """Names from outside of a body that are set in it."""
        found = self.assigned.get(id(body))
        if found is None:
            found = self.assigned[id(body)] = set_in(body)
        return found

    def _node(self, v: Threads, node: nodes.Node) -> Way:
        machine = self.machine
        machine.node = node
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Stopped
        step = _STEPS.get(type(node))
        if step is not None:
            machine.idle = False
            step(machine, v, node)
            if not machine.idle:
                machine.reached.add(id(node))
            return None
        machine.reached.add(id(node))
        match node:
            case nodes.Local(body) | nodes.Fused(body):
                return (yield from self._body(v, body))
            case nodes.If():
                return (yield from self._branch(v, node))
            case nodes.For():
                return (yield from self._loop(v, node))
            case nodes.Leave(what):
                return np.full(v.count, _LEAVES[what], np.int8)
            case nodes.Await():
                yield from self.barriers.wait(v, node)
            case nodes.Sync():
                yield from self.barriers.meet(v, node)
            case _:
                self._meet(v, node)
        return None

    def _meet(self, v: Threads, node: nodes.Node) -> None:
        match node:
            case nodes.Init():
                self.barriers.init(v, node)
            case nodes.Retire():
                self.barriers.retire(v, node)
            case nodes.Arrive():
                self.barriers.arrive(v, node)
            case memory.EngineCopy():
                engine.copy(self.machine, self.barriers, v, node)
            case memory.CopyRun():
                engine.run(self.machine, self.barriers, v, node)
            case _:
                raise InternalError(f"{type(node).__name__} cannot be run with numbers")

    def _branch(self, v: Threads, node: nodes.If) -> Way:
        holds = self.machine.holds(v, node.condition)
        if holds.all():
            return (yield from self._body(v, node.then))
        if not holds.any():
            return (yield from self._body(v, node.otherwise)) if node.otherwise else None
        left = None
        for here, body in ((holds, node.then), (~holds, node.otherwise)):
            if body:
                part = v.part(here)
                gone = yield from self._body(part, body)
                v.join(part, self._sets(body))
                if gone is not None:
                    left = np.zeros(v.count, np.int8) if left is None else left
                    left[part.chosen] = gone
        return left

    def _loop(self, v: Threads, node: nodes.For) -> Way:
        machine, var = self.machine, node.var
        outer = v.kept(var)
        if node.start is not None:
            v.put(var, machine.place(v, node.start))
        here, left = v, None
        while True:
            machine.node = node
            going = self._going(here, node)
            if not going.any():
                break
            here = here if going.all() else here.part(going)
            gone = yield from self._body(here, node.body)
            if gone is not None:
                ended = gone == _KERNEL
                if ended.any():
                    left = np.zeros(v.count, np.int8) if left is None else left
                    left[here.places_in(v)] = np.where(ended, _KERNEL, 0)
                on = (gone != _LOOP) & ~ended
                if not on.any():
                    break
                here = here if on.all() else here.part(on)
            step = np.int32(1) if node.step is None else machine.value(here, node.step)
            here.put(var, here[var] + step)
        self._join(
            here, v, self._sets(node.body) - {var} | ({var} if node.start is None else set())
        )
        if node.start is not None:
            v.restore(var, outer)
        return left

    def _going(self, v: Threads, node: nodes.For) -> Any:
        """Who comes to one more iteration."""
        going = True if node.also is None else self.machine.holds(v, node.also)
        on = v[node.var] < self.machine.told(v, node.stop, "branched on")
        return np.broadcast_to(going & on, (v.count,))


def declared_in(body: Body) -> Iterator[str]:
    """Names that end with a body."""
    for node in body:
        match node:
            case Let(names=names) | State(names=names):
                yield from names
            case LoadFragment(registers=registers):
                yield from (r.name for r in registers if r.index is None)
            case (
                Memory(name) | Point(name) | Array(name) | Fragment(name) | MatrixRows(name)
                | Descriptor(name)
            ):  # fmt: skip
                yield name
            case _:
                pass


def set_in(body: Body) -> frozenset[str]:
    """Names from outside of a body that it sets."""
    found: set[str] = set()
    for node in body:
        found |= set(_set_by(node))
    return frozenset(found - set(declared_in(body)))


def _set_by(node: Node) -> Iterator[str]:
    match node:
        case Assign(name) | Mma(to=name) | SetTile(to=name):
            yield name
        case Advance(phase=phase):
            yield from ("slot", phase) if phase else ("slot",)
        case LoadShifted():
            yield "parts"
        case Store(to) | LoadVector(to):
            yield from _root(to)
        case LoadFragment(registers=registers):
            yield from (r.name for r in registers)
        case For(var=name, start=None, body=body):
            yield name
            yield from set_in(body)
        case For(var=name, body=body):
            yield from set_in(body) - {name}
        case _:
            for inner in _bodies(node):
                yield from set_in(inner)


def _bodies(node: Node) -> Iterator[Body]:
    match node:
        case Local(body):
            yield body
        case _:
            yield from ((x,) for x in children(node))


def _root(e: Expr) -> Iterator[str]:
    """The variable that an element is of."""
    match e:
        case Var(name):
            yield name
        case Call(_, "element", (whole, *_)):
            yield from _root(whole)
        case _:
            pass
