"""What a lowered module holds: tiles, tails, parameters, requirements, names, origins."""

from __future__ import annotations

import re
from collections.abc import Iterator

import halide as hl
import pytest
from pipelines import (
    EXAMPLES,
    F16,
    Case,
    bias_relu,
    conv1d,
    conv2d,
    downsample,
    gemm_simple,
    gemm_staged,
    upsample,
    variables,
)

import halide_bridge as hb
from selector.ir.module import Module
from selector.ir.nodes import (
    Allocate,
    Atomic,
    Broadcast,
    Call,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Load,
    Memory,
    Ramp,
    Role,
    Store,
    VectorReduce,
)
from selector.ir.parser import parse_module
from selector.ir.printer import print_expr
from selector.ir.traverse import walk_all_exprs, walk_expr, walk_stmt
from selector.ir.types import FLOAT32

pytestmark = pytest.mark.verified


def lower(case: Case, **arguments: object) -> Module:
    amx = case.target == "amx"
    case.mark(hb.MemoryType.AMXTile if amx else hb.MemoryType.WMMAAccumulator)
    return hb.lower(case.outputs, target=case.target, **arguments)  # type: ignore[arg-type]


def stores(module: Module, buffer: str) -> list[Store]:
    return [s for s in walk_stmt(module.body) if isinstance(s, Store) and s.buffer == buffer]


def updates(module: Module, buffer: str) -> list[Store]:
    return [
        s
        for s in stores(module, buffer)
        if any(isinstance(e, VectorReduce) for e in walk_expr(s.value))
    ]


def allocation(module: Module, name: str) -> Allocate:
    return next(s for s in walk_stmt(module.body) if isinstance(s, Allocate) and s.name == name)


def constants(exprs: tuple[Expr, ...]) -> list[int]:
    return [e.value for e in exprs if isinstance(e, IntImm)]


def loads(module: Module, buffer: str) -> Iterator[Load]:
    return (e for e in walk_all_exprs(module.body) if isinstance(e, Load) and e.buffer == buffer)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_accumulator_tile_is_one_dense_ramp(name: str) -> None:
    case = EXAMPLES[name]()
    module = lower(case)
    accumulator = re.sub(r"\$\d+", "", case.marked[0].name())
    assert updates(module, accumulator)
    for store in stores(module, accumulator):
        assert isinstance(store.index, Ramp), print_expr(store.index)
        assert store.index.stride == IntImm(1)
        assert store.index.base.type.lanes == 1


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_text_reads_back(name: str) -> None:
    module = lower(EXAMPLES[name](), name=name)
    text = str(module)
    assert str(parse_module(text, f"{name}.vir")) == text


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_same_pipeline_has_the_same_text(name: str) -> None:
    def text() -> str:
        return str(lower(EXAMPLES[name]()))

    first = text()
    hl.Func("conv"), hl.Func("mm"), hl.RDom([(0, 3)])  # moves Halide's counters
    assert text() == first
    assert not re.search(r"\$\d", first)


def test_register_blocking_in_both_directions() -> None:
    module = lower(gemm_simple(F16, k=64))
    assert constants(allocation(module, "mm").extents) == [16, 16, 2, 4]
    assert len(updates(module, "mm")) == 8
    assert [print_expr(s.index) for s in updates(module, "mm")][:3] == [
        "ramp(0, 1, 256)",
        "ramp(256, 1, 256)",
        "ramp(512, 1, 256)",
    ]


def test_loops_over_tiles_are_unrolled() -> None:
    """The schedule does not unroll the initial value of `mm`; registers take constants only."""
    module = lower(gemm_simple(F16))
    fills = [s for s in stores(module, "mm") if s not in updates(module, "mm")]
    assert len(fills) == 8


def test_a_loop_around_the_accumulators_stays_a_loop() -> None:
    """Strips of rows in turn: every iteration has its own accumulators, of two rows each."""
    x, y, xo, xi, yo, yb, ys, yi = variables("x y xo xi yo yb ys yi")
    image, conv, out = hl.ImageParam(hl.Float(16), 2, "I"), hl.Func("conv"), hl.Func("out")
    t = hl.RDom([(0, 8)], "t")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(image[x + t.x, y]) * hl.f32(image[t.x, 0])
    out[x, y] = conv[x, y]
    out.split(x, xo, xi, 128).split(y, yo, yb, 8).split(yb, ys, yi, 2).reorder(xi, yi, ys, xo, yo)
    out.vectorize(xi).unroll(yi).gpu_blocks(xo, yo)
    conv.compute_at(out, ys).bound_extent(x, 128).bound_extent(y, 2).vectorize(x)
    conv.update().reorder(t.x, x, y).atomic().vectorize(t.x).vectorize(x)
    hb.store_in(conv, hb.MemoryType.WMMAAccumulator)
    module = hb.lower(out, target="sm_80")
    (strips,) = (s for s in walk_stmt(module.body) if isinstance(s, For) and ".ys" in s.name)
    assert strips.kind is ForKind.SERIAL
    assert len(updates(module, "conv")) == 2


def test_one_statement_for_the_whole_warp_tile() -> None:
    module = lower(gemm_simple(F16, tile=(32, 64)))
    (update,) = updates(module, "mm")
    assert update.value.type.lanes == 32 * 64
    assert constants(allocation(module, "mm").extents) == [32, 64, 1, 1]


def test_block_level_accumulators_around_thread_loops() -> None:
    module = lower(gemm_staged(F16))
    assert constants(allocation(module, "mm").extents) == [16, 16, 8, 8]
    assert len(updates(module, "mm")) == 2 * 4 * 2
    threads = [
        s for s in walk_stmt(module.body) if isinstance(s, For) and s.kind is ForKind.GPU_THREAD
    ]
    assert len(threads) == 6


def test_rows_of_output_in_registers() -> None:
    module = lower(conv2d(16))
    assert constants(allocation(module, "conv").extents) == [256, 1, 4]
    assert len(updates(module, "conv")) == 4


def test_allocations_have_their_memory_kind() -> None:
    module = lower(gemm_staged(F16))
    assert allocation(module, "mm").memory is Memory.WMMA_ACCUMULATOR
    assert allocation(module, "A_im_in_mm").memory is Memory.GPU_SHARED


def test_block_level_storage_is_shared_without_saying_so() -> None:
    case = conv1d(8)
    image = case.inputs[0]
    image.in_(case.marked[0]).store_in(hl.MemoryType.Auto)
    assert allocation(lower(case), "I_im_in_conv").memory is Memory.GPU_SHARED


def test_copies_in_flight() -> None:
    case = gemm_staged(F16)
    hb.pipeline_stages(case.inputs[0].in_(case.marked[0]), 3)
    module = lower(case)
    assert allocation(module, "A_im_in_mm").stages == 3
    assert allocation(module, "B_im_in_mm").stages == 1


@pytest.mark.parametrize(("k", "step", "row"), [(64, 32, 40), (64, 64, 72)])
def test_shared_rows_are_an_odd_number_of_16_bytes(k: int, step: int, row: int) -> None:
    module = lower(gemm_staged(F16, k=k, step=step))
    assert constants(allocation(module, "A_im_in_mm").extents) == [row, 128]
    assert constants(allocation(module, "B_im_in_mm").extents) == [136, step]


def test_rows_stay_as_they_are_when_asked() -> None:
    options = hb.Options(rows=False)
    module = lower(gemm_staged(F16, k=64), options=options)
    assert constants(allocation(module, "A_im_in_mm").extents) == [32, 128]


def test_aligned_rows_of_the_user_stay() -> None:
    case = gemm_staged(F16, k=64)
    staged = case.inputs[0].in_(case.marked[0])
    staged.align_storage(staged.args()[0], 64)
    assert constants(allocation(lower(case), "A_im_in_mm").extents) == [64, 128]


def test_output_stores_are_predicated() -> None:
    (store, *_) = stores(lower(conv1d(8, tiles=1)), "output")
    assert store.predicate is not None
    assert print_expr(store.predicate) == (
        "(ramp(output.s0.x.xo.block_id_x*256, 1, 256) < x256(output.extent.0)) && "
        "x256(((output.s0.y.yo.block_id_y*4) + output.s0.y.yi.thread_id_x) < output.extent.1)"
    )


def test_sizes_that_tiles_divide_need_no_predicate() -> None:
    case = conv1d(8)
    x, y = (hl.Var(v) for v in "xy")
    case.outputs[0].bound(x, 0, 4096).bound(y, 0, 64)
    module = lower(case)
    assert all(s.predicate is None for s in stores(module, "output"))
    output = module.buffer("output")
    assert output is not None
    assert [d.extent for d in output.dims] == [IntImm(4096), IntImm(64)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_scalar_remainders(name: str) -> None:
    module = lower(EXAMPLES[name]())
    assert not [s for s in walk_stmt(module.body) if isinstance(s, IfThenElse | Atomic)]
    assert "likely" not in str(module)
    assert ".min." not in str(module)


def test_a_ragged_reduction_masks_its_operand() -> None:
    """A ends where the reduction ends, so that reading beyond it gives zero; B may go on."""
    module = lower(gemm_simple(F16))
    assert all(load.predicate is None for load in loads(module, "A"))
    assert all(load.predicate is not None for load in loads(module, "B"))


def test_a_staged_operand_holds_the_zeros() -> None:
    module = lower(gemm_staged(F16))
    assert all(load.predicate is None for load in loads(module, "B_im_in_mm"))
    assert [load.predicate is None for load in loads(module, "B")] == [False]


def test_a_reduction_that_divides_has_no_masks() -> None:
    module = lower(gemm_simple(F16, k=64))
    assert all(load.predicate is None for load in loads(module, "B"))


def requirements(module: Module) -> dict[tuple[str, int], str]:
    return {
        (r.buffer, r.dim): f"{print_expr(r.minimum)}..{print_expr(r.maximum)}"
        for r in module.requirements
    }


def test_requirements_are_those_of_the_algorithm() -> None:
    """Tiles of 1024 x 4 round up what is read; the requirement does not."""
    assert requirements(lower(conv1d(64))) == {
        ("I", 0): "0..output.extent.0 + 62",
        ("I", 1): "0..output.extent.1 + -1",
        ("K", 0): "0..63",
    }
    assert requirements(lower(downsample(16)))[("I", 0)] == "0..(output.extent.0*2) + 13"
    assert requirements(lower(upsample(16)))[("K", 1)] == "0..7"
    assert requirements(lower(gemm_staged(F16)))[("B", 1)] == "0..A.extent.0 + -1"


def test_bounded_inputs_have_constant_extents() -> None:
    case = bias_relu(16)
    taps = case.inputs[1]
    taps.dim(0).set_bounds(0, 16)
    buffer = lower(case).buffer("K")
    assert buffer is not None
    assert buffer.dims[0].extent == IntImm(16)


def test_interleaved_outputs_keep_their_strides() -> None:
    x, c = variables("x c")
    image, out = hl.ImageParam(hl.UInt(8), 2, "I"), hl.Func("out")
    out[x, c] = image[x, c] + hl.u8(1)
    image.dim(0).set_stride(3).dim(1).set_stride(1).set_bounds(0, 3)
    out.output_buffer().dim(0).set_stride(3).dim(1).set_stride(1).set_bounds(0, 3)
    module = hb.lower(out, target="amx")
    for buffer in module.buffers:
        assert [d.stride for d in buffer.dims] == [IntImm(3), IntImm(1)]
    assert "I[(out.s0.x*3) + out.s0.c]" in str(module)


def test_scalars_are_parameters() -> None:
    x = hl.Var("x")
    image, gain = hl.ImageParam(hl.Float(32), 1, "I"), hl.Param(hl.Float(32), "gain")
    out = hl.Func("out")
    out[x] = image[x] * gain
    module = hb.lower(out, target="amx")
    assert [(s.name, s.type) for s in module.scalars] == [("gain", FLOAT32)]


def test_calling_order() -> None:
    case = bias_relu(4)
    assert [b.name for b in lower(case).buffers] == ["I", "K", "bias", "output"]
    ordered = lower(case, inputs=[case.inputs[2], case.inputs[1]])
    assert [b.name for b in ordered.buffers] == ["bias", "K", "I", "output"]


def two_outputs() -> list[hl.Func]:
    x, y = variables("x y")
    image = hl.ImageParam(hl.Float(32), 2, "I")
    first, second = hl.Func("first"), hl.Func("second")
    first[x, y] = image[x, y] + 1
    second[x, y] = first[x, y] * 2
    return [first, second]


def test_several_outputs() -> None:
    module = hb.lower(two_outputs(), target="amx")
    outputs = [b.name for b in module.buffers if b.role is Role.OUTPUT]
    assert outputs == ["first", "second"]


def test_pipelines_are_outputs() -> None:
    assert str(hb.lower(hl.Pipeline(two_outputs()), target="amx")) == str(
        hb.lower(two_outputs(), target="amx")
    )


def test_a_wrapper_is_an_output() -> None:
    """The paper's `mm.in()`: the wrapper reads the accumulator."""
    x = hl.Var("x")
    image, mm = hl.ImageParam(hl.Float(16), 1, "I"), hl.Func("mm")
    r = hl.RDom([(0, 8)], "r")
    mm[x] = hl.f32(0)
    mm[x] += hl.f32(image[x + r.x]) * hl.f32(image[r.x])
    out = mm.in_()
    out.bound(x, 0, 256).vectorize(out.args()[0], 256)
    mm.compute_at(out, hl.Var.outermost()).vectorize(x, 256)
    mm.update().reorder(r.x, x).atomic().vectorize(r.x).vectorize(x, 256)
    hb.store_in(mm, hb.MemoryType.WMMAAccumulator)
    assert len(updates(hb.lower(out), "mm")) == 1


def test_stock_halide_does_not_see_our_memory() -> None:
    x = hl.Var("x")
    f, out = hl.Func("f"), hl.Func("out")
    f[x] = x
    out[x] = f[x] + 1
    f.compute_root()
    assert hb.store_in(f, hb.MemoryType.WMMAAccumulator) is f
    assert list(out.realize([4])) == [1, 2, 3, 4]


def test_origins_name_the_place_of_the_mark() -> None:
    module = lower(conv1d(8))
    origins = {o.name: o for o in module.origins}
    assert origins["conv"].func == "conv"
    assert re.search(r"pipelines\.py:\d+$", origins["conv"].location)


def test_unnamed_parts_are_numbered_from_zero() -> None:
    def build() -> hl.Func:
        x = hl.Var()
        image, f, out = hl.ImageParam(hl.Float(32), 1), hl.Func(), hl.Func()
        r = hl.RDom([(0, 3)])
        f[x] = hl.f32(0)
        f[x] += image[x + r.x]
        out[x] = f[x]
        f.compute_root()
        return out

    first, second = (str(hb.lower(build(), target="amx")) for _ in range(2))
    assert first == second
    assert "r0$x" in first


def test_math_calls_keep_their_names() -> None:
    x = hl.Var("x")
    image, out = hl.ImageParam(hl.Float(32), 1, "I"), hl.Func("out")
    out[x] = hl.sqrt(hl.exp(image[x]))
    names = {
        e.name for e in walk_all_exprs(hb.lower(out, target="amx").body) if isinstance(e, Call)
    }
    assert names == {"exp_f32", "sqrt_f32"}


def test_operands_are_nested_ramps() -> None:
    """Halide writes sums of full-length vectors; the bridge hands on one ramp per loop."""
    module = lower(gemm_simple(F16, k=64, tile=(32, 64)))
    (a,) = loads(module, "A")
    match a.index:
        case Ramp(Broadcast(Ramp(_, IntImm(1), 16), 32), Broadcast(_, 512), 64):
            pass
        case _:
            pytest.fail(print_expr(a.index))
