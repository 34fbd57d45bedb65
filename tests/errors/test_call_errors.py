"""Kernels called with the wrong arrays: one named case per mistake, with what the user is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dictionary
import numpy as np
import pytest
from runtime_plans import DeviceArray, Recorder, buffer, conv_plan, scale_plan

from selector.diagnostics import ArgumentError
from selector.ir.nodes import Role
from selector.ir.types import BFLOAT16, FLOAT32, INT32
from selector.runtime.execute import Executable
from selector.runtime.plan import Plan

Array = np.ndarray[Any, Any]


def image(*shape: int, dtype: str = "float16") -> Array:
    return np.zeros(shape, dtype)


IMAGE, TAPS = image(8, 100), image(9)
OUT = image(8, 92, dtype="float32")


def call(plan: Plan, *args: Any, out: Any = None, sizes: Any = None, **named: Any) -> Any:
    return Executable(plan, lambda: b"", Recorder())(args, named, out=out, sizes=sizes)


def conv(*args: Any, **named: Any) -> Callable[[], Any]:
    return lambda: call(conv_plan(), *args, **named)


def scale(factor: Any, **types: Any) -> Callable[[], Any]:
    return lambda: call(scale_plan(**types), image(8, dtype="float32"), factor)


def on_gpu(array: Array, device: int = 0) -> DeviceArray:
    return DeviceArray(array, device)


def two_outputs(**named: Any) -> Callable[[], Any]:
    plan = conv_plan()
    plan = replace(plan, buffers=(*plan.buffers, buffer("mask", 1, FLOAT32, Role.OUTPUT, e0=4)))
    return lambda: call(plan, IMAGE, TAPS, **named)


def fixed_size(**named: Any) -> Callable[[], Any]:
    plan = conv_plan()
    fixed = buffer("output", 2, FLOAT32, Role.OUTPUT, e0=92)
    return lambda: call(replace(plan, buffers=(*plan.buffers[:2], fixed)), IMAGE, TAPS, **named)


def shared_out() -> Callable[[], Any]:
    memory = np.zeros(4096, np.float32)
    pixels = memory.view(np.float16)[:800].reshape(8, 100)
    out = memory[200:].view(np.float32)[: 8 * 92].reshape(8, 92)
    return conv(on_gpu(pixels), on_gpu(TAPS), out=on_gpu(out))


def read_only() -> Array:
    out = OUT.copy()
    out.flags.writeable = False
    return out


CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "missing input": (conv(IMAGE), "missing: K\n  why:   conv takes I, K"),
    "no arguments": (conv(), "missing: I, K\n  why:   conv takes I, K"),
    "too many": (conv(IMAGE, TAPS, OUT), "conv takes 2 arguments, got 3"),
    "unknown name": (conv(IMAGE, kernel=TAPS), "conv has no parameter 'kernel'"),
    "given twice": (conv(IMAGE, TAPS, K=TAPS), "K is given twice"),
    "output as argument": (
        conv(IMAGE, TAPS, output=OUT),
        "output is an output of conv\n  hint:  pass the array to write as out=",
    ),
    "no array": (conv([[1.0]], TAPS), "I: expected an array, got list"),
    "none": (conv(None, TAPS), "I: expected an array, got NoneType"),
    "wrong dtype": (
        conv(IMAGE.astype("float32"), TAPS),
        "I: expected float16, got float32\n  hint:  convert it: I.astype('float16')",
    ),
    "byte order": (
        conv(IMAGE.astype(">f2"), TAPS),
        "I: expected float16, got byte-swapped float16",
    ),
    "no bfloat16": (
        lambda: call(scale_plan(BFLOAT16), image(8, dtype="float32"), 1),
        "input: expected bfloat16 or uint16, got float32\n"
        "  hint:  pass torch.bfloat16, ml_dtypes.bfloat16, or its bits as uint16",
    ),
    "too few axes": (conv(IMAGE[0], TAPS), "I: expected 2 axes, got 1"),
    "too many axes": (conv(IMAGE, TAPS[None]), "K: expected 1 axes, got 2"),
    "strided rows on the GPU": (
        conv(on_gpu(IMAGE[:, ::2]), on_gpu(TAPS)),
        "I: axis 1 must have stride 1, has 2 (in elements)\n"
        "  hint:  pass a contiguous copy: cupy.ascontiguousarray(I)",
    ),
    "transposed on the GPU": (
        conv(on_gpu(image(100, 8).T), on_gpu(TAPS)),
        "I: axis 1 must have stride 1, has 8 (in elements)",
    ),
    "backwards on the GPU": (
        conv(on_gpu(IMAGE[::-1]), on_gpu(TAPS)),
        "I: axis 0 runs backwards (stride -100)",
    ),
    "two GPUs": (
        conv(on_gpu(IMAGE), on_gpu(TAPS, device=1)),
        "K is on GPU 1, I on GPU 0\n  hint:  move all arrays to one GPU",
    ),
    "odd strides": (
        conv(np.zeros((8, 201), np.uint8)[:, :200].view(np.float16), TAPS),
        "I: its rows lie 201 bytes apart, no multiple of 2 bytes",
    ),
    "input too small": (
        conv(IMAGE, TAPS, sizes=(8, 100)),
        "I: axis 1 needs 108 elements, has 100, for output of shape (8, 100)",
    ),
    "smaller than the kernel": (
        conv(IMAGE, image(101)),
        "I: axis 1 needs 101 elements, has 100, for output of shape (8, 1)",
    ),
    "out too large": (
        conv(IMAGE, TAPS, out=image(9, 92, dtype="float32")),
        "I: axis 0 needs 9 elements, has 8, for output of shape (9, 92)",
    ),
    "out of wrong dtype": (conv(IMAGE, TAPS, out=image(8, 92)), "output: expected float32, got"),
    "out of wrong rank": (
        conv(IMAGE, TAPS, out=image(92, dtype="float32")),
        "output: expected 2 axes, got 1",
    ),
    "out read-only": (
        conv(IMAGE, TAPS, out=read_only()),
        "output: the out= array is read-only",
    ),
    "out read-only on the GPU": (
        conv(on_gpu(IMAGE), on_gpu(TAPS), out=on_gpu(read_only())),
        "output: the out= array is read-only",
    ),
    "out with shared elements": (
        conv(
            on_gpu(IMAGE),
            on_gpu(TAPS),
            out=on_gpu(np.lib.stride_tricks.as_strided(OUT, (8, 92), (4, 4))),
        ),
        "output: elements of the out= array share memory",
    ),
    "out over an input on the GPU": (shared_out(), "output: the out= array shares memory with I"),
    "out over an input": (
        lambda: call(scale_plan(), OUT[0], 1.0, out=OUT[0]),
        "output: the out= array shares memory with input",
    ),
    "out on the GPU, inputs not": (
        conv(IMAGE, TAPS, out=on_gpu(OUT)),
        "output: the out= array is on a GPU, and some inputs are not",
    ),
    "out by a wrong name": (
        conv(IMAGE, TAPS, out={"result": OUT}),
        "conv has no output 'result'\n  why:   it has output",
    ),
    "out without a name": (
        two_outputs(out=OUT),
        "conv has 2 outputs\n  hint:  pass out= as a dict",
    ),
    "out incomplete": (two_outputs(out={"output": OUT}), "out= lacks mask"),
    "out and sizes": (conv(IMAGE, TAPS, out=OUT, sizes=(8, 92)), "out= and sizes= exclude"),
    "sizes without a name": (two_outputs(sizes=(3, 3)), "conv has 2 outputs"),
    "sizes of wrong rank": (conv(IMAGE, TAPS, sizes=(92,)), "sizes=: output has 2 axes, got (92,)"),
    "sizes by a wrong name": (
        conv(IMAGE, TAPS, sizes={"result": (8, 92)}),
        "sizes=: conv has no output 'result'",
    ),
    "negative size": (conv(IMAGE, TAPS, sizes=(8, -1)), "sizes=: output: -1 is not a size"),
    "fractional size": (conv(IMAGE, TAPS, sizes=(8, 1.5)), "sizes=: output: 1.5 is not a size"),
    "another size than compiled for": (
        fixed_size(out=image(8, 91, dtype="float32")),
        "output: axis 1 must have 92 elements, has 91\n"
        "  why:   the pipeline was compiled for that size",
    ),
    "another sizes= than compiled for": (
        fixed_size(sizes=(8, 91)),
        "sizes=: axis 1 of output is fixed to 92, got 91",
    ),
    "too many elements for int32": (
        conv(
            on_gpu(np.lib.stride_tricks.as_strided(IMAGE, (50000, 50000), (100000, 2))),
            on_gpu(TAPS),
        ),
        "I: 2500000000 elements from first to last are too many",
    ),
    "array for a scalar": (
        scale(image(1, dtype="float32")),
        "factor: expected a number, got an array",
    ),
    "text for a scalar": (scale("2"), "factor: expected a number, got str"),
    "fraction for an integer": (
        scale(2.5, scalar=INT32),
        "factor: expected an integer (int32), got 2.5",
    ),
    "nan for an integer": (scale(float("nan"), scalar=INT32), "factor: expected an integer"),
    "integer out of range": (
        scale(2**31, scalar=INT32),
        "factor: 2147483648 does not fit into int32\n  why:   it holds -2147483648 to 2147483647",
    ),
    "scalar too large": (scale(1e39), "factor: 1e+39 is too large for float32"),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_call(case: str) -> None:
    run, message = CASES[case]
    with pytest.raises(ArgumentError) as caught:
        run()
    assert str(caught.value).startswith(message)
    dictionary.check("calls", case, caught.value)
