"""A kernel over arrays of more axes than it knows: plane by plane, as a Dask array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dask.array as da
from dask.array.core import normalize_chunks

from selector.api import Kernel
from selector.dask.call import apply
from selector.dask.files import Stored, blocks
from selector.diagnostics import ArgumentError
from selector.runtime import arguments


def applied(
    kernel: Kernel, given: Mapping[str, Any], chunks: tuple[int, ...] | None, interpret: bool
) -> Any:
    """The kernel over what is ``Stored``, in blocks of one size but for the last of each axis, as
    files have them. Images may have leading axes beside the kernel's (time, channel, depth), which
    the result has, too. ``chunks``: of the result's last axes.

    Where nothing is ``Stored`` it is computed at once, as one block. ``ArgumentError`` for images
    whose leading axes differ, for a kernel of several outputs, and as ``apply``.
    """
    if len(outputs := arguments.outputs_of(kernel.plan)) != 1:
        raise ArgumentError(
            f"{kernel.name} has {len(outputs)} outputs",
            why="a file holds one",
            hint="compile a pipeline for each of them",
        )
    if not any(isinstance(value, Stored) for value in given.values()):
        whole = kernel.interpret(**given) if interpret else kernel(**given)
        return da.from_array(whole, whole.shape)
    known = {b.name: len(b.dims) for b in arguments.inputs_of(kernel.plan)}
    arrays = {n: _blocked(a) if isinstance(a, Stored) else a for n, a in given.items()}
    leading: tuple[Any, ...] = ()
    planes = set[str]()
    for name, array in arrays.items():
        beside = (
            array.shape[: -known[name]] if isinstance(array, da.Array) and name in known else ()
        )
        if beside and leading and beside != leading:
            raise ArgumentError(
                f"{name} has planes along {beside}, another image along {leading}",
                hint="images are taken plane by plane: give files of the same leading axes",
            )
        if beside:
            leading = beside
            planes.add(name)

    def over(index: tuple[int, ...]) -> Any:
        if len(index) < len(leading):
            return da.stack([over((*index, i)) for i in range(leading[len(index)])])
        plane = {n: a[index] if n in planes else a for n, a in arrays.items()}
        made = apply(kernel, interpret=interpret, **plane)
        sizes = [max(axis) for axis in made.chunks]
        for axis, size in enumerate(reversed(chunks or ()), start=1):
            sizes[-axis] = min(size, made.shape[-axis])
        if normalize_chunks(tuple(sizes), made.shape) == made.chunks:
            return made
        return apply(kernel, chunks=tuple(sizes), interpret=interpret, **plane)

    return over(())


def _blocked(stored: Stored) -> da.Array:
    sizes: Any = blocks(stored)  # which its stub takes for text
    return da.from_array(stored, chunks=sizes, lock=False, inline_array=True)
