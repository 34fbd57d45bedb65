"""What every turn of a persistent block would do alike: it is done once, before the first.

A filter's weights, say, are copied into shared memory by statements that depend on no block of the
grid. They stay there for all turns.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from selector.ir.nodes import Allocate, Block, For, LetStmt, Memory, Stmt, Store, Var
from selector.ir.traverse import walk_all_exprs, walk_stmt
from selector.lowering.normalize import holds_tensor
from selector.lowering.structure import loaded_names


@dataclass(slots=True)
class Repeated:
    """The body of a kernel without the statements ``once``, which fill ``allocations``."""

    rest: Stmt
    once: list[Stmt] = field(default_factory=list[Stmt])
    allocations: list[Allocate] = field(default_factory=list[Allocate])


def split_repeated(body: Stmt, ring: For, grid: set[str]) -> Repeated:
    """Take out of the statements before ``ring`` those that mention no variable of the ``grid`` and
    nothing bound in the kernel, and fill shared memory that no other statement writes from arrays
    that the kernel only reads.
    """
    writers, varying = _writers(body), set(grid)
    allocated: dict[str, Allocate] = {}
    found = Repeated(body)

    def is_repeated(x: Stmt) -> bool:
        own = _writers(x)
        alone = all(n in allocated and writers[n] == count for n, count in own.items())
        mentioned = {e.name for e in walk_all_exprs(x) if isinstance(e, Var)}
        known = not mentioned & varying and not loaded_names(x) & writers.keys()
        return bool(own) and alone and known and not holds_tensor(x)

    def visit(s: Stmt) -> Stmt:
        match s:
            case Allocate():
                if s.memory is Memory.GPU_SHARED:
                    allocated[s.name] = s
                return replace(s, body=visit(s.body))
            case LetStmt():
                varying.add(s.name)
                return replace(s, body=visit(s.body))
            case Block(stmts):
                kept: list[Stmt] = []
                for number, x in enumerate(stmts):
                    if any(y is ring for y in walk_stmt(x)):
                        kept += [visit(x), *stmts[number + 1 :]]
                        break
                    (found.once if is_repeated(x) else kept).append(x)
                return Block(tuple(kept)) if len(kept) > 1 else kept[0]
            case _:
                return s

    found.rest = visit(body)
    filled = {name for x in found.once for name in _writers(x)}
    found.allocations = [a for a in allocated.values() if a.name in filled]
    return found


def _writers(s: Stmt) -> Counter[str]:
    """How many statements write each buffer."""
    return Counter(x.buffer for x in walk_stmt(s) if isinstance(x, Store))
