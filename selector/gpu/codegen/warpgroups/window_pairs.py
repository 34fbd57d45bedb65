"""Instructions that two neighbouring rows of an image share.

A row of taps whose windows take an odd number of core matrices of depth leaves half of its last
instruction to zeros. The last ones of two rows y, y + 1 are one instruction: A's second 16 bytes
are those of the next row (leading offset: the pitch of the rows), B's are ``core_bands.Pair``. It
takes all rows of outputs that either of the two reaches, with zeros for the other: a NaN of a row
that an output just does not reach spreads to it, as one beside its window does.

Rows y are even ones, so that pieces of several rows hold both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from selector.dataclass import dataclass
from selector.gpu.codegen.warpgroups.core_bands import Entry, Pair
from selector.gpu.codegen.warpgroups.window_code import WindowProduct
from selector.gpu.codegen.warpgroups.windows import CHUNK
from selector.gpu.ir.layouts import Dealt
from selector.ir.affine import Affine

LARGEST_OFFSET = 16 * (2**14 - 1)  # bytes that a descriptor names

Two = list[WindowProduct | None]  # of an even row, of the one below


@dataclass(slots=True)
class _Rows:
    """The last half steps of two rows, by the accumulators that they are added to."""

    offset: int  # of the even one's windows
    products: dict[int, Two] = field(default_factory=dict[int, Two])

    @property
    def both(self) -> bool:
        return all(any(two[i] is not None for two in self.products.values()) for i in (0, 1))


def paired(products: list[WindowProduct], windows: Mapping[str, Dealt]) -> list[WindowProduct]:
    """The same sums with half steps of two rows together, where any are neighbours."""
    groups: dict[tuple[str, str, Affine], list[WindowProduct]] = {}
    for p in products:
        groups.setdefault((p.accumulator, p.buffer, p.symbolic), []).append(p)
    return [
        p for (_, buffer, _), group in groups.items() for p in _paired(group, windows[buffer].pitch)
    ]


def _paired(group: list[WindowProduct], pitch: int) -> list[WindowProduct]:
    row_bytes = 2 * pitch
    aligned = pitch % CHUNK == 0 and group[0].symbolic.divided_by(2 * row_bytes) is not None
    found = _halves(group, row_bytes) if aligned and row_bytes <= LARGEST_OFFSET else None
    if found is None or not any(rows.both for rows in found):
        return group
    whole = [
        p if _rest(p) is None else replace(p, entry=_rest(p)) for p in group if not _is_half(p)
    ]
    return whole + [p for rows in found for p in _pairs(rows, row_bytes)]


def _halves(group: list[WindowProduct], row_bytes: int) -> list[_Rows] | None:
    """The half steps of a group's rows; None if two are added to the same accumulators."""
    found: dict[int, _Rows] = {}
    for p in group:
        if not _is_half(p):
            continue
        line, column = divmod(p.offset, row_bytes)
        offset = line // 2 * 2 * row_bytes + column
        two = found.setdefault(offset, _Rows(offset)).products.setdefault(p.first, [None, None])
        if two[line % 2] is not None:
            return None
        two[line % 2] = p
    return list(found.values())


def _pairs(rows: _Rows, row_bytes: int) -> list[WindowProduct]:
    found: list[WindowProduct] = []
    for two in rows.products.values():
        one = two[0] or two[1]
        assert one is not None
        if rows.both:
            pair = Pair(*(None if p is None else _rest(p) for p in two))
            one = replace(one, offset=rows.offset, along=row_bytes)
        else:  # what the next 16 bytes of the row hold are numbers, as those of a row below may not
            pair = Pair(_rest(one), None)
        found.append(replace(one, step=0, entry=pair))
    return found


def _is_half(p: WindowProduct) -> bool:
    """Whether the second core matrix of a step is padding."""
    return isinstance(p.entry, Entry) and 2 * p.step + 1 == p.entry.known


def _rest(p: WindowProduct) -> Entry | None:
    """A product's entry without the core matrix that is in a pair; None if all of it remains."""
    assert isinstance(p.entry, Entry)
    return replace(p.entry, paired=True) if p.entry.known % 2 else None
