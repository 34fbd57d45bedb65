"""What all nodes of a launch that is run share: memory, expressions, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from selector.dataclass import dataclass
from selector.gpu.ir.memory import Map
from selector.gpu.ir.nodes import Kernel, Node
from selector.gpu.ir.text import line
from selector.gpu.ir.views import View
from selector.gpu.simulator.data.arithmetic import Arithmetic
from selector.gpu.simulator.data.memory import Memories
from selector.gpu.simulator.data.unwritten import Unwritten
from selector.gpu.simulator.data.values import Mask, Pointer, Space, Threads
from selector.ir.nodes import Expr

SHARED = "smem"
WARP, GROUP = 32, 128


@dataclass(frozen=True, slots=True)
class Boxes:
    """A tensor map: the array, its extents and strides in elements, innermost first."""

    map: Map
    to: Pointer
    extents: tuple[int, ...]
    strides: tuple[int, ...]


class Machine:
    """Of a launch of ``blocks`` blocks."""

    def __init__(
        self, kernel: Kernel, blocks: int, shared_bytes: int, maps: Mapping[str, Boxes]
    ) -> None:
        self.kernel, self.blocks, self.maps = kernel, blocks, maps
        each = -(-max(shared_bytes, 16) // 16) * 16
        room = np.full(blocks * each, 0xFF, np.uint8)
        shared = Space("shared memory", room, np.full(blocks * each, 0xFF, np.uint8), each, each)
        self.node: Node | None = None
        self.memories = Memories(shared, self.here)
        self.arithmetic = Arithmetic(self.memories)
        self.unwritten = Unwritten(self.arithmetic)
        self.reached: set[int] = set()  # ids of the nodes that somebody came to
        self.idle = False  # nobody wants what the node does
        self.tainted: set[str] = set()  # names whose values somebody did not write, at some time

    def here(self) -> str:
        return "" if self.node is None else line(self.node)

    # ------------------------------------------------------------------ values

    def value(self, v: Threads, e: Expr) -> Any:
        """Of an expression, for whatever it is made of."""
        return self.arithmetic.of(e)(v)

    def both(self, v: Threads, e: Expr) -> tuple[Any, Mask | None]:
        """The value, and whose is made of what nobody wrote."""
        memories = self.memories
        memories.met = False
        found = self.arithmetic.of(e)(v)
        if not memories.met and self.tainted.isdisjoint(self.arithmetic.names(e)):
            return found, None
        mask = self.unwritten.of(e, v)
        return found, mask if mask is not None and mask.any() else None

    def told(self, v: Threads, e: Expr, what: str) -> Any:
        """The value where that is used as an address or asked for."""
        found, mask = self.both(v, e)
        if mask is not None:
            self.memories.report(f"what nobody wrote is {what}")
        return found

    def place(self, v: Threads, e: Expr) -> Any:
        return self.told(v, e, "an address")

    def holds(self, v: Threads, condition: Expr) -> Any:
        found = self.told(v, condition, "branched on")
        return found if found.dtype == bool else found != 0

    def wanted(self, v: Threads, condition: Expr | None) -> Mask | None:
        """Who comes to what stands under a condition; None: all."""
        if condition is None:
            return None
        found = np.broadcast_to(self.holds(v, condition), (v.count,))
        self.idle = not found.any()
        return None if found.all() else found

    def put(self, v: Threads, name: str, value: Any, mask: Any = None) -> None:
        if mask is not None:
            self.tainted.add(name)
        v.put(name, value, mask)

    # ------------------------------------------------------------------ places

    def pointer(self, v: Threads, view: View) -> Pointer:
        """To the begin of a part of a memory."""
        found: Pointer = v[view.memory]
        for e in (view.start, view.index):
            if e is not None:
                found = found + self.place(v, e)
        return found if view.at is None else found.moved(self.place(v, view.at))

    def shared(self, byte: Any) -> Pointer:
        """To a byte of a block's shared memory."""
        return Pointer(self.memories.shared, np.dtype("u1"), byte)

    def warps(self, v: Threads) -> int:
        """How many there are, which are whole."""
        lanes = v["lane"]
        if v.count % WARP or not (lanes.reshape(-1, WARP) == np.arange(WARP)).all():
            self.memories.fault("some lanes of a warp do not come to what all do together")
            return 0
        return v.count // WARP

    def groups(self, v: Threads) -> int:
        """The same of groups of four warps."""
        thread = v["threadIdx.x"]
        if v.count % GROUP or not (thread.reshape(-1, GROUP) % GROUP == np.arange(GROUP)).all():
            self.memories.fault("some threads of a group do not come to what all do together")
            return 0
        return v.count // GROUP
