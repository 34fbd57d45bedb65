"""Calls that are no tensor instruction: tile helpers, Toeplitz operands and the pure math
functions.

One record per name gives the meaning in NumPy and, for pure functions, the spelling in CUDA C++.
Names are those that Halide 21 gives its math calls in lowered IR (``sqrt_f32``, ``pow_f16``, ...).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from selector.dataclass import dataclass
from selector.ir.types import IllTyped

Array = NDArray[np.generic]


def toeplitz(taps: Array, k: int, n: int, stride: int, dilation: int, phases: int = 1) -> Array:
    """The banded matrix ``T[t, (q, p)] = taps[p, (t - stride*q) / dilation]`` of shape (..., k, n),
    zero off the band.

    Columns are outputs q in ``phases`` phases p each, the phase fastest; ``taps`` is (..., phases *
    number of taps), a phase's taps together. k is at least ``toeplitz_rows(taps, n, stride,
    dilation, phases)``, rows beyond are zero; IllTyped for fewer.
    """
    count = taps.shape[-1] // phases
    if n % phases or taps.shape[-1] % phases:
        raise IllTyped(f"{taps.shape[-1]} taps, {n} columns: no whole number of {phases} phases")
    if k < toeplitz_rows(count, n, stride, dilation, phases):
        raise IllTyped(f"a band of {count} taps has more than {k} rows")
    output, phase = np.divmod(np.arange(n)[None, :], phases)
    tap, rest = np.divmod(np.arange(k)[:, None] - stride * output, dilation)
    valid = (rest == 0) & (tap >= 0) & (tap < count)
    place = phase * count + np.where(valid, tap, 0)
    return np.where(valid, taps[..., place], np.zeros((), taps.dtype))


def toeplitz_rows(taps: int, n: int, stride: int, dilation: int, phases: int = 1) -> int:
    """The reduction extent of a band over n columns: dilation*(taps-1) + stride*(n/phases-1) + 1.

    ``taps`` are those of one phase.
    """
    return dilation * (taps - 1) + stride * (n // phases - 1) + 1


def pack_vnni(values: Array, packing: int) -> Array:
    """A (..., K, N) matrix in VNNI order: (..., ceil(K / packing), N, packing), zero beyond K."""
    *outer, k, n = values.shape
    groups = -(-k // packing)
    padded = np.zeros((*outer, groups * packing, n), values.dtype)
    padded[..., :k, :] = values
    return np.swapaxes(padded.reshape(*outer, groups, packing, n), -1, -2)


def unpack_vnni(values: Array, k: int, n: int, packing: int) -> Array:
    """The (..., K, N) matrix of lanes in VNNI order: the inverse of ``pack_vnni``."""
    outer = values.shape[:-1]
    groups = values.reshape(*outer, -1, n, packing)
    return np.swapaxes(groups, -1, -2).reshape(*outer, -1, n)[..., :k, :]


@dataclass(frozen=True, slots=True)
class PureFunction:
    """A lane-wise function: its NumPy meaning, its CUDA spelling in float32, and how many arguments
    it takes.

    ``result`` is "same" (the type of the first argument), "bool", or "unsigned" (``abs`` of
    integers). Half and bfloat16 arguments are widened to float32 for the computation and rounded
    back.
    """

    name: str
    numpy: Callable[..., Array]
    cuda: str
    arity: int = 1
    result: str = "same"

    @property
    def rounded(self) -> str:
        """The CUDA spelling where the result is rounded to 16 bits next."""
        return _ROUNDED.get(self.cuda, self.cuda)

    @property
    def as_rounded(self) -> str | None:
        """The CUDA spelling that is no further off than the exact value is when it is rounded to
        float16: for values that are, and widened again.
        """
        return _AS_ROUNDED.get(self.cuda)

    def evaluate(self, *args: Array) -> Array:
        """Apply to arrays of one shape; the result has the dtype of the first argument, or bool."""
        first = args[0]
        if first.dtype == np.float16:
            args = tuple(a.astype(np.float32) for a in args)
        with np.errstate(all="ignore"):
            value = self.numpy(*args)
        if self.result == "unsigned" and first.dtype.kind == "i":
            return value.astype(np.dtype(f"u{first.dtype.itemsize}"))
        return value if self.result == "bool" else value.astype(first.dtype)


def _inverse_sqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)  # type: ignore[call-overload]


def _round_half_even(x: Array) -> Array:
    return np.rint(x)  # type: ignore[arg-type]


_ROUNDED = {"expf": "exp_rounded", "exp2f": "exp2_rounded", "powf": "pow_rounded"}
"""Functions of less precision, which rounding to 16 bits hides (see the CUDA preamble)."""

ROUNDED = frozenset(_ROUNDED.values())

_AS_ROUNDED = {"tanhf": "tanh_approximate"}

_FLOAT_FUNCTIONS: tuple[tuple[str, Callable[..., Array], str, int, str], ...] = (
    ("sqrt", np.sqrt, "sqrtf", 1, "same"),
    ("exp", np.exp, "expf", 1, "same"),
    ("log", np.log, "logf", 1, "same"),
    ("sin", np.sin, "sinf", 1, "same"),
    ("cos", np.cos, "cosf", 1, "same"),
    ("tan", np.tan, "tanf", 1, "same"),
    ("asin", np.arcsin, "asinf", 1, "same"),
    ("acos", np.arccos, "acosf", 1, "same"),
    ("atan", np.arctan, "atanf", 1, "same"),
    ("atan2", np.arctan2, "atan2f", 2, "same"),
    ("sinh", np.sinh, "sinhf", 1, "same"),
    ("cosh", np.cosh, "coshf", 1, "same"),
    ("tanh", np.tanh, "tanhf", 1, "same"),
    ("asinh", np.arcsinh, "asinhf", 1, "same"),
    ("acosh", np.arccosh, "acoshf", 1, "same"),
    ("atanh", np.arctanh, "atanhf", 1, "same"),
    ("pow", np.power, "powf", 2, "same"),
    ("floor", np.floor, "floorf", 1, "same"),
    ("ceil", np.ceil, "ceilf", 1, "same"),
    ("trunc", np.trunc, "truncf", 1, "same"),
    ("round", _round_half_even, "rintf", 1, "same"),
    ("fast_inverse", np.reciprocal, "__frcp_rn", 1, "same"),
    ("fast_inverse_sqrt", _inverse_sqrt, "rsqrtf", 1, "same"),
    ("is_nan", np.isnan, "isnan", 1, "bool"),
    ("is_inf", np.isinf, "isinf", 1, "bool"),
    ("is_finite", np.isfinite, "isfinite", 1, "bool"),
)


def _absolute(x: Array) -> Array:
    return np.abs(x)  # type: ignore[arg-type]


def _spelling(cuda: str, suffix: str) -> str:
    """CUDA's name of the double version; half computes in float."""
    if suffix != "f64":
        return cuda
    return {"rsqrtf": "rsqrt", "__frcp_rn": "__drcp_rn"}.get(cuda, cuda.removesuffix("f"))


def _halide_names() -> dict[str, PureFunction]:
    table = {
        f"{base}_{suffix}": PureFunction(
            f"{base}_{suffix}", meaning, _spelling(cuda, suffix), arity, result
        )
        for base, meaning, cuda, arity, result in _FLOAT_FUNCTIONS
        for suffix in ("f16", "f32", "f64")
    }
    for base, meaning, cuda in (
        ("abs", _absolute, "abs"),
        ("floor", np.floor, "floorf"),
        ("ceil", np.ceil, "ceilf"),
        ("trunc", np.trunc, "truncf"),
        ("round", _round_half_even, "rintf"),
    ):
        result = "unsigned" if base == "abs" else "same"
        table[base] = PureFunction(base, meaning, cuda, result=result)
    return table


FUNCTIONS: dict[str, PureFunction] = _halide_names()


POWER_OF_TWO = PureFunction("exp2", np.exp2, "exp2f")
"""What ``pow_f32`` of base 2 is."""


def find_function(name: str) -> PureFunction | None:
    """The pure function of that name in lowered Halide IR, or None."""
    return FUNCTIONS.get(name)
