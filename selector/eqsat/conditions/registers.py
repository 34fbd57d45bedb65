"""Whether the tiles of a scope have registers: a configured unit (AMX) has eight of them."""

from __future__ import annotations

from collections.abc import Sequence

from selector.eqsat.conditions.context import Miss
from selector.eqsat.decode import Term
from selector.eqsat.scopes import Scope
from selector.intrinsics import find
from selector.ir.nodes import Store
from selector.ir.printer import print_expr
from selector.ir.remarks import Origin

REGISTERS = 8
"""Tile registers of AMX (Intel SDM volume 1, chapter 18)."""
FOR_SUMS = REGISTERS - 2
"""Registers that can hold sums: a product needs one for each operand."""


def too_many(scope: Scope, terms: Sequence[Term | None], origins: Sequence[Origin]) -> Miss | None:
    """The sums of a scope that need more tile registers than there are. ``terms`` are the selected
    statements, in the order of the scope's."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    first: Store | None = None
    for store, term in zip(scope.stores, terms, strict=True):
        size = None if term is None else _tile(term)
        if size is not None:
            first = first or store
            sums[store.buffer, print_expr(store.index)] = size
    needed = sum(-(-m // 16) * -(-n // 16) for m, n in sums.values())
    if first is None or needed <= FOR_SUMS:
        return None
    func = next((o.func for o in origins if o.name == first.buffer), first.buffer)
    sizes = ", ".join(dict.fromkeys(f"{m} x {n}" for m, n in sums.values()))
    count = f"{len(sums)} blocks" if len(sums) > 1 else "a block"
    return Miss(
        first,
        f"`{func}` needs {needed} tile registers for its sums ({count} of {sizes}, a register "
        f"holds 16 x 16), and {FOR_SUMS} of the {REGISTERS} are free for them: a product needs one "
        "for a piece of each operand",
        _smaller([n for _, n in sums.values()]),
    )


def _smaller(columns: list[int]) -> str:
    if all(n < 16 for n in columns):
        return (
            "vectorize a multiple of 16 outputs at once, so that a tile has 16 columns, at most "
            f"{256 * FOR_SUMS}"
        )
    return (
        "compute fewer outputs at a time (`compute_at` a smaller tile): 32 x 32, 16 x 96 or "
        "48 x 32 fit"
    )


def _tile(term: Term) -> tuple[int, int] | None:
    match term:
        case ("Store", _, _, ("MultiplyAdd", str(name), int(m), int(n), *_), _):
            record = find(name)
            return (m, n) if record is not None and record.configurable else None
        case _:
            return None
