"""A sample of the variants for AMX, compiled: what the selected program computes on software tiles
is what the interpreter says, and the text compiles for hardware without a warning.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import outcomes
import pytest
import test_halide_variants as pipelines
import test_text_variants as texts
from verified import IN_C, Verified

sys.path.append(str(Path(__file__).resolve().parent.parent / "cpu"))

from c_programs import AMX, HARDWARE, compiled, executable, poisoned
from machines import relative_error

from selector.cpu import emit
from selector.ir.interpreter import interpret
from selector.ir.module import Module
from selector.ir.nodes import Role
from selector.lowering.hoist import hoist
from selector.lowering.preload import swizzle_preloaded

pytestmark = pytest.mark.verified

SAMPLES = {
    **dict.fromkeys(list(texts.corpus("amx"))[::7], texts),
    **dict.fromkeys(list(pipelines.corpus("amx"))[1::7], pipelines),
}
MORE = "subscript twice less itself"  # Halide takes more to be read than is, and a call wants that
SAMPLES = {name: corpus for name, corpus in SAMPLES.items() if not name.endswith(MORE)}
TOLERANCE = 2e-6  # of sums taken in another order


def run_in_c(
    module: Module, arrays: dict[str, Any], folder: Path, verified: Verified, **options: Any
) -> None:
    """Compare what C writes over poison with the interpreter."""
    plan = emit(hoist(swizzle_preloaded(module)), AMX)
    inputs = (arrays[name].tobytes() for name in sorted(arrays))
    if verified(plan.source, str(module), repr(options), *inputs):
        return
    expected = interpret(module, arrays, **options)
    compiled(plan.source, folder, *HARDWARE)
    types = {b.name: str(b.type) for b in module.buffers}
    outs = {name: poisoned(e.shape, types[name]) for name, e in expected.items()}
    inputs = {b.name: arrays[b.name] for b in module.buffers if b.role is Role.INPUT}
    executable(plan)([], {**inputs, **(options.get("scalars") or {})}, out=outs)
    for name, wanted in expected.items():
        if wanted.dtype.kind == "i":
            np.testing.assert_array_equal(outs[name], wanted)
        else:
            assert relative_error(wanted.astype(np.float64), outs[name]) <= TOLERANCE


@IN_C
@pytest.mark.parametrize("name", SAMPLES)
def test_variant_in_c(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verified: Verified
) -> None:
    ran: list[str] = []

    def checked(module: Module, arrays: Any, *args: Any, **options: Any) -> Any:
        run_in_c(module, arrays, tmp_path, verified, **options)
        ran.append(name)
        return interpret(module, arrays, *args, **options)

    monkeypatch.setattr(outcomes, "interpret", checked)
    corpus = SAMPLES[name]
    corpus.outcome.cache_clear()
    found = corpus.outcome("amx", name)
    corpus.outcome.cache_clear()
    assert ran or found.why, "selected programs run"
