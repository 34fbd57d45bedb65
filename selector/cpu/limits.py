"""What an element of an array has to be inside of: beyond it no program's results depend on what
lies there, but a product that meets it with a zero does, if it is no number.
"""

from __future__ import annotations

from selector.gpu.codegen.scalars.storage import Storage
from selector.ir.affine import Affine, join_dims, split_by_strides, to_affine
from selector.ir.nodes import Expr, IntImm


def bounds_of(storage: Storage, place: Affine) -> tuple[tuple[Affine, Expr], ...]:
    """Numbers, and what each is below: the coordinates of a place, or where it does not say which
    they are, the place itself. Empty where the array has no bounds.
    """
    if storage.elements is None:
        return ()
    return in_rows(storage, place) or ((place, storage.elements),)


def in_rows(storage: Storage, place: Affine) -> tuple[tuple[Affine, Expr], ...]:
    """The coordinates of a place in an array whose rows are adjacent elements, and its extents;
    empty where they are one and the same, or the place does not say which they are.
    """
    dims = () if storage.param is None else join_dims(storage.param.dims)
    if len(dims) < 2 or dims[0].stride != IntImm(1):
        return ()
    found = split_by_strides(place.to_expr(), dims)
    if found is None:
        return ()
    return tuple((to_affine(c), d.extent) for c, d in zip(found, dims, strict=True))
