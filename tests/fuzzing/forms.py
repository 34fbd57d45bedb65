"""Programs that are no single sum of products: by ``form``, their text and their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fuzzing import chains, resampled, stages
from fuzzing.program import Program

Array = np.ndarray[Any, Any]
FORMS: dict[str, Any] = {"chain": chains, "online": chains, "taps": resampled, "stages": stages}


def pipeline(p: Program) -> Iterator[str]:
    """The lines of ``pipeline(scheduled)``."""
    return FORMS[p.form].pipeline(p)


def kinds(p: Program) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and extents (dimension 0 first) of every array."""
    return FORMS[p.form].kinds(p)


def results(p: Program, arrays: Mapping[str, Array]) -> tuple[Array, ...]:
    """The outputs, of arrays as numbers."""
    found = FORMS[p.form].result(p, arrays)
    return found if isinstance(found, tuple) else (found,)


def result_kinds(p: Program) -> tuple[str, ...]:
    """The types of the outputs."""
    return stages.result_kinds(p) if p.form == "stages" else (p.result,)


def result_shape(p: Program) -> Any:
    """Of the output, in NumPy's order of axes; where there are several, by name."""
    shape = p.sizes[::-1]
    names = stages.result_names(p) if p.form == "stages" else ("out",)
    return dict.fromkeys(names, shape) if len(names) > 1 else shape
