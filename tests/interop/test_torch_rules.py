"""Each rule of the backend for PyTorch against torch, at odd sizes; several to a kernel."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")

from emulation import check  # noqa: E402 - after the skip
from torch_regions import TARGET, near, random, region_of, run  # noqa: E402

from halide_bridge.torch_backend import compile_region  # noqa: E402
from halide_bridge.torch_backend.values import RULES  # noqa: E402 - after the skip
from selector.diagnostics import ScheduleError  # noqa: E402
from selector.interop.torch_backend.covered import COVERED  # noqa: E402

pytestmark = pytest.mark.verified

aten = torch.ops.aten
F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32


def test_what_is_covered_has_a_rule() -> None:
    import halide_bridge.torch_backend.region  # noqa: F401 - registers

    assert {name.replace("aten.getitem", "getitem") for name in RULES} == COVERED


UNARY = {
    "any number": """abs ceil cos elu erf exp exp2 expm1 floor gelu hardsigmoid hardswish
        leaky_relu neg reciprocal relu round sigmoid sign silu sin softplus square tan tanh
        trunc""",
    "positive": "log log1p log2 rsqrt sqrt",
}


@pytest.mark.parametrize("kind", UNARY)
def test_functions_of_one(kind: str) -> None:
    names = UNARY[kind].split()
    a = random(3, 37) * 1.3
    a = a.abs() + 0.1 if kind == "positive" else a
    for part in filter(None, (names[:13], names[13:])):
        ops = [getattr(aten, n).default for n in part]
        found, wanted, _ = run(_each(ops), a)
        for name, f, w in zip(part, found, wanted, strict=True):
            largest = float(w.abs().max())
            assert float((f - w).abs().max()) <= 3e-6 * max(largest, 1), name


def _each(ops: list[Any]) -> Callable[[Any], list[Any]]:
    return lambda x: [op(x) for op in ops]


def test_functions_of_two() -> None:
    def floats(x: Any, y: Any, row: Any, gate: Any) -> list[Any]:
        chosen = aten.gt.Tensor(x, row)
        return [
            aten.add.Tensor(x, y, alpha=2), aten.sub.Tensor(x, row), aten.rsub.Scalar(x, 1.5),
            aten.mul.Tensor(x, gate), aten.div.Tensor(x, 3.0), aten.maximum.default(x, y),
            aten.minimum.default(x, row), aten.div.Tensor_mode(x, y, rounding_mode="floor"),
            aten.remainder.Tensor(x, y), aten.fmod.Tensor(x, y), aten.where.self(chosen, x, y),
            aten.pow.Tensor_Scalar(x, 3), aten.clamp.default(x, -0.5, 0.25),
            aten.clamp_min.default(x, 0.1), aten.clamp_max.default(x, 0.1),
            aten.hardtanh.default(x), aten.threshold_backward.default(y, x, 0.0),
            aten.gelu_backward.default(y, x), aten.gelu_backward.default(y, x, approximate="tanh"),
            aten.gelu.default(x, approximate="tanh"), aten.fill.Scalar(x, 2.5),
        ]  # fmt: skip

    a, b = random(5, 19), random(5, 19, seed=1)
    given = (a, b, random(19), random(5, 1))
    found, wanted, _ = run(floats, *given)
    for i, (f, w) in enumerate(zip(found, wanted, strict=True)):
        assert float((f - w).abs().max()) <= 3e-6 * max(float(w.abs().max()), 1), i


def test_conditions_and_integers() -> None:
    def conditions(x: Any, y: Any) -> list[Any]:
        less, same = aten.lt.Tensor(x, y), aten.eq.Tensor(x, y)
        kept = [
            less, same, aten.le.Tensor(x, y), aten.ge.Scalar(x, 0), aten.ne.Tensor(x, y),
            aten.logical_and.default(less, aten.logical_not.default(same)),
            aten.bitwise_or.Tensor(less, same), aten.isnan.default(x),
            aten.bitwise_and.Tensor(less, aten.bitwise_not.default(same)),
            aten.logical_or.default(less, same),
        ]  # fmt: skip
        return [aten._to_copy.default(k, dtype=torch.int32) for k in kept]

    a, b = random(4, 9), random(4, 9, seed=3)
    a[0, 0], b[1] = float("nan"), a[1]
    for i, (f, w) in enumerate(zip(*run(conditions, a, b)[:2], strict=True)):
        assert torch.equal(f, w), i

    def integers(x: Any) -> list[Any]:
        row = torch.ops.prims.iota.default(
            9, start=2, step=3, dtype=torch.int32, device=x.device, requires_grad=False
        )
        return [
            aten.add.Tensor(x, 3), aten.mul.Tensor(x, row),
            aten.div.Tensor_mode(x, 4, rounding_mode="floor"), aten.remainder.Scalar(x, 5),
            aten.abs.default(x), aten.neg.default(x), aten.maximum.default(x, row),
        ]  # fmt: skip

    whole = torch.arange(-18, 18, dtype=torch.int32).reshape(4, 9)
    for f, w in zip(*run(integers, whole)[:2], strict=True):
        assert torch.equal(f, w)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "permuted": lambda x: aten.permute.default(x, [2, 0, 1]),
    "transposed": lambda x: aten.transpose.int(x, -1, 0),
    "axes of one": lambda x: aten.squeeze.dim(aten.unsqueeze.default(x, 1), 1),
    "merged": lambda x: aten.view.default(x, [3, 40]),
    "split": lambda x: aten.reshape.default(x, [3, 2, 2, 2, 5]),
    "of other groups": lambda x: aten.reshape.default(x, [12, 10]),
    "expanded": lambda x: aten.expand.default(aten.unsqueeze.default(x, 1), [3, 4, 8, 5]),
    "sliced": lambda x: aten.slice.Tensor(x, 1, 2, 7, 2),
    "from the end": lambda x: aten.slice.Tensor(x, 2, -3, 9223372036854775807),
    "selected": lambda x: aten.select.int(x, 1, -2),
    "flipped": lambda x: aten.flip.default(x, [0, 2]),
    "joined": lambda x: aten.cat.default([x, aten.neg.default(x), x], 1),
    "padded": lambda x: aten.constant_pad_nd.default(x, [1, 2, -1, 3], 0.5),
    "cut off": lambda x: aten.constant_pad_nd.default(x, [-1, -2]),
    "in parts": lambda x: aten.split_with_sizes.default(x, [3, 5], 1)[1],
    "copied": lambda x: aten.alias.default(aten.clone.default(x)),
    "filled": lambda x: aten.add.Tensor(aten.full_like.default(x, 2.0), aten.ones_like.default(x)),
}


@pytest.mark.parametrize("names", [tuple(VIEWS)[:9], tuple(VIEWS)[9:]])
def test_views(names: tuple[str, ...]) -> None:
    a = random(3, 8, 5)
    found, wanted, _ = run(lambda x: [VIEWS[n](x) for n in names], a)
    for name, f, w in zip(names, found, wanted, strict=True):
        assert torch.equal(f, w), name


def test_constants_and_larger_images() -> None:
    def both(x: Any) -> list[Any]:
        return [
            aten.upsample_nearest2d.default(x, [6, 15], 2.0, 3.0),
            aten.mul.Tensor(x, aten.full.default([3, 5], 1.5, device=x.device)),
            aten.sub.Tensor(x, aten.zeros_like.default(x)),
        ]

    for f, w in zip(*run(both, random(2, 2, 3, 5))[:2], strict=True):
        near(f, w)


ROWS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: aten.sum.dim_IntList(x, [-1]),
    "sum of two axes": lambda x: aten.sum.dim_IntList(x, [0, 2], True),
    "mean": lambda x: aten.mean.dim(x, [1], True),
    "amax": lambda x: aten.amax.default(x, [2]),
    "amin": lambda x: aten.amin.default(x, [0], True),
    "any": lambda x: aten._to_copy.default(aten.any.dim(aten.gt.Scalar(x, 2.0), 2), dtype=F32),
    "variance": lambda x: aten.var.correction(x, [2], correction=1),
    "variance and mean": lambda x: aten.var_mean.correction(x, [1, 2], correction=0, keepdim=True),
    "softmax": lambda x: aten._softmax.default(x, -1, False),
    "softmax of columns": lambda x: aten._softmax.default(x, 1, False),
    "its logarithm": lambda x: aten._log_softmax.default(x, 2, False),
}


@pytest.mark.parametrize("name", ROWS)
def test_reductions(name: str) -> None:
    for f, w in zip(*run(ROWS[name], random(3, 7, 33))[:2], strict=True):
        near(f, w, 4e-6)


def test_norms() -> None:
    def norms(x: Any, weight: Any, bias: Any, scale: Any) -> list[Any]:
        layer = aten.native_layer_norm.default(x, [9], weight, bias, 1e-5)
        group = aten.native_group_norm.default(x, scale, None, 2, 6, 9, 3, 1e-5)
        return [*layer, group[0], *(aten.squeeze.default(g) for g in group[1:])]

    given = (random(2, 6, 9), random(9), random(9, seed=1), random(6))
    for f, w in zip(*run(norms, *given)[:2], strict=True):
        near(f, w, 4e-6)


def test_pooling_and_tables() -> None:
    def pooled(x: Any) -> list[Any]:
        return [
            aten.max_pool2d_with_indices.default(x, [3, 3], [2, 2], [1, 1])[0],
            aten.avg_pool2d.default(x, [2, 3], [2, 1], [1, 0]),
        ]

    for f, w in zip(*run(pooled, random(2, 3, 9, 11))[:2], strict=True):
        near(f, w)
    rows = torch.tensor([[3, 0, 6], [1, 1, 5]], dtype=torch.int32)
    for f, w in zip(*run(aten.embedding.default, random(7, 10), rows)[:2], strict=True):
        near(f, w)


PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "mm": (aten.mm.default, ((33, 40), (40, 24))),
    "addmm": (aten.addmm.default, ((24,), (33, 40), (40, 24))),
    "scaled": (
        lambda c, a, b: aten.addmm.default(c, a, b, beta=0.5, alpha=2.0),
        ((33, 24), (33, 40), (40, 24)),
    ),
    "turned": (
        lambda a, b: aten.mm.default(a, aten.permute.default(b, [1, 0])), ((33, 40), (24, 40)),
    ),
    "bmm": (aten.bmm.default, ((3, 17, 16), (3, 16, 40))),
    "baddbmm": (aten.baddbmm.default, ((3, 17, 40), (3, 17, 16), (3, 16, 40))),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=["f16", "bf16", "f32"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, dtype: Any) -> None:
    function, shapes = PRODUCTS[name]
    given = [random(*s, dtype=dtype, seed=i) for i, s in enumerate(shapes)]
    (found,), _, report = run(function, *given)
    near(found.to(dtype), function(*(t.float() for t in given)).to(dtype))
    assert ("on tensor units" in report) == (dtype != F32)


def convolved(*options: Any) -> Callable[..., Any]:
    def function(x: Any, w: Any, *bias: Any) -> Any:
        image, filters = (aten.permute.default(t, [0, 3, 1, 2]) for t in (x, w))
        found = aten.convolution.default(image, filters, *(bias or (None,)), *options)
        return aten.permute.default(found, [0, 2, 3, 1])

    return function


LAYERS: dict[str, tuple[tuple[Any, ...], tuple[tuple[int, ...], ...], bool]] = {
    "3 x 3": (([1, 1], [1, 1], [1, 1], False, [0, 0], 1), ((2, 7, 9, 16), (24, 3, 3, 16)), True),
    "with a bias": (
        ([1, 1], [0, 0], [1, 1], False, [0, 0], 1), ((1, 6, 7, 16), (8, 3, 3, 16), (8,)), True,
    ),
    "5 x 1, apart": (
        ([1, 1], [4, 0], [2, 1], False, [0, 0], 1), ((1, 9, 8, 16), (16, 5, 1, 16)), True,
    ),
    "strided": (
        ([2, 2], [1, 1], [1, 1], False, [0, 0], 1), ((1, 9, 11, 16), (8, 3, 3, 16)), True,
    ),
    "strided, as high as it is wide": (
        ([2, 2], [1, 1], [1, 1], False, [0, 0], 1), ((1, 8, 8, 16), (8, 3, 3, 16)), True,
    ),
    "depthwise, strided": (
        ([2, 2], [1, 1], [1, 1], False, [0, 0], 12), ((2, 8, 8, 12), (12, 3, 3, 1)), False,
    ),
    "by groups": (
        ([1, 1], [1, 1], [1, 1], False, [0, 0], 4), ((1, 5, 6, 8), (12, 3, 3, 2)), False,
    ),
    "depthwise": (
        ([1, 1], [1, 1], [1, 1], False, [0, 0], 8), ((1, 5, 6, 8), (8, 3, 3, 1)), False,
    ),
    "transposed": (
        ([2, 2], [1, 1], [1, 1], True, [1, 1], 1), ((1, 4, 5, 8), (8, 3, 3, 6)), True,
    ),
    "transposed, as many taps for each phase": (
        ([2, 2], [1, 1], [1, 1], True, [0, 0], 1), ((1, 6, 7, 16), (16, 4, 4, 24)), True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_convolutions(name: str) -> None:
    options, shapes, unit = LAYERS[name]
    given = [random(*s, dtype=F16, seed=i) for i, s in enumerate(shapes)]
    function = convolved(*options)
    (found,), _, report = run(function, *given)
    near(found, function(*(t.float() for t in given)).half())
    assert ("on tensor units" in report) == unit


import_module("torch.ao.quantization.fx._decomposed")  # defines what follows
quantized = torch.ops.quantized_decomposed
LEVELS = {torch.int8: (-128, 127, torch.int8), torch.uint8: (0, 255, torch.uint8)}


def bytes_of(dtype: Any, *shape: int) -> Any:
    low, high, _ = LEVELS[dtype]
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(low, high + 1, shape, generator=generator, dtype=dtype)


def test_bytes_that_stand_for_floats() -> None:
    """Ties go to the even number, as in torch."""

    def floats(x: Any, a: Any, b: Any, scales: Any, zeros: Any) -> list[Any]:
        return [
            quantized.quantize_per_tensor(x, 0.5, 3, *LEVELS[torch.uint8]),
            quantized.quantize_per_tensor(x, 0.25, -7, -127, 127, torch.int8),
            quantized.dequantize_per_tensor(a, 0.3, 131, *LEVELS[torch.uint8]),
            quantized.dequantize_per_channel(b, scales, zeros, 0, *LEVELS[torch.int8]),
            quantized.dequantize_per_channel(b, scales, None, 0, *LEVELS[torch.int8]),
        ]

    x = torch.arange(-150, 150).reshape(6, 50) * 0.25
    assert bool(((x * 2) % 1 == 0.5).any())
    a, b = bytes_of(torch.uint8, 6, 50), bytes_of(torch.int8, 6, 50)
    given = (x, a, b, torch.rand(6) + 0.1, torch.arange(-3, 3))
    for f, w in zip(*run(floats, *given)[:2], strict=True):
        near(f, w)  # bytes are the same


def linear_of(dtype: Any, zero: int, scale: float) -> Callable[..., Any]:
    def function(x: Any, w: Any, scales: Any, bias: Any, *zeros: Any) -> Any:
        a = quantized.dequantize_per_tensor(x, scale, zero, *LEVELS[dtype])
        b = quantized.dequantize_per_channel(
            w, scales, zeros[0] if zeros else None, 0, *LEVELS[torch.int8]
        )
        found = aten.relu.default(aten.addmm.default(bias, a, aten.permute.default(b, [1, 0])))
        return quantized.quantize_per_tensor(found, 2 * scale, 3, *LEVELS[torch.uint8])

    return function


def layer_of(dtype: Any, zero: int, scale: float, stride: int = 1) -> Callable[..., Any]:
    def function(x: Any, w: Any, scales: Any, bias: Any, beside: Any) -> Any:
        image, filters, more = (aten.permute.default(t, [0, 3, 1, 2]) for t in (x, w, beside))
        a = quantized.dequantize_per_tensor(image, scale, zero, *LEVELS[dtype])
        b = quantized.dequantize_per_channel(filters, scales, None, 0, *LEVELS[torch.int8])
        found = aten.convolution.default(
            a, b, bias, [stride] * 2, [1, 1], [1, 1], False, [0, 0], 1
        )  # fmt: skip
        more = quantized.dequantize_per_tensor(more, scale, 9, *LEVELS[torch.uint8])
        found = quantized.quantize_per_tensor(found + more, 4 * scale, 120, *LEVELS[torch.uint8])
        return aten.permute.default(found, [0, 2, 3, 1])

    return function


OF_BYTES: dict[str, tuple[Any, Any, int, tuple[int, ...]]] = {
    "rows": (linear_of, torch.uint8, 0, (33, 48)),
    "rows that have a zero point": (linear_of, torch.int8, 5, (64, 48)),
    "rows and columns that have": (linear_of, torch.uint8, 131, (64, 48)),
    "a layer": (layer_of, torch.uint8, 0, (2, 7, 9, 32)),
    "a layer of signed bytes": (layer_of, torch.int8, 0, (2, 7, 9, 32)),
    "a layer that has a zero point": (layer_of, torch.uint8, 133, (1, 3, 60, 32)),
}


def given_of(name: str, exact: bool) -> tuple[Any, ...]:
    """Operands; with scales that are powers of 2 floats are exact."""
    make, dtype, _, shape = OF_BYTES[name]
    channels, filters = shape[-1], 24
    taps = () if make is linear_of else (3, 3)
    scales = 2.0 ** -torch.arange(3, 11)[torch.arange(filters) % 8]
    bias = torch.arange(filters) / 64
    if not exact:
        scales, bias = scales * (torch.rand(filters) + 0.5), torch.randn(filters)
    given = [bytes_of(dtype, *shape), bytes_of(torch.int8, filters, *taps, channels), scales, bias]
    if make is layer_of:
        given.append(bytes_of(torch.uint8, *shape[:-1], filters))
    elif name.startswith("rows and columns"):
        given.append(torch.arange(filters) - 11)
    return tuple(given)


@pytest.mark.parametrize("name", OF_BYTES)
def test_products_of_bytes_are_exact(name: str) -> None:
    """Eager's own floats are exact here as well, and many results lie between two bytes."""
    make, dtype, zero, _ = OF_BYTES[name]
    (found,), (wanted,), report = run(make(dtype, zero, 0.125), *given_of(name, True))
    assert "on tensor units by wgmma" in report
    assert torch.equal(found, wanted)
    assert len(wanted.unique()) > 30


@pytest.mark.parametrize("name", ["rows and columns that have", "a layer that has a zero point"])
def test_the_text_of_products_of_bytes_is_exact(name: str) -> None:
    make, dtype, zero, _ = OF_BYTES[name]
    given = given_of(name, True)
    graph, symbols = region_of(make(dtype, zero, 0.125), *given)
    kernel, _ = compile_region(graph, symbols.hints, TARGET)
    wanted = make(dtype, zero, 0.125)(*given)
    arrays = {f"in{i}": t.contiguous().numpy() for i, t in enumerate(given)}
    found = check(kernel, **arrays, sizes=tuple(wanted.shape))
    assert torch.equal(torch.as_tensor(found), wanted)


@pytest.mark.parametrize("name", OF_BYTES)
def test_products_of_bytes_differ_from_floats_by_one_step(name: str) -> None:
    make, dtype, zero, _ = OF_BYTES[name]
    (found,), (wanted,), _ = run(make(dtype, zero, 0.117), *given_of(name, False))
    apart = (found.int() - wanted.int()).abs()
    assert int(apart.max()) <= 1
    assert float((apart > 0).float().mean()) < 0.005


def test_what_scales_products_of_bytes_cannot_have_is_said() -> None:
    from halide_bridge.torch_backend import pipeline_of

    def function(x: Any, w: Any, scales: Any) -> Any:
        a = quantized.dequantize_per_tensor(x, 0.1, 0, *LEVELS[torch.uint8])
        b = quantized.dequantize_per_channel(w, scales, None, 0, *LEVELS[torch.int8])
        return aten.mm.default(a, b)

    given = (bytes_of(torch.uint8, 9, 16), bytes_of(torch.int8, 16, 8), torch.rand(16))
    with pytest.raises(ScheduleError, match="scales along the sum"):
        pipeline_of(region_of(function, *given)[0])


def test_a_planar_convolution() -> None:
    def function(x: Any, w: Any) -> Any:
        return aten.convolution.default(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)

    given = (random(2, 16, 7, 9, dtype=F16), random(8, 16, 3, 3, dtype=F16))
    (found,), _, _ = run(function, *given)
    near(found, function(*(t.float() for t in given)).half())


@pytest.mark.parametrize("depth", [16, 20])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool, depth: int) -> None:
    from selector.interop.torch_backend.library import ATTENTION

    q, k, v = (random(2, 3, 37, depth, dtype=F16, seed=i) for i in range(3))
    (found,), _, report = run(lambda *t: ATTENTION(*t, causal, 0.25), q, k, v)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        q.float(), k.float(), v.float(), is_causal=causal, scale=0.25
    )
    near(found, wanted.half(), 2e-3)
    assert "keys at a time" in report


def test_open_sizes() -> None:
    def function(x: Any, w: Any, bias: Any) -> Any:
        return aten.relu.default(aten.addmm.default(bias, x, aten.permute.default(w, [1, 0])))

    given = (random(33, 40, dtype=F16), random(24, 40, dtype=F16), random(24, dtype=F16))
    graph, symbols = region_of(function, *given, symbolic=True)
    assert graph.symbols
    assert symbols.hints == {name: given[i].shape[d] for name, (i, d) in graph.symbols.items()}


def test_what_a_rule_refuses_is_said() -> None:
    from halide_bridge.torch_backend import pipeline_of

    graph, _ = region_of(lambda x: aten.cumsum.default(x, 0), random(4, 5))
    with pytest.raises(ScheduleError, match=r"no rule for aten\.cumsum\.default"):
        pipeline_of(graph)
    graph, _ = region_of(lambda x: aten.upsample_nearest2d.default(x, [4, 5]), random(1, 1, 3, 3))
    with pytest.raises(ScheduleError, match="no whole number"):
        pipeline_of(graph)
