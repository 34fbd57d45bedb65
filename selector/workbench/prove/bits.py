"""What the rules' facts about types say, tried on all bit patterns.

``embeds`` and ``product-fits`` are rows that people write, for types of at most 16 and 8 bits; the
proofs of rules take them as true (``solve.of_types``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from selector.eqsat.worlds import parse
from selector.ir import arithmetic
from selector.ir.types import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, Type

FACTS = ("embeds", "product-fits")
_KINDS = ("int", "uint")
_INTEGERS = tuple(Type.parse(f"{kind}{bits}") for kind in _KINDS for bits in (8, 16, 32))
_ALL = (*_INTEGERS, FLOAT16, BFLOAT16, FLOAT32, FLOAT64)
_WIDEST = {"embeds": 16, "product-fits": 8}


def rows(files: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """(relation, type, type) of every fact about types in rule files."""
    for form in (f for _, text in files for f in parse(text)):
        match form:
            case (str(name), str(a), str(b)) if name in FACTS:
                yield name, a.strip('"'), b.strip('"')
            case _:
                pass


def counterexample(name: str, narrow: str, wide: str) -> str | None:
    """A value of which a row is not so; empty if there is none, None if none was found among some
    of too many."""
    a, b = Type.parse(narrow), Type.parse(wide)
    all_of_them = a.bits <= _WIDEST[name]
    values = _patterns(a) if all_of_them else _ends(a)
    found = _changed(values, b) if name == "embeds" else _product(values, b)
    return found or ("" if all_of_them else None)


def _ends(t: Type) -> np.ndarray:
    """The smallest and the largest value of a type."""
    if t.is_float:
        return np.array([1e30, 1 + 2.0**-20], arithmetic.dtype_of(t))
    known = np.iinfo(arithmetic.dtype_of(t))
    return np.array([known.min, known.max], arithmetic.dtype_of(t))


def _changed(values: np.ndarray, t: Type) -> str:
    with np.errstate(all="ignore"):
        wrong = values[_exact(arithmetic.cast(values, t)) != _exact(values)]
    return str(wrong[0]) if wrong.size else ""


def _product(values: np.ndarray, h: Type) -> str:
    """A product that the type h has not, or that some type has other than its factors'."""
    x, y = (v.ravel() for v in np.meshgrid(values, values))
    exact = _exact(x) * _exact(y)  # of 8 bits each; the ends of wider ones need no more than 64
    held = arithmetic.cast(exact, h)
    wrong = _exact(held) != exact
    for w in _ALL:
        with np.errstate(all="ignore"):
            factors = [arithmetic.cast(v, w).astype(arithmetic.dtype_of(w)) for v in (x, y)]
            product = arithmetic.cast(factors[0] * factors[1], w)
        wrong |= arithmetic.cast(held, w) != product
    at = np.flatnonzero(wrong)
    return f"{x[at[0]]} * {y[at[0]]}" if at.size else ""


def _exact(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64 if values.dtype.kind == "f" else np.int64)


def _patterns(t: Type) -> np.ndarray:
    """All values of a type, one a bit pattern; no NaN and no infinity."""
    patterns = np.arange(2**t.bits, dtype=np.uint32)
    if t == BFLOAT16:
        values = (patterns << 16).astype(np.uint32).view(np.float32)
    elif t == FLOAT16:
        values = patterns.astype(np.uint16).view(np.float16)
    else:
        values = patterns.astype(f"u{t.bits // 8}").view(arithmetic.dtype_of(t))
    with np.errstate(all="ignore"):
        return values[np.isfinite(values.astype(np.float64))]
