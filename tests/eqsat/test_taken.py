"""Equalities that were inferred, and taken: what the page lists is selected and right at ragged
sizes, and refused without the rule or the pass that takes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("halide")

import halide as hl
from taken import (
    SCALE,
    TAKEN,
    TARGET,
    Taken,
    rows_and_columns,
    selected,
    shown,
    table,
    without,
    written,
)

import halide_bridge as hb
from selector.diagnostics import EmitError, SelectionError

CASES = [pytest.param(t, id=t.term) for t in TAKEN]
PARTS = [pytest.param(t, by, id=f"{shown(by)}: {t.term}") for t in TAKEN for by in t.by]


def drawn(kind: hl.Type, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    if kind.is_float():
        return random.integers(-8, 9, shape).astype(np.float16)
    low = 0 if kind == hl.UInt(8) else -128
    return random.integers(low, low + 256, shape).astype(np.uint8 if low == 0 else np.int8)


@pytest.mark.parametrize("taken", CASES)
def test_it_is_selected_and_right(taken: Taken) -> None:
    kernel = hb.compile(taken.scheduled(), target=TARGET, cache=False)
    assert any(update.block is not None for update in kernel.report.updates)
    shapes, sizes = rows_and_columns(taken)
    arrays = [
        drawn(kind, s, i) for i, (kind, s) in enumerate(zip(taken.kinds, shapes, strict=False))
    ]
    _, out, given = taken.pipeline()
    for parameter, array in zip(given, arrays, strict=True):
        parameter.set(hl.Buffer(array))
    scale = {"s": 4.0} if "/ s" in taken.term else {}
    SCALE.set(4.0)
    wanted = np.asarray(out.realize(list(sizes[::-1])))
    named = {p.name(): a for p, a in zip(given, arrays, strict=True)}
    found = kernel.interpret(**named, **scale, sizes=sizes)
    assert np.linalg.norm(found - wanted) <= 1e-6 * np.linalg.norm(wanted)


@pytest.mark.parametrize(("taken", "by"), PARTS)
def test_it_is_refused_without(taken: Taken, by: str | tuple[str, ...]) -> None:
    with without(by) as rules, pytest.raises((SelectionError, EmitError)):
        selected(taken, rules)


def test_the_page_lists_them() -> None:
    assert written() == table(), "python tests/eqsat/taken.py"


@pytest.mark.parametrize("term", [
    "hl.select(t < x, f32(i[x + t, y]) * f32(k[t]), 0.0)",
    "f32(i[hl.min(x + t, x + 12), y]) * f32(k[t])",
])  # fmt: skip
def test_what_is_no_product_is_refused(term: str) -> None:
    """Each result has other taps; several taps meet one pixel."""
    with pytest.raises(SelectionError):
        selected(Taken(0, "", term, ()), frozenset())
