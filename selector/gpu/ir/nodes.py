"""What a kernel consists of, between the decisions of the emitter and the text of CUDA.

A body is a tuple of nodes in the order of execution. What the threads of a block do together has
nodes of its own, as has the control around it.
Conditions that mention a thread's place (``expressions``) say who comes to what stands under them.

A barrier in shared memory is its address. Queues are those of PTX: ``copies`` (cp.async),
``stores`` (bulk groups), ``matrix`` (wgmma), ``tensor`` (loads of tensor memory).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

from selector.dataclass import unguarded
from selector.gpu.ir.layouts import Layout
from selector.gpu.ir.memory import MemoryNode
from selector.gpu.ir.parameters import Parameter
from selector.gpu.ir.products import ProductNode
from selector.gpu.ir.tensor import TensorNode
from selector.gpu.ir.views import BYTES, View
from selector.ir.nodes import Expr

# ------------------------------------------------------------------ declarations


SHARED_ALIGNMENT = 128  # of shared memory that holds no swizzled rows


@unguarded
class Kernel:
    """A function: the ``threads`` of a block and blocks of a ``cluster``, its parameters, the
    declarations that hold in all of it, what it does. Registers suffice for so many ``resident``
    blocks of a multiprocessor (0: as the compiler likes). A launch brings so many bytes of
    ``shared`` memory, in which the kernel's own begins at a multiple of its ``alignment``.
    """

    name: str
    threads: int
    cluster: int
    parameters: tuple[Parameter, ...]
    declarations: Body
    body: Body
    resident: int = 0
    shared: int = 0
    alignment: int = 0


@unguarded
class Memory:
    """Shared memory: a pointer to what is of ``kind``, ``offset`` bytes from its begin. An element
    of an index below ``extents`` lies at the byte that the ``layout`` says, in each of ``stages``
    of so many ``bytes``. ``unit``: the number of what has memory of its own, ``apart``
    bytes from the one before.
    """

    name: str
    kind: str
    offset: int
    stages: int
    bytes: int
    extents: tuple[int, ...]
    layout: Layout
    unit: Expr | None = None
    apart: int = 0

    @property
    def element_bytes(self) -> int:
        return BYTES[self.kind]


@unguarded
class Let:
    """Constants of one type."""

    kind: str
    names: tuple[str, ...]
    values: tuple[Expr, ...]
    note: str = ""


@unguarded
class State:
    """Variables of one type that change, and their first values."""

    kind: str
    names: tuple[str, ...]
    values: tuple[Expr, ...]
    note: str = ""


# ------------------------------------------------------------------ control


_ODD = re.compile(r"[^\x20-\x5b\x5d-\x7e]")


@unguarded
class Comment:
    """What readers of the text are told: one line, whatever names are in it; nothing of it ends
    the line or continues it.
    """

    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", _ODD.sub("?", self.text))


@unguarded
class Local:
    """What is declared in the ``body`` ends with it."""

    body: Body


@unguarded
class For:
    """A loop from ``start`` (None: where the variable is) to before ``stop``; ``how``: rolled,
    unrolled, four iterations as one (fours), or plain, as the compiler likes; ``also``: what is
    asked first, before each iteration, and ends it, too.
    """

    how: str
    var: str
    start: Expr | None
    stop: Expr
    step: Expr | None
    body: Body
    also: Expr | None = None


@unguarded
class If:
    condition: Expr
    then: Body
    otherwise: Body = ()


@unguarded
class Leave:
    """The innermost ``loop`` or its ``iteration``, or the ``kernel``."""

    what: str
    note: str = ""


@unguarded
class Assign:
    name: str
    value: Expr


@unguarded
class Advance:
    """``slot`` goes on to the next stage of so many, or ``by`` as many, and ``phase``, if there is
    one, counts how often it came around. ``how``: by a branch or a select.
    """

    how: str
    phase: str
    stages: int
    by: Expr | None = None


# ------------------------------------------------------------------ synchronisation


@unguarded
class Init:
    """A barrier whose phases end with so many arrivals."""

    barrier: Expr
    arrivals: Expr


@unguarded
class Retire:
    """A barrier that nobody comes to any more."""

    barrier: Expr


@unguarded
class Arrive:
    """An arrival of each thread that comes here. ``bytes`` of the copy engine are awaited, too;
    ``after`` copies: one more arrival when this thread's copies are complete, after ``matrix``: the
    only one, when the products in tensor memory are; ``block``: at the barrier of another block of
    the cluster.
    """

    barrier: Expr
    bytes: Expr | None = None
    after: str = ""
    block: Expr | None = None


@unguarded
class Await:
    """Until the phase of this number is over, by its parity; ``how``: spinning or asleep. In vain
    for so many nanoseconds (``within``; 0: for ever), it ends the launch in an error.
    """

    how: str
    barrier: Expr
    phase: Expr
    within: int = 0


@unguarded
class Sync:
    """All threads of a ``scope`` (warp, block, cluster; cluster_data: behind it all see what any of
    them has stored), or the ``threads`` of a named barrier; ``within``: as for ``Await``, by counts
    of those who come.
    """

    scope: str
    barrier: Expr | None = None
    threads: int = 0
    note: str = ""
    within: int = 0


@unguarded
class ResetArrivals:
    """Nobody has come to a named barrier yet, where they are counted."""


@unguarded
class Fence:
    """For what follows to see: stores by the asynchronous ``proxy``, made ``barriers`` by it,
    registers by ``matrix`` instructions; what threads do to tensor memory (``gpu.ir.tensor``).
    """

    what: str
    note: str = ""


@unguarded
class Commit:
    """What this thread has asked of a queue is a group of it."""

    queue: str


@unguarded
class Drain:
    """Until all but the last ``pending`` groups are complete; ``half``: have read what they do."""

    queue: str
    pending: int
    half: str = ""


@unguarded
class Fused:
    """One ``asm`` statement of instructions of wgmma, and of what a group waits for and tells
    between them.
    """

    body: Body


# ------------------------------------------------------------------ launch


@unguarded
class Registers:
    """Of each thread of a group from here on: ``more`` or ``fewer`` than at the launch."""

    how: str
    count: int


@unguarded
class Dependents:
    """The launch after this one may start (``allow``); the one before is complete (``await``)."""

    what: str


# ------------------------------------------------------------------ where data are left out


@unguarded
class Touch:
    """``bytes`` that a thread writes at an address, where they are ``wanted``. ``how``: ``stored``,
    or ``copied``, which ends when its queue of copies says so.
    """

    how: str
    at: Expr
    bytes: int
    wanted: Expr | None = None


@unguarded
class Read:
    """``ldmatrix`` from ``rows``: matrices of 8 rows of 16 bytes, ``step`` bytes apart, the first
    ones of which begin so many bytes further.
    """

    rows: str
    step: int
    matrices: tuple[int, ...]


Node = (
    Memory | Let | State | Local | For | If | Leave | Assign | Advance | Init
    | Retire | Arrive | Await | Sync | ResetArrivals | Fence | Commit | Drain | Fused | Registers
    | Dependents | Comment | MemoryNode | ProductNode | TensorNode | Touch | Read
)  # fmt: skip
Body = tuple[Node, ...]


_BODIES: dict[type, Callable[[Any], Body]] = {
    **dict.fromkeys((Local, For, Fused), attrgetter("body")),
    If: lambda node: (*node.then, *node.otherwise),
}


def children(node: Node) -> Body:
    """The nodes right inside of one."""
    inside = _BODIES.get(type(node))
    return () if inside is None else inside(node)


def walk(body: Body) -> Iterator[Node]:
    """All nodes of a body, outer ones first."""
    stack = [*body[::-1]]
    while stack:
        node = stack.pop()
        yield node
        inside = _BODIES.get(type(node))
        if inside is not None:
            stack += inside(node)[::-1]


def of_groups(kernel: Kernel) -> bool:
    """Whether its threads are numbered by groups of four warps."""
    return any(isinstance(x, Let) and "group" in x.names for x in kernel.declarations)


def expressions(node: Node | Kernel) -> Iterator[Expr]:
    """Those of a node's own fields."""
    for name in type(node).__dataclass_fields__:
        value = getattr(node, name)
        match value:
            case View(_, start, at, index):
                parts: tuple[object, ...] = start, at, index
            case tuple():
                parts = value
            case _:
                parts = (value,)
        yield from (e for e in parts if isinstance(e, Expr))


def memories(node: Node) -> set[str]:
    """Those that a node has views of."""
    fields = (getattr(node, name) for name in type(node).__dataclass_fields__)
    return {x.memory for x in fields if isinstance(x, View)}
