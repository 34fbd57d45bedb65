"""Models of bytes that stand for floats under ``backend="tensor_selector"``, against eager."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")

from torch_compiled import compiled  # noqa: E402 - after the skip

from selector.interop.torch_backend import quantised, report  # noqa: E402
from selector.interop.torch_backend.report import reports  # noqa: E402

import_module("torch.ao.quantization.fx._decomposed")  # defines what follows
quantized = torch.ops.quantized_decomposed
make_fx = torch.fx.experimental.proxy_tensor.make_fx
pytestmark = [pytest.mark.usefixtures("anew"), pytest.mark.verified]
nn, functional = torch.nn, torch.nn.functional
UNSIGNED, SIGNED = (0, 255, torch.uint8), (-128, 127, torch.int8)
SCALE = 0.046875  # of activations: bytes are seldom at their limits


class Weights(nn.Module):
    """Bytes with a scale and a zero point, which is 0, for each channel."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.register_buffer("bytes", torch.randint(-127, 128, shape, dtype=torch.int8))
        self.register_buffer("scales", torch.rand(shape[0]) * 2e-3 + 5e-4)
        self.register_buffer("zeros", torch.zeros(shape[0], dtype=torch.int64))

    def forward(self) -> Any:
        return quantized.dequantize_per_channel(self.bytes, self.scales, self.zeros, 0, *SIGNED)


def stepped(x: Any, zero: int, limits: Any) -> Any:
    """What is left of floats as bytes."""
    found = quantized.quantize_per_tensor(x, SCALE, zero, *limits)
    return quantized.dequantize_per_tensor(found, SCALE, zero, *limits)


class Residual(nn.Module):
    """3 x 3, a ReLU, 3 x 3, what went in, a ReLU; ``zero``: of what is behind a ReLU."""

    def __init__(self, zero: int = 0, limits: Any = UNSIGNED, taps: int = 3) -> None:
        super().__init__()
        self.first, self.second = (Weights(32, 32, taps, taps) for _ in range(2))
        self.bias = nn.Parameter(torch.randn(32))
        self.given = zero, limits
        self.around = taps // 2

    def forward(self, x: Any) -> Any:
        x = stepped(x, *self.given)
        y = functional.conv2d(x, self.first(), self.bias, padding=self.around)
        y = stepped(functional.relu(y), *self.given)
        y = functional.conv2d(y, self.second(), padding=self.around) + x
        return quantized.quantize_per_tensor(functional.relu(y), SCALE, *_limits(self.given))


def _limits(given: Any) -> tuple[Any, ...]:
    zero, limits = given
    return (zero, *limits)


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Weights(48, 32), Weights(32, 48)
        self.bias = nn.Parameter(torch.randn(48))

    def forward(self, x: Any) -> Any:
        x = stepped(x, 131, UNSIGNED)
        y = functional.linear(x, self.first(), self.bias)
        y = stepped(functional.relu(y), 0, UNSIGNED)
        y = functional.linear(y, self.second()) + x
        return quantized.quantize_per_tensor(y, SCALE, 131, *UNSIGNED)


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "residual": (Residual, (2, 32, 7, 9)),
    "residual of single pixels": (lambda: Residual(taps=1), (2, 32, 7, 9)),
    "residual whose zero is the least byte": (lambda: Residual(-128, SIGNED), (2, 32, 7, 9)),
    "rows": (Perceptron, (64, 32)),
    "rows in batches": (Perceptron, (4, 16, 32)),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    make, shape = MODELS[name]
    model, x = make().eval(), torch.randn(shape) * 2
    if len(shape) == 4:
        x = x.to(memory_format=torch.channels_last)
    with torch.no_grad():
        wanted, found = model(x), compiled(model)(x)
    assert found.stride() == wanted.stride()
    apart = (found.int() - wanted.int()).abs()
    assert int(apart.max()) <= 1
    assert float((apart > 0).float().mean()) < 0.005
    assert len(wanted.unique()) > 50
    (graph,) = reports()
    assert len(graph.taken) == len(graph.regions) == 2, str(graph)
    for region in graph.taken:
        assert any("u8.s8.s32" in i or "s8.u8.s32" in i for i in region.instructions)
        assert region.graph is not None
        kinds = {t.dtype for t in (*region.graph.inputs, *region.graph.result_types)}
        assert kinds <= {"uint8", "int8", "float32"}  # scales and biases
        assert all(len(t.shape) == 1 for t in region.graph.inputs if t.dtype == "float32")
        assert region.graph.result_types[0].dtype in ("uint8", "int8")
        assert "a_sum" not in region.funcs  # of weights without a zero point


def test_no_bytes_are_corrected_behind_a_relu() -> None:
    """Signed bytes whose least is 0 are unsigned ones: edges are zeros, nothing is subtracted."""
    x = torch.randn(1, 32, 8, 60).to(memory_format=torch.channels_last)
    with torch.no_grad():
        compiled(Residual(-128, SIGNED), cpu="reference")(x)
    assert len(reports()[0].taken) == 2
    assert "_sum" not in report()


def test_zero_points_that_are_written_later() -> None:
    model, x = Perceptron().eval(), torch.randn(64, 32)
    run = compiled(model, cpu="reference")
    with torch.no_grad():
        assert torch.equal(run(x), model(x))
        assert "left to torch: zero points" not in report()
        before = model(x)
        model.first.zeros.fill_(0)  # written, and the same
        assert torch.equal(run(x), before)
        model.first.zeros.add_(40)
        wanted = model(x)
        assert not torch.equal(wanted, before)
        assert torch.equal(run(x), wanted)
        assert "left to torch: zero points" in report()
        model.first.zeros = torch.zeros_like(model.first.zeros)  # another tensor
        assert torch.equal(run(x), before)


def test_zero_points_that_are_not_zero() -> None:
    model, x = Perceptron().eval(), torch.randn(64, 32)
    model.first.zeros += torch.arange(48) % 5
    with torch.no_grad():
        wanted, found = model(x), compiled(model)(x)
    assert int((found.int() - wanted.int()).abs().max()) <= 1
    (graph,) = reports()
    assert len(graph.taken) == 2
    assert "a_sum" in graph.taken[0].funcs


def test_views_of_floats_are_views_of_bytes() -> None:
    def function(x: Any, w: Any, scales: Any) -> Any:
        a = quantized.dequantize_per_tensor(x, 0.5, 3, *UNSIGNED)
        b = quantized.dequantize_per_channel(w, scales, None, 0, *SIGNED)
        return torch.ops.aten.mm.default(a.reshape(6, 4), b.permute(1, 0))

    given = (
        torch.randint(0, 256, (2, 3, 4), dtype=torch.uint8),
        torch.randint(-128, 128, (5, 4), dtype=torch.int8),
        torch.rand(5),
    )
    made = make_fx(function, tracing_mode="fake")(*given)
    quantised.dequantise_last(made.graph)
    made.graph.eliminate_dead_code()
    made.recompile()
    (product,) = (n for n in made.graph.nodes if "mm" in str(n.target))
    assert quantised.of_bytes(product)
    assert product.args[1].args[3] == 1  # the axis of the channels
    assert torch.equal(made(*given), function(*given))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torchao") is None, reason="torchao (PT2E) is not installed")
def test_a_network_that_torchao_quantises() -> None:
    """The first half of ResNet-18, of few pixels; its first layer is one of many zero points."""
    from casestudies.models import images
    from casestudies.models.models import model_of

    make = partial(images.resnet, images.basic, (1, 1), 1)
    entry = replace(model_of("ResNet-18-int8"), shape=(3, 32, 32), make=make)
    model, x = entry.build("cpu", torch.float16), entry.inputs(1, "cpu", torch.float16)
    exact = entry.build("cpu", torch.float32)
    with torch.no_grad():
        wanted, found = model(x), compiled(model, cpu="interpret")(x)
        near, far = ((y - exact(x)).norm() / exact(x).norm() for y in (found, wanted))
    assert float((found - wanted).norm()) <= 5e-3 * float(wanted.norm())
    assert float(near) <= 1.05 * float(far) < 0.1
    (graph,) = reports()
    assert len(graph.regions) == 7
    assert all(r.instructions for r in graph.regions[1:]), str(graph)
