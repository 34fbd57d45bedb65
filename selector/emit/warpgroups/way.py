"""The way from a kernel's body to the loop that every block comes to, once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from selector.ir.nodes import Allocate, Block, For, LetStmt, Memory, Stmt


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
