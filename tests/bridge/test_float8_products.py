"""Products of bytes that are floats, on instructions of such floats: only where a user asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import emulation
import halide as hl
import numpy as np
import pytest
from numpy.typing import NDArray

import halide_bridge as hb
from halide_bridge.schedules import Contraction, Operand, contract
from selector.diagnostics import SelectionError
from selector.families.contraction import Tiling
from selector.gpu.codegen.program import emit_kernels
from selector.intrinsics import INSTRUCTIONS
from selector.ir import float8
from selector.ir.types import E4M3, E5M2, Type
from selector.runtime.nvrtc import sass
from selector.simulate import simulate

pytestmark = pytest.mark.verified

Array = NDArray[Any]
FP8 = ("fp8",)
DECODE: dict[str, Callable[[Any], Any]] = {"e4m3": hb.e4m3, "e5m2": hb.e5m2}
EXACT = 1e-6  # of sums in single floats
TILING = Tiling(n=64, m=64, k=64, parts_m=1, stages=3, depth=32, band=2)


def product(left: str = "e4m3", right: str = "e4m3", layout: str = "nt") -> Contraction:
    """``layout``: as that of the case study."""
    x, y = hl.Var("x"), hl.Var("y")
    a, b = (hl.ImageParam(hl.UInt(8), 2, name) for name in "AB")
    out, total = hl.Func("out"), hl.Func("total")
    k = hl.RDom([(0, a.dim("nt".index(layout[0])).extent())], "k")
    rows = a[k, y] if layout[0] == "n" else a[y, k]
    columns = b[x, k] if layout[1] == "n" else b[k, x]
    total[x, y] += hl.f32(DECODE[left](rows)) * hl.f32(DECODE[right](columns))
    out[x, y] = total[x, y]
    operands = Operand(a, "A", layout[0] == "n"), Operand(b, "B", layout[1] == "t")
    return Contraction(out, total, *operands, x, y, k)


def operands(
    left: str, right: str, layout: str, m: int, n: int, k: int
) -> tuple[dict[str, Array], Array]:
    """Bytes without NaN and infinities, and their product."""
    draw = np.random.default_rng(m * n + k)
    found, read = [], []
    for name, shape in ((left, (m, k)), (right, (k, n))):
        sign = draw.integers(0, 2, shape, np.uint8) << 7
        bytes_ = sign | draw.integers(0, 0x78, shape, np.uint8)
        found.append(bytes_)
        read.append(float8.from_bytes(bytes_, Type.parse(name)).astype(np.float64))
    lying = (
        found[0] if layout[0] == "n" else found[0].T,
        found[1] if layout[1] == "n" else found[1].T,
    )
    return dict(zip("AB", map(np.ascontiguousarray, lying), strict=True)), read[0] @ read[1]


def off(found: Array, wanted: Array) -> float:
    assert found.shape == wanted.shape
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def blocks(kernel: Any) -> set[str]:
    return {u.block.instruction for u in kernel.report.updates if u.block is not None}


def check(kernel: Any, arrays: dict[str, Array], wanted: Array) -> None:
    """Right in the interpreter, in the simulator, with tensor maps and without, and emulated."""
    shape = wanted.shape
    assert off(kernel.interpret(**arrays, sizes=shape), wanted) <= EXACT
    assert off(emulation.check(kernel, sizes=shape, **arrays), wanted) <= EXACT
    kernels, plan = emit_kernels(kernel.module, kernel.target)
    for maps in (True, False):
        found = simulate(kernels, plan, arrays, shape, maps=maps)
        assert found.faults == ()
        (output,) = found.outputs.values()
        assert off(output, wanted) <= EXACT


@pytest.mark.parametrize(
    ("types", "layout", "tiling"),
    [
        (("e4m3", "e4m3"), "nt", TILING),
        (("e4m3", "e5m2"), "nt", replace(TILING, self_fed=True)),
        (("e5m2", "e4m3"), "nt", replace(TILING, n=128, m=128, parts_m=2, persistent=1)),
        (("e5m2", "e5m2"), "nt", replace(TILING, m=128, parts_m=2, cluster=2)),
        (("e4m3", "e5m2"), "nt", replace(TILING, m=16, swapped=True)),
        (("e4m3", "e4m3"), "nt", replace(TILING, part=64)),
        (("e4m3", "e5m2"), "nn", replace(TILING, n=96, copied="B")),
        (("e5m2", "e4m3"), "tn", replace(TILING, copied="AB")),
    ],
    ids=lambda x: getattr(x, "label", None),
)
def test_groups_multiply_the_bytes(types: tuple[str, str], layout: str, tiling: Tiling) -> None:
    scheduled = contract(product(*types, layout), tiling)
    kernel = hb.compile(scheduled, target="sm_90a", instructions=FP8)
    swapped = types[::-1] if tiling.swapped else types
    suffix = ".".join(dict.fromkeys(swapped))
    (name,) = blocks(kernel)
    assert name.startswith("wgmma")
    assert name.endswith(f"k32.{suffix}.f32")
    assert "off by up to 33 * 2**-13" in str(kernel.report)
    for m, n, k in (
        (128, 72, 96),
        (70, 67, 101),
    ):  # with tensor maps, and where rows begin anywhere
        check(kernel, *operands(*types, layout, m, n, k))


@pytest.mark.parametrize("target", ["sm_89", "sm_90a"])
@pytest.mark.parametrize("types", [("e4m3", "e4m3"), ("e5m2", "e4m3")])
def test_products_that_nobody_scheduled(target: str, types: tuple[str, str]) -> None:
    kernel = hb.compile(
        product(*types).output, target=target, schedule="auto", sizes=(4096, 4096),
        instructions=FP8,
    )  # fmt: skip
    unit = "wgmma.m64" if target == "sm_90a" else "mma.m16n8k32"
    assert all(name.startswith(unit) for name in blocks(kernel))
    assert len(blocks(kernel)) == 1
    for m, n, k in ((70, 50, 90), (33, 129, 47)):
        check(kernel, *operands(*types, "nt", m, n, k))


@pytest.mark.parametrize("target", ["sm_89", "sm_90a"])
@pytest.mark.parametrize("taps", [(1, 31), (9, 9)])
def test_filters_read_no_bytes_that_nobody_wrote(taps: tuple[int, int], target: str) -> None:
    """What lies beside zeros of a band may be NaN, which it may not be where bytes are integers."""
    x, y, out = hl.Var("x"), hl.Var("y"), hl.Func("out")
    image, weights = (hl.ImageParam(hl.UInt(8), 2, name) for name in "AB")
    r = hl.RDom([(0, taps[1]), (0, taps[0])], "r")
    pixel, weight = image[x + r.x, y + r.y], weights[r.x, r.y]
    out[x, y] += hl.f32(hb.e4m3(pixel)) * hl.f32(hb.e4m3(weight))
    kernel = hb.compile(out, target=target, schedule="auto", instructions=FP8)
    assert {name.split(".")[0] for name in blocks(kernel)} == {"mma"}
    arrays, _ = operands("e4m3", "e4m3", "nn", 41, 1, 300)
    arrays["B"] = operands("e4m3", "e4m3", "nn", *taps[:1], 1, taps[1])[0]["A"]
    read = [float8.from_bytes(arrays[name], E4M3).astype(np.float64) for name in "AB"]
    windows = np.lib.stride_tricks.sliding_window_view(read[0], taps)
    check(kernel, arrays, np.einsum("yxij,ij->yx", windows, read[1]))


def test_the_machine_multiplies_bytes() -> None:
    for target, opcode in (("sm_90a", "QGMMA"), ("sm_89", "QMMA")):
        kernel = hb.compile(
            product().output, target=target, schedule="auto", sizes=(4096, 4096), instructions=FP8
        )
        assert opcode in "".join(sass(kernel.cubin()).values())


@pytest.mark.parametrize("allowed", [None, ("wgmma",), ("wgmma", "mma")])
def test_nothing_is_multiplied_so_unasked(allowed: tuple[str, ...] | None) -> None:
    with pytest.raises(SelectionError) as error:
        hb.compile(contract(product(), TILING), target="sm_90a", instructions=allowed)
    assert "the bytes of `A_im_in_total` are decoded in the update, as e4m3" in error.value.why
    assert 'instructions=("fp8",)' in error.value.hint


@pytest.mark.parametrize("apart", [False, True])
def test_bytes_beside_halves_are_multiplied_as_halves(apart: bool) -> None:
    """Where both are allowed; ``apart``: the halves are bytes that a Func of its own decodes."""
    x, y, out = hl.Var("x"), hl.Var("y"), hl.Func("out")
    kinds = (hl.UInt(8), hl.UInt(8) if apart else hl.Float(16))
    a, b = (hl.ImageParam(kind, 2, name) for kind, name in zip(kinds, "AB", strict=True))
    halves, k = hl.Func("halves"), hl.RDom([(0, 101)], "k")
    halves[x, y] = hb.e5m2(b[x, y]) if apart else b[x, y]
    out[x, y] += hl.f32(hb.e4m3(a[k, y])) * hl.f32(halves[k, x])
    allowed = ("fp8", "wgmma", "mma")
    kernel = hb.compile(out, target="sm_90a", schedule="auto", instructions=allowed)
    (name,) = blocks(kernel)
    assert name.endswith(".f16.f32")
    arrays, wanted = operands("e4m3", "e5m2", "nt", 70, 50, 101)
    if not apart:
        arrays["B"] = float8.from_bytes(arrays["B"], E5M2).astype(np.float16)
    check(kernel, arrays, wanted)


def test_single_instructions_can_be_named() -> None:
    named = "wgmma.m64n16k32.e4m3.f32"
    kernel = hb.compile(contract(product(), TILING), target="sm_90a", instructions=(named,))
    assert blocks(kernel) == {named}


def test_they_are_multiplied_exactly() -> None:
    """Of every pair of bytes."""
    (instruction,) = (i for i in INSTRUCTIONS if i.name == "mma.m16n8k32.e4m3.e5m2.f32")
    left, right = (float8.values(t).astype(np.float64) for t in float8.FORMATS)
    bytes_ = np.arange(256, dtype=np.uint8)
    zeros = np.zeros((256, 256), np.float32)
    with np.errstate(invalid="ignore"):
        found = instruction.block_semantics(zeros, bytes_[:, None], bytes_[None, :])
        np.testing.assert_array_equal(found, np.outer(left, right))
