"""Every wrong input of the bridge ends in one error that says what, why and where."""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest
from pipelines import WMMA, conv1d, gemm_staged, variables

import halide_bridge as hb
from halide_bridge.native import check_version
from selector.diagnostics import ScheduleError, TargetError

HERE = "test_errors.py"


def convolution(k: int = 8) -> tuple[hl.Func, hl.Func, hl.ImageParam, hl.RDom, list[hl.Var]]:
    """An unscheduled convolution of 256 outputs a tile."""
    x, y, xi = variables("x y xi")
    image, taps = hl.ImageParam(hl.Float(16), 2, "I"), hl.ImageParam(hl.Float(16), 1, "K")
    r = hl.RDom([(0, k)], "r")
    conv, out = hl.Func("conv"), hl.Func("output")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(taps[r.x]) * hl.f32(image[x + r.x, y])
    out[x, y] = conv[x, y]
    out.split(x, x, xi, 256).vectorize(xi).gpu_blocks(x, y)
    return conv, out, image, r, [x, y, xi]


def error_of(output: object, **arguments: object) -> ScheduleError:
    with pytest.raises(ScheduleError) as caught:
        hb.lower(output, **arguments)  # type: ignore[arg-type]
    return caught.value


def test_marked_func_that_the_output_does_not_use() -> None:
    conv, out, image, _, (x, y, _) = convolution()
    hb.store_in(conv, WMMA)
    other = hl.Func("other")
    other[x, y] = hl.f32(image[x, y])
    error = error_of(other)
    assert "`conv" in error.what
    assert "does not use it" in error.what
    assert error.where is not None
    assert HERE in error.where.location
    del conv, out


def test_marked_func_of_another_pipeline_is_no_error() -> None:
    used = conv1d(8).mark()
    hb.lower(used.outputs)
    x, y = variables("x y")
    other = hl.Func("other")
    other[x, y] = hl.f32(used.inputs[0][x, y])
    hb.lower(other)


def test_variants_over_the_same_inputs_are_no_error() -> None:
    x, y, xi = variables("x y xi")
    image = hl.ImageParam(hl.Float(16), 2, "I")
    outputs: list[hl.Func] = []
    for lanes in (64, 128):
        conv, out, r = hl.Func("conv"), hl.Func("output"), hl.RDom([(0, 8)], "r")
        conv[x, y] = hl.f32(0.0)
        conv[x, y] += hl.f32(image[r.x, 0]) * hl.f32(image[x + r.x, y])
        out[x, y] = conv[x, y]
        out.split(x, x, xi, lanes).vectorize(xi).gpu_blocks(x, y)
        conv.compute_at(out, x).vectorize(conv.args()[0])
        conv.update().reorder(r.x, conv.args()[0]).atomic().vectorize(r.x)
        conv.update().vectorize(conv.args()[0], lanes)
        outputs.append(hb.store_in(conv, WMMA) and out)
    for out in outputs:
        hb.lower(out)


def test_scalarized_update_says_how_to_schedule_it() -> None:
    conv, out, _, _, (x, y, _) = convolution()
    conv.compute_at(out, x).vectorize(conv.args()[0])
    hb.store_in(conv, WMMA)
    error = error_of(out)
    assert "not one vector statement" in error.what
    assert "WMMAAccumulator" in error.what
    assert ".update().atomic().vectorize(" in error.hint
    assert error.where is not None
    assert error.where.func == "conv"
    assert HERE in error.where.location
    assert "conv[" in error.where.statement
    del y


def test_marked_func_without_an_update() -> None:
    x, y = variables("x y")
    image, out = hl.ImageParam(hl.Float(16), 2, "I"), hl.Func("output")
    copy = hl.Func("copy")
    copy[x, y] = hl.f32(image[x, y])
    out[x, y] = copy[x, y] + 1
    copy.compute_root()
    hb.store_in(copy, WMMA)
    error = error_of(out)
    assert "has no update definition" in error.what
    assert "+=" in error.why


def test_marked_func_that_is_computed_nowhere() -> None:
    conv, out, _, _, _ = convolution()
    hb.store_in(conv, WMMA)
    error = error_of(out)
    assert "not computed anywhere" in error.what
    assert ".compute_at(" in error.hint


def test_marked_output() -> None:
    x = hl.Var("x")
    image, out = hl.ImageParam(hl.Float(32), 1, "I"), hl.Func("output")
    r = hl.RDom([(0, 8)], "r")
    out[x] = hl.f32(0)
    out[x] += image[x + r.x]
    out.update().atomic().vectorize(r.x)
    hb.store_in(out, WMMA)
    assert "no storage of its own" in error_of(out).what


def test_vectors_of_more_than_65535_lanes() -> None:
    case = conv1d(256, lanes=256).mark()
    error = error_of(case.outputs)
    assert "65536 lanes" in error.what
    assert error.why == "`conv` update 0: rx$x (256) * x (256)"
    assert "vectorize fewer outputs" in error.hint
    assert error.where is not None
    assert error.where.func == "conv"


def test_what_halide_refuses_has_halides_text() -> None:
    x = hl.Var("x")
    f, out = hl.Func("f"), hl.Func("output")
    f[x] = x
    out[x] = f[x] + 1
    f.compute_at(out, hl.Var("nowhere"))
    error = error_of(out)
    assert error.what.startswith("Halide cannot lower `output")
    assert "nowhere" in error.what or "legal" in error.what


def test_vectorizing_a_symbolic_extent_has_halides_text() -> None:
    conv, out, _, r, (x, _, _) = convolution()
    image, f = hl.ImageParam(hl.Float(16), 2, "J"), hl.Func("f")
    s = hl.RDom([(0, image.width())], "s")
    f[x] = hl.f32(0)
    f[x] += hl.f32(image[s.x, x])
    f.update().atomic().vectorize(s.x)
    assert "constant extent" in error_of(f).what
    del conv, out, r


@pytest.mark.parametrize("output", [None, 3, "conv", [], [3], hl.Var("x")])
def test_outputs_that_are_no_funcs(output: object) -> None:
    assert "an output is a halide.Func" in error_of(output).what


def test_an_image_param_is_no_output() -> None:
    assert "is an ImageParam" in error_of(hl.ImageParam(hl.Float(16), 2, "I")).what


def test_undefined_func() -> None:
    error = error_of(hl.Func("empty"))
    assert "`empty" in error.what
    assert "no definition" in error.what


def test_store_in_takes_our_memory_types() -> None:
    func = hl.Func("f")
    with pytest.raises(ScheduleError, match=r"takes a halide_bridge.MemoryType") as caught:
        hb.store_in(func, hl.MemoryType.GPUShared)  # type: ignore[arg-type]
    assert "func.store_in" in caught.value.hint


def test_store_in_takes_a_func() -> None:
    with pytest.raises(ScheduleError, match=r"takes a halide.Func, not int"):
        hb.store_in(3, WMMA)


def test_store_in_of_an_image_param_says_how_to_stage_it() -> None:
    with pytest.raises(ScheduleError, match="not the ImageParam") as caught:
        hb.store_in(hl.ImageParam(hl.Float(16), 2, "I"), WMMA)
    assert ".in_(consumer)" in caught.value.hint


@pytest.mark.parametrize("stages", [0, -1, 17, 1.5, "2"])
def test_pipeline_stages_is_a_small_number(stages: object) -> None:
    with pytest.raises(ScheduleError, match="from 1 to 16"):
        hb.pipeline_stages(hl.Func("f"), stages)  # type: ignore[arg-type]


@pytest.mark.parametrize("blocks", [0, -1, 33, 1.5, "2"])
def test_blocks_are_a_small_number(blocks: object) -> None:
    for directive, most in ((hb.resident_blocks, 32), (hb.persistent, 32), (hb.cluster, 8)):
        with pytest.raises(ScheduleError, match=f"{directive.__name__} .* from 1 to {most}"):
            directive(hl.Func("f"), blocks)  # type: ignore[arg-type]


def test_embedded_buffers_are_refused() -> None:
    x = hl.Var("x")
    table, out = hl.Buffer(np.arange(8, dtype=np.float32)), hl.Func("output")
    out[x] = table[x % 8]
    error = error_of(out)
    assert "contents of a Buffer" in error.what
    assert "ImageParam" in error.hint


def test_types_without_a_form() -> None:
    x = hl.Var("x")
    out = hl.Func("output")
    out[x] = hl.cast(hl.Int(24), x)
    assert "int24" in error_of(out).what


def test_unbounded_reads_are_refused() -> None:
    x = hl.Var("x")
    image, table = hl.ImageParam(hl.Int(32), 1, "I"), hl.ImageParam(hl.Int(32), 1, "T")
    out = hl.Func("output")
    out[x] = table[image[x]]
    error = error_of(out)
    assert "unbounded region of dimension 0 of `T`" in error.what
    assert "hl.clamp" in error.hint


def test_another_version_of_halide() -> None:
    check_version("21.0.0")
    with pytest.raises(ScheduleError, match=r"halide 19.0.0 is installed") as caught:
        check_version("19.0.0")
    assert "pip install halide==21.0.0" in caught.value.hint


def test_unknown_target() -> None:
    with pytest.raises(TargetError, match="unknown target 'sm_10'"):
        hb.lower(conv1d(8).outputs, target="sm_10")


def test_inputs_are_parameters() -> None:
    with pytest.raises(ScheduleError, match="inputs are ImageParams and Params, not str"):
        hb.lower(conv1d(8).outputs, inputs=["I"])


def test_extern_stages_are_refused() -> None:
    x = hl.Var("x")
    f, out = hl.Func("f"), hl.Func("output")
    f.define_extern("make_it", [], hl.Float(32), 1)
    f.compute_root()
    out[x] = f[x]
    assert "extern stage" in error_of(out).what


def test_dynamic_accumulators_have_halides_text() -> None:
    case = gemm_staged()
    case.marked[0].compute_root()
    case.mark()
    assert "mm" in error_of(case.outputs).what


def test_gpu_loops_on_a_cpu_target():
    output, x = hl.Func("output"), hl.Var("x")
    xo, xi = hl.Var("xo"), hl.Var("xi")
    output[x] = hl.f32(x)
    output.gpu_tile(x, xo, xi, 32)
    with pytest.raises(ScheduleError, match="`output` has loops over GPU blocks") as caught:
        hb.lower(output, target="amx")
    assert "use parallel and vectorize" in caught.value.hint


def test_float16_sums_work_whatever_ran_before():
    """Halide has one table of reductions for both kinds of 16 bits, and the first one gets it."""
    x, r = hl.Var("x"), hl.RDom([(0, 16)], "r")
    for kind, override in ((hl.BFloat(16), True), (hl.Float(16), False)):
        data, total = hl.ImageParam(kind, 1, "data"), hl.Func("total")
        total[x] = hl.cast(kind, 0)
        total[x] += data[x + r.x]
        if kind == hl.BFloat(16):
            with pytest.raises(hl.HalideError, match="pattern has type float16"):
                total.update().atomic().vectorize(r.x)
        total.update().atomic(override).vectorize(r.x)
        hb.lower(total, target="amx")
