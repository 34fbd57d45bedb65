"""What a kernel begins with: parameters, launch bounds, shared memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from selector.diagnostics import InternalError
from selector.gpu.cuda.printer import print_kernel
from selector.gpu.ir.expressions import number
from selector.gpu.ir.nodes import Kernel, Let
from selector.gpu.ir.parameters import Parameter, parse_parameter
from selector.ir.types import FLOAT16, FLOAT32, INT32

PARAMETERS = (
    Parameter("read", FLOAT16, "i"),
    Parameter("write", FLOAT32, "o"),
    Parameter("pass", FLOAT32, "between"),
    Parameter("value", INT32, "n"),
    Parameter("map", FLOAT16, "map"),
)
KERNEL = Kernel(
    "kernel_k", 32, 2, PARAMETERS, (Let("int", ("x",), (number(1),)),), (), 3, 5120, 1024
)
TEXT = """\
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(32, 3) kernel_k(\
const f16* __restrict__ i, float* __restrict__ o, float* between, const int n, \
const __grid_constant__ TensorMap map) {
  extern __shared__ __align__(1024) unsigned char memory[];
  unsigned char* const smem = memory + (-shared_address(memory) & 1023);
  const int x = 1;
}
"""


def test_all_of_it_is_printed() -> None:
    assert print_kernel(KERNEL) == TEXT


def test_bounds_say_what_is_asked_for() -> None:
    alone = replace(KERNEL, cluster=1, resident=0)
    assert "void __launch_bounds__(32) kernel_k(" in print_kernel(alone)
    assert "void __launch_bounds__(32, 2) kernel_k(" in print_kernel(replace(alone, resident=2))


def test_shared_memory_is_declared_as_it_is_aligned() -> None:
    none, own = replace(KERNEL, shared=0, alignment=0), replace(KERNEL, alignment=128)
    assert "smem" not in print_kernel(none)
    assert "  extern __shared__ __align__(128) unsigned char smem[];\n" in print_kernel(own)


def test_a_parameter_reads_back() -> None:
    for parameter in PARAMETERS:
        assert parse_parameter(str(parameter)) == parameter
    with pytest.raises(InternalError, match="`own int32 n` is no parameter"):
        parse_parameter("own int32 n")
