"""Types of elements: what arrays hold as numbers, and numbers as arrays hold them."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64,
    "s8": np.int8, "u8": np.uint8, "s16": np.int16, "u16": np.uint16, "s32": np.int32,
    "u32": np.uint32, "s64": np.int64, "bool": np.bool_, "e4m3": np.uint8, "e5m2": np.uint8,
}  # fmt: skip
NARROW = "s8", "u8", "s16", "u16"
INTEGERS = (*NARROW, "s32", "u32", "s64", "bool")
FORMATS = {"e4m3": (3, 7), "e5m2": (2, 15)}  # bits of the significand, bias of the exponent


def to_bits(values: Array) -> Array:
    """bfloat16 patterns, rounded to nearest even."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bits(bits: Array) -> Array:
    return (np.asarray(bits).astype(np.uint32) << 16).view(np.float32)


def from_bytes(stored: Array, kind: str) -> Array:
    """The values of bytes that are floats, by their formats' definition."""
    bits, bias = FORMATS[kind]
    stored = np.asarray(stored).astype(np.int64)
    exponent, low = stored >> bits & (1 << 7 - bits) - 1, stored & (1 << bits) - 1
    size = np.ldexp((low + (exponent > 0) * 2.0**bits), np.maximum(exponent, 1) - bias - bits)
    last = exponent == (1 << 7 - bits) - 1
    none = last & (low == 7) if kind == "e4m3" else last & (low > 0)
    size = np.where(last & (low == 0) & (kind == "e5m2"), np.inf, size)
    return np.where(stored >> 7, -1.0, 1.0) * np.where(none, np.nan, size)


def bytes_of(kind: str, values: str) -> list[int]:
    """Those that inputs are drawn from: of the numbers that any type is drawn from."""
    found = from_bytes(np.arange(256), kind)
    fits = np.isin(np.abs(found), (1, 2, 3)) if values == "small" else np.abs(found) <= 1
    return [int(byte) for byte in np.flatnonzero(fits)]


def numbers(values: Array, kind: str) -> Array:
    """float64 (integers: int64) of an array of a type."""
    if kind in FORMATS:
        return from_bytes(values, kind)
    values = from_bits(values) if kind == "bf16" else np.asarray(values)
    return values.astype(np.int64 if kind in INTEGERS else np.float64)


def rounded(values: Array, kind: str) -> Array:
    """Numbers as a type holds them, as numbers."""
    if kind == "bf16":
        return from_bits(to_bits(values)).astype(np.float64)
    with np.errstate(all="ignore"):
        return numbers(np.asarray(values).astype(DTYPES[kind]), kind)


def drawn(rng: np.random.Generator, shape: tuple[int, ...], kind: str, values: str) -> Array:
    if kind in NARROW:
        held = np.iinfo(DTYPES[kind])
        return rng.integers(held.min, held.max, shape, endpoint=True).astype(DTYPES[kind])
    if kind == "bool":
        return rng.random(shape) < 0.5
    if kind in FORMATS:
        return rng.choice(np.array(bytes_of(kind, values), np.uint8), shape)
    if kind in INTEGERS:
        low = 0 if kind == "u32" else -1000
        return rng.integers(low, 1000, shape, endpoint=True).astype(DTYPES[kind])
    if values == "small":
        found = rng.integers(1, 4, shape) * rng.choice(np.array([-1, 1]), shape)
        found = found.astype(np.float32)
    else:
        found = rng.uniform(-1, 1, shape).astype(np.float32)
    return to_bits(found) if kind == "bf16" else found.astype(DTYPES[kind])
