"""What the variants are written for: a tensor unit's memory, its types, its tiles."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from selector.ir.bfloat16 import from_bits, to_bits

Array = np.ndarray


@dataclass(frozen=True)
class Machine:
    """A target and how a program names it; ``rows`` x ``columns`` is one tile, ``depth`` its
    reduction."""

    name: str
    target: str
    memory: str
    a_type: str
    b_type: str
    accumulator: str
    prefix: tuple[str, ...]
    rows: int = 16
    columns: int = 16
    depth: int = 16

    @property
    def zero(self) -> str:
        """A literal of the accumulator's type."""
        return {"int32": "0", "float32": "0.0f", "float16": "0.0h"}[self.accumulator]

    @property
    def tolerance(self) -> float:
        """Relative Frobenius error that the accumulator's rounding allows."""
        return {"int32": 0.0, "float32": 2e-6, "float16": 2e-2}[self.accumulator]

    def with_types(self, a: str, b: str, accumulator: str) -> Machine:
        """The machine with other operands; on AMX each pair has an instruction of its own."""
        name = {("int8", "int8"): "ss", ("int8", "uint8"): "su", ("uint8", "int8"): "us",
                ("uint8", "uint8"): "uu"}.get((a, b))  # fmt: skip
        prefix = (f"amx.tdpb{name}d",) if name and self.name == "amx" else self.prefix
        return replace(self, a_type=a, b_type=b, accumulator=accumulator, prefix=prefix)

    def number(self, value: float) -> str:
        """A literal of the accumulator's type."""
        suffix = {"int32": "", "float32": "f", "float16": "h"}[self.accumulator]
        return f"{int(value)}" if not suffix else f"{float(value)}{suffix}"


WMMA = Machine(
    "wmma", "sm_80", "WMMAAccumulator", "float16", "float16", "float32", ("wmma.", "mma.")
)
AMX = Machine("amx", "amx", "AMXTile", "bfloat16", "bfloat16", "float32", ("amx.tdpbf16ps",))

MACHINES = {m.name: m for m in (WMMA, AMX)}

TYPES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "wmma": (
        ("float16", "float16", "float32"), ("float16", "float16", "float16"),
        ("bfloat16", "bfloat16", "float32"), ("int8", "int8", "int32"),
        ("uint8", "uint8", "int32"),
    ),
    "amx": (
        ("bfloat16", "bfloat16", "float32"), ("int8", "int8", "int32"),
        ("uint8", "int8", "int32"), ("int8", "uint8", "int32"), ("uint8", "uint8", "int32"),
    ),
}  # fmt: skip
"""Operands and accumulator that each machine's instructions have."""

_DTYPES: dict[str, type[np.generic]] = {
    "float16": np.float16, "float32": np.float32, "int8": np.int8, "uint8": np.uint8,
    "int32": np.int32, "int16": np.int16,
}  # fmt: skip


def random_array(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Random values of a type, axes in NumPy's order; bfloat16 as its bits."""
    if kind in ("int8", "uint8", "int16", "int32"):
        info = np.iinfo(_DTYPES[kind])
        low, high = max(info.min, -100), min(info.max, 100)
        return rng.integers(low, high, shape, endpoint=True).astype(_DTYPES[kind])
    values = rng.uniform(-1, 1, shape)
    return to_bits(values) if kind == "bfloat16" else values.astype(_DTYPES[kind])


def real(values: Array, kind: str) -> Array:
    """The numbers of an array in float64."""
    return (from_bits(values) if kind == "bfloat16" else values).astype(np.float64)


def relative_error(expected: Array, found: Array) -> float:
    """Relative Frobenius error; infinite for what is not finite."""
    wide = found.astype(np.float64)
    if wide.shape != expected.shape or not np.all(np.isfinite(wide)):
        return float("inf")
    return float(np.linalg.norm(expected - wide) / (np.linalg.norm(expected) or 1.0))
