"""What a ``Call`` of a selected program means: the one place where names meet NumPy.

Values are arrays whose last axis are the lanes; leading axes are whatever the interpreter batches
over. Shape arguments (M, N, K, stride, dilation) are ``IntImm`` nodes of the call and are read from
it, not from the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from selector.diagnostics import InternalError
from selector.intrinsics import functions, records
from selector.ir.evaluator import register
from selector.ir.nodes import Call, IntImm

Array = NDArray[np.generic]
Meaning = Callable[[Call, Sequence[Array]], Array]

TILE_FILL = "tile.fill"
TILE_READ = "tile.read"
TOEPLITZ = "toeplitz"
TOEPLITZ_TRANSPOSED = "toeplitz.t"
VNNI = "vnni"


def constants(call: Call, count: int) -> tuple[int, ...]:
    """The leading ``count`` arguments, which are integer constants of the call."""
    out: list[int] = []
    for argument in call.args[:count]:
        if not isinstance(argument, IntImm):
            raise InternalError(f"{call.name}: argument {len(out)} is not a constant: {argument}")
        out.append(argument.value)
    return tuple(out)


def matrix(values: Array, rows: int, columns: int) -> Array:
    """Lanes in row-major order as a (..., rows, columns) matrix."""
    return values.reshape(*values.shape[:-1], rows, columns)


def lanes(values: Array) -> Array:
    """The inverse of ``matrix``."""
    return values.reshape(*values.shape[:-2], -1)


def _multiply_add(call: Call, values: Sequence[Array]) -> Array:
    instruction = records.find(call.name)
    assert instruction is not None
    m, n, k = constants(call, 3)
    c, a, packed = values[3:6]
    b = (
        matrix(packed, k, n)
        if instruction.packing == 1
        else functions.unpack_vnni(packed, k, n, instruction.packing)
    )
    return lanes(instruction.block_semantics(matrix(c, m, n), matrix(a, m, k), b))


def _vnni(call: Call, values: Sequence[Array]) -> Array:
    """Arguments (K, N, packing, matrix): its lanes in VNNI order, K padded to whole groups."""
    k, n, packing = constants(call, 3)
    packed = functions.pack_vnni(matrix(values[3], k, n), packing)
    return packed.reshape(*values[3].shape[:-1], -1)


def _toeplitz(call: Call, values: Sequence[Array]) -> Array:
    """Arguments (K, N, stride, dilation, phases, taps)."""
    k, n, stride, dilation, phases = constants(call, 5)
    return lanes(functions.toeplitz(values[5], k, n, stride, dilation, phases))


def _toeplitz_transposed(call: Call, values: Sequence[Array]) -> Array:
    """Arguments (K, M, stride, dilation, phases, taps): lanes (m, k) of the transposed band over m
    outputs."""
    k, m, stride, dilation, phases = constants(call, 5)
    band = functions.toeplitz(values[5], k, m, stride, dilation, phases)
    return lanes(np.swapaxes(band, -1, -2))


def _identity(call: Call, values: Sequence[Array]) -> Array:
    return values[0]


def _pure(call: Call, values: Sequence[Array]) -> Array:
    function = functions.find_function(call.name)
    assert function is not None
    assert len(values) == function.arity, call.name
    return function.evaluate(*values)


def _meanings() -> dict[str, Meaning]:
    table: dict[str, Meaning] = {i.name: _multiply_add for i in records.INSTRUCTIONS}
    table.update(dict.fromkeys(functions.FUNCTIONS, _pure))
    table[TOEPLITZ] = _toeplitz
    table[TOEPLITZ_TRANSPOSED] = _toeplitz_transposed
    table[VNNI] = _vnni
    table[TILE_FILL] = table[TILE_READ] = _identity
    return table


CALLS: dict[str, Meaning] = _meanings()


def register_all() -> None:
    """Make every call of the table known to the interpreter."""
    for name, meaning in CALLS.items():
        register(name, meaning)
