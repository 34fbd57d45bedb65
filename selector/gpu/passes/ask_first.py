"""The first stages of a pipeline are on their way before threads copy anything themselves.

    { copy(queries, threadIdx.x); }           u32 full = ...;
    u32 full = ...;                           if (feeds) { init(full); expect(full); copy(keys); }
    if (feeds) {                         ->   { copy(queries, threadIdx.x); }
      init(full); expect(full); copy(keys);
    }

What threads copy takes them hundreds of instructions, under which the copy engine brings the first
stages.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from selector.gpu.ir.memory import CopyAsync, CopyElement, EngineCopy, Point
from selector.gpu.ir.mentioned import mentioned
from selector.gpu.ir.nodes import (
    Advance,
    Arrive,
    Assign,
    Await,
    Body,
    Commit,
    Drain,
    For,
    If,
    Init,
    Kernel,
    Let,
    Local,
    Memory,
    Node,
    Sync,
    walk,
)
from selector.gpu.passes.rebuilt import rebuilt_bodies

_COPYING = (CopyAsync, CopyElement, Point, Let, Local, For, If)
_IN_ORDER = (Sync, Await, Arrive, Commit, Drain, Assign, Advance)  # nothing before goes past these


def ask_first(kernel: Kernel) -> Kernel:
    """The kernel with such copies behind what asks for first stages, if nothing before that reads
    what they bring, or waits.
    """
    nodes = walk((*kernel.declarations, *kernel.body))
    memories = {node.name for node in nodes if isinstance(node, Memory)}
    body = rebuilt_bodies(kernel.body, lambda inner: _asked_first(inner, memories))
    return kernel if body is kernel.body else replace(kernel, body=body)


def _asked_first(body: Body, memories: Set[str]) -> Body:
    at = next((n for n, node in enumerate(body) if _asks(node)), None)
    if at is None:
        return body
    asking = body[at]
    assert isinstance(asking, Local)
    behind = _asks(asking)
    touched = memories & mentioned(asking.body[:behind])
    first = max((n + 1 for n, node in enumerate(body[:at]) if _is_in_order(node)), default=0)
    kept, later = list[Node](), list[Node]()
    for node in reversed(body[first:at]):
        own = set[str]() if isinstance(node, Memory) else memories & mentioned((node,))
        if own and _copies(node) and own.isdisjoint(touched):
            later.append(node)
            continue
        touched |= own
        kept.append(node)
    if not later:
        return body
    asking = Local((*asking.body[:behind], *reversed(later), *asking.body[behind:]))
    return (*body[:first], *reversed(kept), asking, *body[at + 1 :])


def _asks(node: Node) -> int:
    """How many nodes of a pipeline make its barriers and ask for its first stages; 0: none do."""
    if not isinstance(node, Local):
        return 0
    for count, inner in enumerate(node.body):
        if isinstance(inner, If):
            made = {type(x) for x in walk((inner,))}
            return count + 1 if {Init, EngineCopy} <= made else 0
        if not isinstance(inner, Let):
            return 0
    return 0


def _copies(node: Node) -> bool:
    """Whether threads copy there, and do nothing else."""
    return isinstance(node, Local) and all(isinstance(x, _COPYING) for x in walk((node,)))


def _is_in_order(node: Node) -> bool:
    return any(isinstance(x, _IN_ORDER) for x in walk((node,)))
