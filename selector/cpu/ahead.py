"""Software pipelining of products: a loop over them in which tiles are loaded as soon as what was
in their registers has been read, those of the next iteration among the products of this one.

    load what the first iteration begins with
    for (; k < stop - 1; ++k) { multiply; load what comes next where a register is free; ... }
    the last iteration, without loads for a next one
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from selector.cpu.loads import Piece
from selector.cpu.operands import Dense, Matrix, Product
from selector.cpu.registers import Shape
from selector.dataclass import dataclass
from selector.ir.nodes import Binary, BinaryOp, Expr, IntImm, Var
from selector.ir.traverse import substitute


@dataclass(frozen=True, slots=True)
class Wanted:
    """The tiles of A and B, and the instruction with places for their registers."""

    tiles: tuple[Piece, Piece]
    text: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """A load of the operand ``side`` (0: A) of product number ``use`` of an iteration."""

    register: int
    use: int
    side: int


@dataclass(frozen=True, slots=True)
class Issue:
    """An instruction, and the loads before it, in the order of need."""

    loads: tuple[Fetch, ...]
    text: str


def issued(wanted: Sequence[Wanted], pools: Mapping[Shape, Sequence[int]]) -> list[Issue]:
    """Loads and instructions in order; the register needed last is the one to be reused."""
    held: dict[int, object] = {}
    uses = [(w.tiles[0].key(), w.tiles[1].key()) for w in wanted]
    found: list[Issue] = []
    for at, w in enumerate(wanted):
        places: dict[str, int] = {}
        loads: list[Fetch] = []
        for name, side in (("b", 1), ("a", 0)):
            key, other = uses[at][side], uses[at][1 - side]
            pool = pools[w.tiles[side].shape]
            register = next((r for r in pool if held.get(r) == key), None)
            if register is None:
                free = [r for r in pool if held.get(r) != other]
                register = max(free, key=lambda r: (_next_use(uses, at, held.get(r)), -r))
                held[register] = key
                loads.append(Fetch(register, at, side))
            places[name] = register
        found.append(Issue(tuple(loads), w.text.format(**places)))
    return found


def _next_use(uses: Sequence[tuple[object, object]], at: int, key: object) -> int:
    if key is None:
        return len(uses) + 1
    later = (i for i in range(at, len(uses)) if key in uses[i])
    return next(later, len(uses))


@dataclass(frozen=True, slots=True)
class Rotated:
    """An iteration whose loads follow the last read of their registers: ``first`` those that it
    begins with, ``after`` each instruction the loads of this iteration and of the ``next``.
    """

    texts: tuple[str, ...]
    first: tuple[Fetch, ...]
    after: tuple[tuple[Fetch, ...], ...]
    next: tuple[tuple[Fetch, ...], ...]


def rotated(found: Sequence[Issue], wanted: Sequence[Wanted]) -> Rotated:
    """The loads of an iteration, each where its register is free."""
    reads: dict[int, int] = {}  # registers, and the last instruction that read them
    holds: dict[object, int] = {}
    first: list[Fetch] = []
    after: list[list[Fetch]] = [[] for _ in found]
    for at, issue in enumerate(found):
        for fetch in issue.loads:
            holds = {k: r for k, r in holds.items() if r != fetch.register}
            holds[wanted[at].tiles[fetch.side].key()] = fetch.register
            before = reads.get(fetch.register)
            (first if before is None else after[before]).append(fetch)
        for side in (0, 1):
            reads[holds[wanted[at].tiles[side].key()]] = at
    ahead: list[list[Fetch]] = [[] for _ in found]
    for fetch in first:
        ahead[reads[fetch.register]].append(fetch)
    texts = tuple(issue.text for issue in found)
    return Rotated(texts, tuple(first), tuple(map(tuple, after)), tuple(map(tuple, ahead)))


def in_next(p: Product, loop: str) -> Product:
    """A product of the next iteration of a loop."""
    return replace(p, a=_moved(p.a, loop), b=_moved(p.b, loop))


def directly(products: Sequence[Product], loop: str, direct: frozenset[Dense]) -> frozenset[Dense]:
    """Operands of the next iteration that lie in place as those of this one do."""
    pairs = ((m, _moved(m, loop)) for p in products for m in (p.a, p.b))
    return frozenset(n.dense for m, n in pairs if n.dense is not None and m.dense in direct)


def _moved(m: Matrix, loop: str) -> Matrix:
    then: Expr = Binary(BinaryOp.ADD, Var(loop), IntImm(1))
    return replace(m, value=substitute(m.value, {loop: then}))
