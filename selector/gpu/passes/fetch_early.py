"""What an epilogue reads of inputs is asked for before the products are waited for.

    float product[8][4];                      float product[8][4];
    for (...) { await(full); wgmma(...); }    f16 bias[8]; load(bias);
    f16 bias[8]; load(bias);            ->    for (...) { await(full); wgmma(...); }
    store(product + bias);                    store(product + bias);

Its latency passes while operands arrive and are multiplied, as far as a thread has registers to
keep what came.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace

from selector.dataclass import dataclass
from selector.gpu.ir.memory import Array, LoadVector, Point, Store
from selector.gpu.ir.mentioned import mentioned
from selector.gpu.ir.nodes import (
    Body,
    For,
    If,
    Kernel,
    Leave,
    Let,
    Local,
    Memory,
    Node,
    State,
    children,
    of_groups,
    walk,
)
from selector.gpu.ir.products import Fragment, Mma
from selector.gpu.ir.views import BYTES
from selector.gpu.passes.budget_registers import left_registers
from selector.gpu.passes.rebuilt import rebuilt_bodies
from selector.ir.traverse import free_vars

LOOP = 24  # registers that a wait for operands takes beside what budgets leave to all else
WORD = 4  # bytes of a register
TOGETHER = 2  # blocks of a multiprocessor at least: one multiplies while the other stores


def fetch_early(kernel: Kernel, *, resident: int, shared_memory: int) -> Kernel:
    """The kernel with such loads ahead of its products: of groups alone, whose operands take no
    registers. Two blocks of a multiprocessor keep their share of them, if there is room for two.
    """
    if not of_groups(kernel):
        return kernel
    changing = {p.name for p in kernel.parameters if p.way not in ("read", "value")}
    for node in walk((*kernel.declarations, *kernel.body)):
        if isinstance(node, Memory | Fragment | State):
            changing.update(_declared(node))
    early = _Early(frozenset(changing))
    rebuilt_bodies(kernel.body, early.moved)  # nothing is chosen yet
    if not early.fetched:
        return kernel
    blocks = max(resident, TOGETHER)
    room = left_registers(kernel, blocks, shared_memory) - LOOP
    for name, words in sorted(early.fetched.items(), key=lambda x: -x[1]):  # the most latency
        if words <= room:
            room -= words
            early.chosen.add(name)
    body = rebuilt_bodies(kernel.body, early.moved)
    return replace(kernel, body=body, resident=blocks)


@dataclass(slots=True)
class _Early:
    """``changing``: names of what a kernel writes; ``fetched``: registers of each array that could
    be filled before products; ``chosen``: those that are to be.
    """

    changing: frozenset[str]
    fetched: dict[str, int] = field(default_factory=dict[str, int])
    chosen: set[str] = field(default_factory=set[str])

    def moved(self, body: Body) -> Body:
        """A body with what is chosen before its last loop of products."""
        loops = [n for n, x in enumerate(body) if _multiplies(x)]
        if not loops:
            return body
        at = loops[-1]
        inside = frozenset(name for node in walk(body[at:]) for name in _declared(node))
        arrays, first = list[Node](), list[Node]()
        rest = self._without(body[at + 1 :], inside, (), arrays, first)
        ahead = _before_loop(tuple(first), body[at]) if first else None
        return body if ahead is None else (*body[:at], *arrays, *ahead, *rest)

    def _without(
        self,
        body: Body,
        inside: frozenset[str],
        lets: tuple[Let, ...],
        arrays: list[Node],
        first: list[Node],
    ) -> Body:
        """The body without ``arrays`` and what fills them, which goes ``first``; ``inside``: names
        from the loop on; ``lets``: what is named where the body stands.
        """
        kept: list[Node] = []
        for node in body:
            match node:
                case Let():
                    lets = (*lets, node)
                case Local(held):
                    node = replace(node, body=self._without(held, inside, lets, arrays, first))
                case _:
                    pass
            match kept:
                case [*_, Array(name, kind, count) as array]:
                    needed = self._needed(array, node, inside, lets)
                    if needed is not None:
                        self.fetched[name] = -(-count * BYTES[kind] // WORD)
                    if needed is not None and name in self.chosen:
                        arrays.append(kept.pop())
                        first.append(Local((*needed, node)) if needed else node)
                        continue
                case _:
                    pass
            kept.append(node)
        return tuple(kept)

    def _needed(
        self, array: Array, fetch: Node, inside: frozenset[str], lets: tuple[Let, ...]
    ) -> tuple[Let, ...] | None:
        """What has to be named for ``fetch`` alone to fill the array before the loop; None if it
        cannot, or does something else.
        """
        own = {array.name}
        for node in walk((fetch,)):
            match node:
                case If() | Local():
                    pass
                case Point(name):
                    own.add(name)
                case LoadVector(to=to) | Store(to=to) if array.name in free_vars(to):
                    pass
                case _:
                    return None
        missing, needed = mentioned((fetch,)) - own, list[Let]()
        for let in reversed(lets):
            if missing & set(let.names):
                missing = missing - set(let.names) | mentioned((let,))
                needed.append(let)
        return None if missing & (self.changing | inside) else tuple(reversed(needed))


def _multiplies(node: Node) -> bool:
    """Whether a loop of products is here or inside of conditions."""
    match node:
        case For(body=body):
            return any(isinstance(x, Mma) for x in walk(body))
        case If() | Local():
            return any(map(_multiplies, children(node)))
        case _:
            return False


def _before_loop(first: Body, node: Node) -> Body | None:
    """A node that multiplies, with what goes ``first`` right before its loop; None where threads
    that go another way come to what is behind it as well.
    """
    match node:
        case For():
            return (*first, node)
        case If(_, (*_, Leave("kernel")), otherwise):
            body = _in_body(first, otherwise)
            return None if body is None else (replace(node, otherwise=body),)
        case If(_, then, (*_, Leave("kernel"))):
            body = _in_body(first, then)
            return None if body is None else (replace(node, then=body),)
        case Local(held):
            body = _in_body(first, held)
            return None if body is None else (Local(body),)
        case _:
            return None


def _in_body(first: Body, body: Body) -> Body | None:
    at = max((n for n, x in enumerate(body) if _multiplies(x)), default=None)
    if at is None:  # it is the way that ends which multiplies
        return None
    ahead = _before_loop(first, body[at])
    return None if ahead is None else (*body[:at], *ahead, *body[at + 1 :])


def _declared(node: Node) -> Iterator[str]:
    """The names that a node declares."""
    match node:
        case Let(names=names) | State(names=names):
            yield from names
        case For(var=name) | Point(name) | Array(name) | Memory(name) | Fragment(name):
            yield name
        case _:
            return
