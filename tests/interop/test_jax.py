"""Kernels as functions of JAX, on the CPU: by XLA's foreign function interface, and interpreted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax", reason="JAX is not installed")

import jax
import jax.numpy as jnp

import selector
from halide_bridge import operators
from selector.diagnostics import ArgumentError
from selector.interop.jax import JaxOp, _registered, jax_op
from selector.ir.parser import parse_module
from selector.runtime.classes import SizeClass
from selector.sized import SizedKernel

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "runtime"))
from test_cpu import MATMUL, SCALE

pytestmark = [pytest.mark.gcc, pytest.mark.slow, pytest.mark.verified]


def compiled(text: str) -> selector.Kernel:
    return selector.compile(parse_module(text), target="amx", cache=False)


@pytest.fixture(scope="module")
def product() -> JaxOp:
    return jax_op(compiled(MATMUL), shape=lambda a, b: (a[0], b[1]))


@pytest.fixture(scope="module")
def scale() -> JaxOp:
    return jax_op(compiled(SCALE.replace("TYPE", "float32")))


@pytest.fixture(scope="module", params=["amx", "sm_90a"])
def softmax(request: pytest.FixtureRequest) -> JaxOp:
    """With its gradient; compiled for the CPU, and for a GPU that is interpreted."""
    cpu = "interpret" if request.param == "sm_90a" else "refuse"
    return jax_op(operators.softmax("float32"), target=request.param, cpu=cpu)


def random(*shape: int, dtype: Any = jnp.float32) -> Any:
    return jnp.asarray(np.random.default_rng(len(shape)).standard_normal(shape), dtype)


def test_a_product_on_tiles(product: JaxOp) -> None:
    """bfloat16, ragged, inside of what is compiled; sizes do not compile the kernel again."""
    jitted = jax.jit(lambda a, b: product(a, b) + 1)
    for m, n in ((45, 70), (16, 16), (1, 3)):
        a, b = random(m, 32, dtype=jnp.bfloat16), random(32, n, dtype=jnp.bfloat16)
        truth = np.asarray(a, np.float64) @ np.asarray(b, np.float64) + 1
        np.testing.assert_allclose(jitted(a, b), truth, atol=1e-5)
        count = len(_registered)
    assert len(_registered) == count
    assert repr(product) == "<JaxOp mm(A, B)>"


def test_numbers_are_constants(scale: JaxOp) -> None:
    x = random(3, 4)
    np.testing.assert_array_equal(scale(x, s=3.0), 3 * x)
    np.testing.assert_array_equal(jax.jit(lambda v: scale(v, 2.5))(x), 2.5 * x)
    with pytest.raises(ArgumentError, match="s is traced"):
        jax.jit(scale)(x, 2.0)


def test_wrong_arguments(scale: JaxOp, product: JaxOp) -> None:
    x = random(3, 4)
    with pytest.raises(ArgumentError, match="I: expected 2 axes of float32, got 2 of int32"):
        scale(x.astype(jnp.int32), 2.0)
    with pytest.raises(ArgumentError, match="I: expected 2 axes of float32, got 1") as caught:
        jax.jit(lambda v: scale(v[0], 2.0))(x)
    assert "its shape is (4,)" in str(caught.value)
    assert "astype" not in str(caught.value)
    with pytest.raises(ArgumentError, match="missing: s"):
        scale(x)
    with pytest.raises(ArgumentError, match="scale has no backward"):
        jax.grad(lambda v: scale(v, 2.0).sum())(x)
    with pytest.raises(Exception, match="A: axis 1 must have 32 elements, has 30"):
        product(random(3, 30, dtype=jnp.bfloat16), random(32, 3, dtype=jnp.bfloat16))
    with pytest.raises(ArgumentError, match="neither 'refuse' nor 'interpret'"):
        jax_op(compiled(MATMUL), cpu="no")


def test_values_and_gradients(softmax: JaxOp) -> None:
    scores, weights = random(2, 3, 20), random(2, 3, 20)
    np.testing.assert_allclose(softmax(scores), jax.nn.softmax(scores), atol=1e-6)

    def loss(function: Any) -> Any:
        return lambda s: (function(2 * s) * weights).sum()

    for found, wanted in ((loss(softmax), loss(jax.nn.softmax)),):
        np.testing.assert_allclose(
            jax.jit(jax.grad(found))(scores), jax.grad(wanted)(scores), atol=1e-5
        )


def test_vmap(softmax: JaxOp, scale: JaxOp) -> None:
    """Along any axis, of gradients, too; and one by one where there are no batches."""
    scores = random(4, 2, 20)
    found = jax.vmap(softmax, in_axes=1, out_axes=1)(scores)
    np.testing.assert_allclose(found, jax.nn.softmax(scores), atol=1e-6)
    each = jax.vmap(jax.grad(lambda s: softmax(s)[..., 3].sum()))(scores)
    wanted = jax.grad(lambda s: jax.nn.softmax(s)[..., 3].sum())(scores)
    np.testing.assert_allclose(each, wanted, atol=1e-5)
    np.testing.assert_array_equal(jax.vmap(lambda v: scale(v, 2.0))(scores), 2 * scores)


def test_size_classes() -> None:
    """A program for each class, compiled once for all sizes of it."""
    kernel = compiled(SCALE.replace("TYPE", "float32"))
    made: list[Any] = []

    def make(shapes: Any) -> Any:
        made.append(dict(shapes))
        extents = tuple(1 << (n - 1).bit_length() for n in shapes["O"])
        own = compiled(SCALE.replace("TYPE", "float32"))
        return SizeClass((("I", (None, None)), ("O", extents))), own

    op = jax_op(SizedKernel(kernel, {}, make))
    count = len(_registered)
    for shape in ((4, 8), (4, 7), (4, 8)):
        np.testing.assert_array_equal(op(random(*shape), 2.0), 2 * random(*shape))
    assert (len(made), len(_registered) - count) == (1, 1)
