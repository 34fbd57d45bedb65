"""The listings of the paper, with consistent sizes: the tap-chunked convolution and the matmul."""

from __future__ import annotations

from tensor_programs import Spec, check_selected, instructions, program

from selector.ir.nodes import IntImm


def test_the_convolution_of_appendix_b_a():
    """256 outputs, taps in chunks of 8 with a symbolic base."""
    update = (
        "for (rx, 0, 4) {\n"
        "acc[ramp(0, 1, 256)] = (float32x256)vector_reduce_add("
        "float32x2048(I[ramp(ramp(rx*8, 1, 8), x8(1), 256)])*x256(float32x8(K[ramp(rx*8, 1, 8)])))"
        " + acc[ramp(0, 1, 256)]\n}"
    )
    module = program({"I": ("float16", (287,)), "K": ("float16", (32,))}, update, 256, Spec())
    (call,) = instructions(check_selected(module).module)
    assert [a.value for a in call.args[:3] if isinstance(a, IntImm)] == [32, 8, 15]


def test_the_matmul_of_figure_3():
    """A un-nested as a sum, B loaded once and broadcast; 16 x 16 x 32 in bfloat16."""
    update = (
        "acc[ramp(0, 1, 256)] = (float32x256)vector_reduce_add("
        "float32x8192(A[ramp(x512(0), x512(32), 16) + x256(ramp(0, 1, 32))])"
        "*x16(float32x512(B[ramp(ramp(0, 16, 32), x32(1), 16)]))) + acc[ramp(0, 1, 256)]"
    )
    buffers = {"A": ("bfloat16", (512,)), "B": ("bfloat16", (512,))}
    (call,) = instructions(check_selected(program(buffers, update, 256, Spec("bfloat16"))).module)
    assert call.name == "wmma.mma.m16n16k16.bf16.f32"
    assert [a.value for a in call.args[:3] if isinstance(a, IntImm)] == [16, 16, 32]
