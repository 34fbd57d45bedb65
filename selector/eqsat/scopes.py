"""Accumulator scopes: which statements must be selected together.

The outermost allocation in a tensor unit's memory opens a scope; every statement inside that stores
to or loads from a tensor allocation belongs to it. A scope is encoded into one graph, each distinct
skeleton once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property

from selector.dataclass import dataclass
from selector.eqsat.abstract import Skeleton, abstract
from selector.ir.nodes import Allocate, For, LetStmt, Location, Stmt, Store
from selector.ir.traverse import stmt_children, walk_stmt
from selector.operands.accumulators import accumulators_of, touches_tensor
from selector.operands.computed_values import Computed


@dataclass(frozen=True)
class Scope:
    """One outermost tensor allocation: its statements, and their skeletons in the same order.

    ``computed``: the buffers that stand for operands that are computed; ``decoded``: whether bytes
    may have types that memory does not.
    ``refusals``: why factors of an accumulator stay in its sums, by accumulator, as it is asked:
    all statements of a scope are looked at for it.
    """

    allocation: Allocate
    accumulators: dict[str, Location]
    stores: tuple[Store, ...]
    skeletons: tuple[Skeleton, ...]
    computed: Mapping[str, Computed] = field(default_factory=dict)  # type: ignore[assignment]
    decoded: bool = False
    refusals: dict[str, str] = field(default_factory=dict[str, str], compare=False, repr=False)

    @property
    def distinct(self) -> tuple[str, ...]:
        """The term of each skeleton once, in order of first appearance: the key of the memo
        table."""
        return tuple(dict.fromkeys(s.term for s in self.skeletons))

    @cached_property
    def around(self) -> dict[int, tuple[For | LetStmt, ...]]:
        """The loops and lets of the scope around each of its statements (by ``id``), outermost
        first."""
        found: dict[int, tuple[For | LetStmt, ...]] = {}
        work: list[tuple[Stmt, tuple[For | LetStmt, ...]]] = [(self.allocation.body, ())]
        while work:
            s, outer = work.pop()
            found.setdefault(id(s), outer)
            inner = (*outer, s) if isinstance(s, (For, LetStmt)) else outer
            work += ((child, inner) for child in reversed(tuple(stmt_children(s))))
        return found


def open_scope(
    allocation: Allocate, computed: Mapping[str, Computed] | None = None, *, decoded: bool = False
) -> Scope:
    """The scope of an annotated tensor allocation."""
    placed = accumulators_of(allocation)
    symbols = {name: f"t{i}" for i, name in enumerate(placed)}
    stores = tuple(
        s for s in walk_stmt(allocation.body) if isinstance(s, Store) and touches_tensor(s)
    )
    skeletons = tuple(abstract(s, symbols) for s in stores)
    return Scope(allocation, placed, stores, skeletons, computed or {}, decoded)
