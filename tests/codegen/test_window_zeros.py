"""Windows of a band over intermediates: what nobody computed meets the band's zeros, and zero times
garbage must be zero.
"""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest
from verified import IN_C, Verified, text_of

import halide_bridge as hb
from selector.intrinsics.windows import windows
from selector.ir.bfloat16 import from_bits, to_bits
from selector.ir.parser import parse_module

TAPS = 5


def over_intermediate(machine: str, staged: bool = False) -> hl.Func:
    """A convolution of rows that another Func computes at the root, for as many outputs as are
    asked for, not for as many as tiles hold.
    """
    gpu = machine == "cuda"
    element = hl.Float(16) if gpu else hl.BFloat(16)
    image, weights = hl.ImageParam(element, 2, "I"), hl.ImageParam(element, 1, "K")
    x, y, xo, xi, yo, yi = (hl.Var(n) for n in ("x", "y", "xo", "xi", "yo", "yi"))
    t = hl.RDom([(0, TAPS)], "t")
    twice, conv, out = hl.Func("twice"), hl.Func("conv"), hl.Func("output")
    twice[x, y] = hl.cast(element, hl.f32(image[x, y]) * 2.0)
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(twice[x + t.x, y]) * hl.f32(weights[t.x])
    out[x, y] = conv[x, y]
    width = 128 if gpu else 256
    conv.compute_at(out, yi if gpu else xo).bound_extent(x, width).vectorize(x)
    conv.update().reorder(t.x, x).atomic().vectorize(x).vectorize(t.x)
    twice.compute_root()
    if gpu:
        out.split(x, xo, xi, width).split(y, yo, yi, 4).reorder(xi, yi, xo, yo)
        out.gpu_blocks(xo, yo).gpu_threads(yi)
        twice.gpu_tile(x, y, xo, yo, xi, yi, 32, 4)
        hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    else:
        out.split(x, xo, xi, width)
        hb.store_in(conv, hb.MemoryType.AMXTile)
    out.vectorize(xi)
    if staged:
        rows = twice.in_(conv)
        a, b = rows.args()
        rows.compute_at(out, xo).bound_extent(a, width + 8).vectorize(a)
        if gpu:
            rows.store_in(hl.MemoryType.GPUShared).bound_extent(b, 4).vectorize(b)
    return out


def convolved(image: np.ndarray, taps: np.ndarray) -> np.ndarray:
    width = image.shape[1] - TAPS + 1
    return sum(2 * taps[i] * image[:, i : i + width] for i in range(TAPS))  # type: ignore[return-value]


def close(found: np.ndarray, truth: np.ndarray) -> bool:
    return float(np.linalg.norm(found - truth)) <= 2e-3 * float(np.linalg.norm(truth))


@pytest.mark.slow
@IN_C
@pytest.mark.parametrize("staged", [False, True], ids=["in place", "staged"])
@pytest.mark.parametrize("width", [1, 10, 15, 16, 250, 256, 270])
def test_in_c_and_interpreted(staged: bool, width: int, verified: Verified) -> None:
    kernel = hb.compile(over_intermediate("amx", staged), target="amx")
    if verified(text_of(kernel), str(kernel.module)):
        return
    rng = np.random.default_rng(width)
    poison = to_bits(np.full((3, 4000), np.nan, np.float32))
    taps = to_bits(rng.standard_normal(TAPS).astype(np.float32))
    kernel(I=poison, K=taps)  # the next call gets its temporaries, full of NaN
    image = to_bits(rng.standard_normal((3, width + TAPS - 1)).astype(np.float32))
    truth = convolved(from_bits(image).astype(np.float64), from_bits(taps).astype(np.float64))
    found = np.full(truth.shape, np.nan, np.float32)
    kernel(I=image, K=taps, out=found)
    assert close(found, truth)
    assert close(kernel.interpret(I=image, K=taps, sizes={"output": truth.shape}), truth)


@pytest.mark.parametrize("staged", [False, True], ids=["in place", "staged"])
@pytest.mark.parametrize("width", [1, 10, 250, 300])
def test_for_gpus(staged: bool, width: int) -> None:
    """The runtime gives kernels zeros; the interpreter, whose memory is NaN, does as it does."""
    kernel = hb.compile(over_intermediate("cuda", staged), target="sm_90a")
    rng = np.random.default_rng(width)
    image = rng.standard_normal((3, width + TAPS - 1)).astype(np.float16)
    taps = rng.standard_normal(TAPS).astype(np.float16)
    truth = convolved(image.astype(np.float64), taps.astype(np.float64))
    assert close(kernel.interpret(I=image, K=taps, sizes={"output": truth.shape}), truth)


PROGRAM = """module test
input A: bfloat16 [(0, 640, 1)]
input K: bfloat16 [(0, 5, 1)]
output C: float32 [(0, 256, 1)]
body {
 allocate copy[bfloat16 * 640] in Heap
 for (i, 0, 640) {
  copy[i] = A[i]
 }
 allocate other[bfloat16 * 640] in Heap
 for (i, 0, 640) {
  other[i] = copy[i]
 }
 allocate band[bfloat16 * 320] in Heap
 band[ramp(0, 1, 320)] = BAND
 allocate acc[float32 * 256] in AMXTile
 acc[ramp(0, 1, 256)] = (float32x256)tile.fill(x256(0.0f))
 acc[ramp(0, 1, 256)] = (float32x256)amx.tdpbf16ps.m16n16k32(16, 16, 20, acc[ramp(0, 1, 256)], \
other[ramp(ramp(0, 1, 20), x20(16), 16)], band[ramp(0, 1, 320)])
 C[ramp(0, 1, 256)] = (float32x256)tile.read(acc[ramp(0, 1, 256)])
}"""
BAND = "(bfloat16x320)vnni(20, 16, 2, (bfloat16x320)toeplitz(20, 16, 1, 1, 1, K[ramp(0, 1, 5)]))"


def test_what_a_window_is_made_of_counts() -> None:
    found = windows(parse_module(PROGRAM.replace("BAND", BAND)).body)
    assert found == {"copy", "other"}


def test_a_dense_product_has_no_windows() -> None:
    assert not windows(parse_module(PROGRAM.replace("BAND", "A[ramp(0, 1, 320)]")).body)


def test_a_buffer_that_is_filled_first_is_not_cleared() -> None:
    from c_programs import plan_of

    source = plan_of(PROGRAM.replace("BAND", BAND)).source
    assert "memset(copy" not in source
    assert "memset(other" not in source
    partly = PROGRAM.replace("BAND", BAND).replace("for (i, 0, 640)", "for (i, 0, 639)")
    assert "memset(other" in plan_of(partly).source
