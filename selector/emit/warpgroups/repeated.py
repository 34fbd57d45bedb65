"""What every turn of a persistent block would do alike: it is done once, before the first.

A filter's weights, say, are copied into shared memory by statements that depend on no block of the
grid. They stay there for all turns. They stand on the way from the kernel's body to the loop that
every block comes to, once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from selector.ir.nodes import Allocate, Block, For, LetStmt, Memory, Stmt, Store, Var
from selector.ir.traverse import walk_all_exprs, walk_stmt
from selector.lowering.normalize import holds_tensor
from selector.lowering.structure import loaded_names


@dataclass(frozen=True, slots=True)
class Way:
    """What is bound around the loop, shared memory around it, and the statements beside it."""

    lets: tuple[LetStmt, ...] = ()
    shared: tuple[Allocate, ...] = ()
    before: tuple[Stmt, ...] = ()
    after: tuple[Stmt, ...] = ()


def way_to(loop: For, body: Stmt) -> Way | None:
    """None where the loop stands in another one or in a condition."""
    match body:
        case Allocate(body=inner):
            found = way_to(loop, inner)
            if found is None or body.memory is not Memory.GPU_SHARED:
                return found
            return replace(found, shared=(body, *found.shared))
        case LetStmt(body=inner):
            found = way_to(loop, inner)
            return found and replace(found, lets=(body, *found.lets))
        case Block(stmts):
            for place, s in enumerate(stmts):
                found = way_to(loop, s)
                if found is not None:
                    before = (*stmts[:place], *found.before)
                    return replace(found, before=before, after=(*found.after, *stmts[place + 1 :]))
            return None
        case _:
            return Way() if body is loop else None


def without(body: Stmt, taken: list[Stmt]) -> Stmt:
    """The body without statements ``taken`` from beside the way."""
    match body:
        case Allocate() | LetStmt():
            return replace(body, body=without(body.body, taken))
        case Block(stmts):
            kept = tuple(without(x, taken) for x in stmts if not any(x is t for t in taken))
            return Block(kept) if len(kept) != 1 else kept[0]
        case _:
            return body


@dataclass(frozen=True, slots=True)
class Repeated:
    """The body of a kernel without the statements ``once``, which fill ``allocations``, and the
    ``way`` through it.
    """

    rest: Stmt
    way: Way
    once: tuple[Stmt, ...]
    allocations: tuple[Allocate, ...]


def split_repeated(body: Stmt, way: Way, grid: set[str]) -> Repeated:
    """Take out of the statements before the ring those that mention no variable of the ``grid`` and
    nothing bound in the kernel, and fill shared memory that no other statement writes from arrays
    that the kernel only reads.
    """
    writers = _writers(body)
    varying = grid | {let.name for let in way.lets}
    allocated = {a.name for a in way.shared}

    def is_repeated(x: Stmt) -> bool:
        own = _writers(x)
        alone = all(n in allocated and writers[n] == count for n, count in own.items())
        mentioned = {e.name for e in walk_all_exprs(x) if isinstance(e, Var)}
        known = not mentioned & varying and not loaded_names(x) & writers.keys()
        return bool(own) and alone and known and not holds_tensor(x)

    once = [x for x in way.before if is_repeated(x)]
    filled = {name for x in once for name in _writers(x)}
    rest = tuple(x for x in way.before if not any(x is y for y in once))
    return Repeated(
        without(body, once),
        replace(way, before=rest),
        tuple(once),
        tuple(a for a in way.shared if a.name in filled),
    )


def _writers(s: Stmt) -> Counter[str]:
    """How many statements write each buffer."""
    return Counter(x.buffer for x in walk_stmt(s) if isinstance(x, Store))
