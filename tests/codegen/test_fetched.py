"""What an epilogue reads of inputs beside accumulators: numbers of columns and rows, a residual.
Right as selected, simulated and emitted, wherever blocks end and rows begin.
"""

from __future__ import annotations

from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED

import halide_bridge as hb
from selector.gpu.codegen.program import emit_kernels
from selector.gpu.ir.memory import Array, LoadVector
from selector.gpu.ir.nodes import walk
from selector.runtime import nvrtc
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = EMULATED

F16, F32 = hl.Float(16), hl.Float(32)
n, m = hl.Var("n"), hl.Var("m")
TARGET = "sm_90a"
Size = tuple[int, int, int]  # rows, columns, depth
ABOUT: Size = (3136, 256, 64)


def normalised(*, turned: bool = False, kind: Any = F16) -> hl.Func:
    """A product, its columns scaled and moved, a number of each row, another matrix; ``turned``:
    that is read transposed.
    """
    a, b, rest = (hl.ImageParam(F16, 2, name) for name in ("a", "b", "rest"))
    scale, bias, rows = (hl.ImageParam(F32, 1, name) for name in ("scale", "bias", "rows"))
    k = hl.RDom([(0, a.width())], "k")
    product, out = hl.Func("product"), hl.Func("out")
    product[n, m] += hl.f32(a[k, m]) * hl.f32(b[k, n])
    value = product[n, m] * scale[n] + bias[n] + rows[m]
    value += hl.f32(rest[m, n] if turned else rest[n, m])
    out[n, m] = hl.cast(kind, hl.max(value, hl.f32(0)))
    return out


def data(size: Size, *, turned: bool = False, pitch: int = 0) -> dict[str, Any]:
    """``pitch``: elements more from row to row of the matrix that is added."""
    rows, columns, depth = size
    random = np.random.default_rng(5)

    def halves(*shape: int) -> Any:
        return random.standard_normal(shape).astype(np.float16)

    rest = halves(*((columns, rows) if turned else (rows, columns)))
    wide = np.full((rest.shape[0], rest.shape[1] + pitch), np.float16(np.nan))
    wide[:, : rest.shape[1]] = rest
    found = {"a": halves(rows, depth), "b": halves(columns, depth)}
    found["rest"] = wide[:, : rest.shape[1]]
    for name, count in (("scale", columns), ("bias", columns), ("rows", rows)):
        found[name] = random.standard_normal(count).astype(np.float32)
    return found


def exact(arrays: dict[str, Any], *, turned: bool = False) -> Any:
    given = {name: array.astype(float) for name, array in arrays.items()}
    value = given["a"] @ given["b"].T * given["scale"] + given["bias"] + given["rows"][:, None]
    return np.maximum(value + (given["rest"].T if turned else given["rest"]), 0)


def compiled(about: Size = ABOUT, **options: Any) -> Any:
    """The program for sizes about these, which takes any."""
    out = normalised(**options)
    rows, columns, depth = about
    inputs = {"a": (rows, depth), "b": (columns, depth)}
    hb.autoschedule(out, target=TARGET, sizes={"out": (rows, columns), **inputs})
    return hb.compile(out, target=TARGET, name="normalised")


CASES: dict[str, tuple[dict[str, Any], Size, Size, int]] = {
    "whole blocks": ({}, ABOUT, (128, 64, 32), 0),
    "ragged": ({}, ABOUT, (75, 72, 40), 0),
    "odd rows": ({}, ABOUT, (70, 75, 40), 0),
    "whole blocks, an odd pitch": ({}, ABOUT, (128, 64, 32), 3),
    "whole blocks, an even pitch": ({}, ABOUT, (128, 64, 32), 2),
    "wide blocks": ({}, (784, 512, 128), (130, 264, 40), 0),
    "many blocks": ({}, (8192, 8192, 1024), (257, 264, 72), 0),
    "transposed": ({"turned": True}, ABOUT, (75, 72, 40), 0),
    "single floats": ({"kind": F32}, ABOUT, (75, 72, 40), 0),
    "skinny": ({}, (16, 4096, 512), (13, 200, 72), 0),
    "few columns": ({}, (199, 24, 72), (75, 24, 40), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_right_wherever_blocks_end(name: str) -> None:
    options, about, size, pitch = CASES[name]
    turned = options.get("turned", False)
    arrays, kernel = data(size, turned=turned, pitch=pitch), compiled(about, **options)
    wanted, shape = exact(arrays, turned=turned), size[:2]
    found = [kernel.interpret(**arrays, sizes=shape)]
    kernels, plan = emit_kernels(kernel.module, find_target(TARGET))
    for flags in (True, False):
        run = simulate(kernels, plan, arrays, shape, flags=flags)
        assert run.faults == ()
        found.append(next(iter(run.outputs.values())))
    found.append(check(kernel, **arrays, sizes=shape))
    for result in found:
        error = np.linalg.norm(np.asarray(result, float) - wanted)
        assert error <= 1e-3 * np.linalg.norm(wanted)


def test_numbers_are_loaded_once_and_two_at_a_time() -> None:
    """Of a block of 64 x 32: 8 columns a lane, and 8 pairs of the matrix; once more where it is not
    whole.
    """
    (kernel,), _ = emit_kernels(compiled().module, find_target(TARGET))
    found = [x for x in walk(kernel.body) if isinstance(x, Array)]
    arrays = {x.name.partition("_")[0]: x.count for x in found}
    loads = [x for x in walk(kernel.body) if isinstance(x, LoadVector)]
    assert arrays == {"parts": 4, "scale": 8, "bias": 8, "rows": 2, "rest": 16}
    assert sorted(x.bytes for x in loads) == [4] * 16 + [8] * 16


@pytest.mark.parametrize("about", [ABOUT, (8192, 8192, 1024)])
def test_nothing_spills(about: Size) -> None:
    """Accumulators of 64 x 256 leave no room for what would be loaded ahead."""
    source = compiled(about).source
    (usage,) = nvrtc.resource_usage(nvrtc.compile_to_cubin(source, TARGET)).values()
    assert usage.local_accesses == 0
