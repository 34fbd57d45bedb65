"""What the copy engine takes an array for: its dimensions, and the coordinates of a staged copy.

Parameters say so themselves. Intermediates are one run of memory in the kernels that read them;
their rows, planes, ... are those of the allocation. They begin at multiples of 16 bytes, as maps
want it, where the schedule says so (``align_storage``).
"""

from __future__ import annotations

from selector.emit.copies import Copy
from selector.emit.scalar import Storage
from selector.ir.affine import Affine, carries, to_affine
from selector.ir.nodes import Binary, BinaryOp, Dim, IntImm


def tensor_of(copy: Copy, source: Storage) -> tuple[tuple[Dim, ...], list[Affine]] | None:
    """The dimensions of a copy's source and its coordinates in them, innermost first; None where
    rows are not what they look like.
    """
    if source.param is None or carries(source.param.dims):  # boxes are clipped where rows end
        return None
    if source.elements is None or not source.pitches:
        return source.param.dims, [to_affine(c) for c in copy.coordinates]
    sizes, strides = (*source.pitches, source.elements), (IntImm(1), *source.pitches)
    dims = tuple(
        Dim(IntImm(0), Binary(BinaryOp.DIV, size, stride), stride)
        for size, stride in zip(sizes, strides, strict=True)
    )
    at = _by_rows(copy, dims)
    return None if at is None else (dims, at)


def _by_rows(copy: Copy, dims: tuple[Dim, ...]) -> list[Affine] | None:
    """The coordinates of an element of an intermediate: how many planes, then rows, are in its
    index. The rows hold every element that is read of them, so that none runs into the next. None
    for rows of constant length that an index may leave, as far as the copy shows.
    """
    found: list[Affine] = []
    rest = to_affine(copy.source.index)
    for dim in reversed(dims[1:]):
        pitch, number = to_affine(dim.stride), Affine()
        lead, factor = pitch.terms[0]
        for m, c in rest:
            if c % factor == 0 and all(m.count(a) >= lead.count(a) for a in lead):
                others = list(m)
                for atom in lead:
                    others.remove(atom)
                number += Affine.build({tuple(others): c // factor})
        rest -= number * pitch
        found.append(number)
        if not lead and not _inside(rest, factor, copy):
            return None
    return [rest, *reversed(found)]


def _inside(place: Affine, length: int, copy: Copy) -> bool:
    """Whether a place in a row of so many elements is one for every element of the copy: then it is
    the remainder, and the number of the row the quotient, of what they were made of.
    """
    least = most = place.offset
    for digit in (copy.x, *copy.rows):
        step = place.coefficient(digit.var).constant
        if step is None or (step and digit.count is None):
            return False
        reach = step * ((digit.count or 1) - 1)
        least, most = least + min(reach, 0), most + max(reach, 0)
        place = place.rest(digit.var)
    return place.constant is not None and least >= 0 and most < length
