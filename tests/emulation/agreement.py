"""Whether two results are the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from selector.ir.bfloat16 import from_bits


def _values(array: np.ndarray[Any, Any], element: str) -> np.ndarray[Any, Any]:
    return (from_bits(array) if element == "bfloat16" else array).astype(np.float64)


def assert_close(expected: Any, found: Any, elements: dict[str, str], tolerance: float) -> None:
    """Relative Frobenius error; infinities and NaN at the same places. ``elements``: the type of
    each output; one that is alone may come without its name.
    """
    if not isinstance(expected, dict):
        (name,) = elements
        expected, found = {name: expected}, {name: found}
    for name, element in elements.items():
        want, got = _values(expected[name], element), _values(found[name], element)
        assert np.array_equal(np.isfinite(want), np.isfinite(got)), name
        want, got = np.nan_to_num(want), np.nan_to_num(got)
        error = float(np.linalg.norm(want - got)) / (float(np.linalg.norm(want)) or 1.0)
        assert error <= tolerance, f"{name}: relative error {error}"
