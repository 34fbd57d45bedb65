"""Kernels as operators of PyTorch: registered, traced, differentiated, batched; run here in the
interpreter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
import selector
from halide_bridge import operators
from selector.diagnostics import ArgumentError

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")

from selector.interop.torch import TorchOp, torch_op  # noqa: E402 - after the skip

pytestmark = pytest.mark.verified

x, y = hl.Var("x"), hl.Var("y")
HERE = {"cpu": "interpret", "target": "sm_90a"}


@pytest.fixture(scope="module")
def softmax() -> TorchOp:
    return torch_op("test_ours::softmax", operators.softmax(), **HERE)


@pytest.fixture(scope="module")
def rms_norm() -> TorchOp:
    return torch_op("test_ours::rms_norm", operators.rms_norm(), **HERE)


@pytest.fixture(scope="module")
def widths() -> TorchOp:
    """Sums of neighbours and what is left over: two outputs, each smaller than the input."""
    a, wide, left = hl.ImageParam(hl.Float(32), 2, "a"), hl.Func("wide"), hl.Func("left")
    wide[x, y] = a[x, y] + a[x + 2, y]
    left[x, y] = a[x, y] - a[x, y + 1]

    def shape(of: Any) -> dict[str, Any]:
        return {"wide": (of[0], of[1] - 2), "left": (of[0] - 1, of[1])}

    return torch_op("test_ours::widths", [wide, left], shape=shape, **HERE)


@pytest.fixture(scope="module")
def valid() -> TorchOp:
    """A filter of what lies inside: its output is as large as the inputs allow."""
    a, k, out = (
        hl.ImageParam(hl.Float(32), 2, "a"),
        hl.ImageParam(hl.Float(32), 1, "k"),
        hl.Func("out"),
    )
    r = hl.RDom([(0, k.width())])
    out[x, y] += a[x + r, y + 1] * k[r]
    return torch_op("test_ours::valid", out, **HERE)


def random(*shape: int) -> Any:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator)


def gradients(function: Any, *args: Any) -> list[Any]:
    own = [a.detach().clone().requires_grad_() if torch.is_tensor(a) else a for a in args]
    result = function(*own)
    (result * random(*result.shape)).sum().backward()
    return [a.grad for a in own if torch.is_tensor(a)]


def norm(a: Any, weight: Any, eps: float) -> Any:
    return torch.nn.functional.rms_norm(a, (a.shape[-1],), weight, eps)


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_results_and_gradients(softmax: TorchOp, rms_norm: TorchOp) -> None:
    for shape in [(4, 20), (33,), (2, 3, 7)]:
        a, weight = random(*shape), random(shape[-1])
        close(softmax(a), a.softmax(-1))
        close(softmax(scores=a), a.softmax(-1))
        close(rms_norm(a, weight, 1e-3), norm(a, weight, 1e-3))
        close(rms_norm(a, eps=1e-3, weight=weight), norm(a, weight, 1e-3))
        close(gradients(softmax, a), gradients(lambda v: v.softmax(-1), a))
        close(gradients(softmax.overload, a), gradients(lambda v: v.softmax(-1), a))
        close(gradients(rms_norm, a, weight, 1e-3), gradients(norm, a, weight, 1e-3))


@pytest.mark.slow
def test_torchs_own_checks(
    softmax: TorchOp, rms_norm: TorchOp, widths: TorchOp, valid: TorchOp
) -> None:
    for op, args in [
        (softmax, (random(4, 20).requires_grad_(),)),
        (softmax, (random(2, 3, 5).requires_grad_(),)),
        (rms_norm, (random(4, 20).requires_grad_(), random(20).requires_grad_(), 1e-5)),
        (widths, (random(5, 9),)),
        (valid, (random(5, 9), random(4))),
    ]:
        found = torch.library.opcheck(op.overload, args)
        assert set(found.values()) == {"SUCCESS"}


def test_transformed_by_torch_func(softmax: TorchOp, rms_norm: TorchOp) -> None:
    a, b = random(3, 4, 6), random(3, 4, 6)

    def loss(op: Any, v: Any, u: Any) -> Any:
        return (op(v) * u).sum()

    def plain(v: Any) -> Any:
        return v.softmax(-1)

    for way in (
        lambda op: torch.func.grad(lambda v: loss(op, v, b))(a),
        lambda op: torch.vmap(op, in_dims=1)(a),
        lambda op: torch.vmap(torch.func.grad(lambda v, u: loss(op, v, u)))(a, b),
        lambda op: torch.func.jacrev(op)(a[0, :2]),
    ):
        close(way(softmax), way(plain))
    weights = random(3, 6)  # has no axis for a batch: one by one
    found = torch.vmap(lambda v, w: rms_norm(v, w, 1e-5))(a, weights)
    close(found, torch.vmap(lambda v, w: norm(v, w, 1e-5))(a, weights))
    found = torch.vmap(lambda w: rms_norm(a[0], w, 1e-5))(weights)
    close(found, torch.stack([norm(a[0], w, 1e-5) for w in weights]))


@pytest.mark.slow
def test_compiled_without_a_break(rms_norm: TorchOp, softmax: TorchOp) -> None:
    def model(v: Any, w: Any) -> Any:
        return softmax(rms_norm(v * 2, w, 1e-5)) + 1

    def wanted(v: Any, w: Any) -> Any:
        return norm(v * 2, w, 1e-5).softmax(-1) + 1

    for dynamic in (False, True):
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=dynamic)
        for shape in [(4, 20), (5, 30)]:
            a, weight = random(*shape), random(shape[-1])
            close(compiled(a, weight), wanted(a, weight))
            close(gradients(compiled, a, weight), gradients(wanted, a, weight))
    traced: list[Any] = []
    compiled = torch.compile(
        model, fullgraph=True, dynamic=True, backend=lambda gm, _: traced.append(gm) or gm
    )
    for shape in [(4, 20), (7, 30), (9, 41)]:
        compiled(random(*shape), random(shape[-1]))
    assert len(traced) == 1


def test_outputs_of_other_shapes(widths: TorchOp) -> None:
    a = random(5, 9)
    wide, left = widths(a)
    close(wide, a[:, :-2] + a[:, 2:])
    close(left, a[:-1] - a[1:])
    traced = widths(a.to("meta"))
    assert [t.shape for t in traced] == [(5, 7), (4, 9)]


def test_shapes_that_follow_from_the_plan(valid: TorchOp) -> None:
    a, k = random(5, 9), random(4)
    wanted = torch.nn.functional.conv1d(a[1:, None], k[None, None])[:, 0]
    close(valid(a, k), wanted)
    traced: list[Any] = []
    compiled = torch.compile(
        valid, fullgraph=True, dynamic=True, backend=lambda gm, _: traced.append(gm) or gm
    )
    for n, taps in [(9, 4), (12, 5), (30, 3)]:
        assert compiled(random(6, n), random(taps)).shape == (5, n - taps + 1)
    assert len(traced) == 1
    assert valid(random(5, 3), k).shape == (4, 0)
    with pytest.raises(ArgumentError, match="too small for any output"):
        valid(random(5, 2), k)


def test_layouts_and_nothing(softmax: TorchOp) -> None:
    a = random(6, 8)
    for view in (a.t(), a[:, ::2], a[2:5, 1:], a[:1].expand(3, 8)):
        close(softmax(view), view.softmax(-1))
    assert softmax(a[:0]).shape == (0, 8)
    assert softmax(random(0, 3, 8)).shape == (0, 3, 8)


def test_a_rule_of_shapes() -> None:
    op = torch_op("test_ours::product", operators.matmul("float32"), **HERE)
    a, b = random(5, 7), random(7, 3)
    close(op(a, b), a @ b)
    close(gradients(op, a, b), gradients(torch.mm, a, b))
    assert op(a.to("meta"), b.to("meta")).shape == (5, 3)


def test_a_saved_kernel_is_an_operator(tmp_path: Path) -> None:
    found = operators.softmax("float16")
    sizes = [{"scores": (4, 64), "result": (4, 64)}]
    kernel = hb.compile(found.kernel, target="sm_90a", schedule="auto", sizes=sizes)
    (tmp_path / "softmax.kernel").write_bytes(kernel.to_bytes(machine_code=False))
    op = torch_op(
        "test_ours::saved", tmp_path / "softmax.kernel", shape="scores", batched=["scores"],
        cpu="interpret",
    )  # fmt: skip
    assert isinstance(op.kernel, selector.SizedKernel)
    a = random(3, 9).half()
    torch.testing.assert_close(op(a), a.softmax(-1))


def test_mistakes_of_a_call(softmax: TorchOp, rms_norm: TorchOp) -> None:
    a = random(4, 20)
    with pytest.raises(
        ArgumentError, match=r"scores: expected 2 axes of torch\.float32, got 2"
    ) as caught:
        softmax(a.double())
    assert "scores.to(torch.float32)" in str(caught.value)
    with pytest.raises(
        ArgumentError, match=r"expected 2 axes of torch.float32, got 2 of torch\.float16"
    ):
        softmax(a.half().to("meta"))
    with pytest.raises(
        ArgumentError, match="weight: axis 0 has 19 elements, and the last axis of a has 20"
    ):
        rms_norm(a, random(19), 1e-5)
    with pytest.raises(ArgumentError, match="takes a, weight, eps"):
        rms_norm(a, random(20), epsilon=1e-5)
    with pytest.raises(ArgumentError, match="takes scores"):
        softmax()
    with pytest.raises(ArgumentError, match="expected 1 axes") as caught:
        rms_norm(a, random(2, 20), 1e-5)
    assert "its shape is (2, 20)" in str(caught.value)
    assert "hint" not in str(caught.value)


def test_windows_of_other_sizes() -> None:
    """They are not those in whose place a part of them would be read."""
    op = torch_op("test_ours::window", operators.filter_2d(3, 3), **HERE)
    for shape, text in (((5, 5), "axis 1 must have 3"), ((2, 3), "axis 0 must have 3")):
        with pytest.raises(ArgumentError, match=f"taps: {text} elements"):
            op(random(1, 6, 7), random(*shape))
    op = torch_op("test_ours::windows", operators.separable_filter(3, 3), **HERE)
    with pytest.raises(ArgumentError, match="taps_x: axis 0 must have 3 elements, has 5"):
        op(random(1, 6, 7), random(5), random(3))


def test_what_is_on_the_cpu_is_refused_unless_asked_for() -> None:
    op = torch_op("test_ours::on_gpu", operators.softmax(), target="sm_90a")
    with pytest.raises(ArgumentError, match="scores is on the CPU") as caught:
        op(random(2, 3))
    assert "scores.cuda()" in str(caught.value)


def test_gradients_that_nobody_gave(softmax: TorchOp) -> None:
    op = torch_op("test_ours::sharp", operators.unsharp(3, 3), **HERE)
    image, taps = random(1, 6, 7), torch.tensor([0.25, 0.5, 0.25])
    assert op(image, taps, taps, 0.5).shape == image.shape
    with pytest.raises(ArgumentError, match="test_ours::sharp has no backward"):
        op(image.requires_grad_(), taps, taps, 0.5).sum().backward()
    filtered = torch_op("test_ours::filter", operators.filter_2d(3, 3, boundary="zero"), **HERE)
    window = random(3, 3).requires_grad_()
    with pytest.raises(ArgumentError, match="has no gradient of taps"):
        filtered(image, window).sum().backward()
    loss = softmax(image).square().sum()
    (first,) = torch.autograd.grad(loss, image, create_graph=True)
    with pytest.raises(ArgumentError, match="softmax_backward has no backward"):
        first.sum().backward()


@pytest.mark.parametrize(("height", "width"), [(3, 3), (2, 5), (4, 1)])
@pytest.mark.parametrize("boundary", operators.BOUNDARIES)
def test_filters(height: int, width: int, boundary: str) -> None:
    name = f"test_ours::filter_{height}_{width}_{boundary}"
    op = torch_op(name, operators.filter_2d(height, width, boundary=boundary), **HERE)
    image, taps = random(2, 3, 9, 11), random(height, width)
    mode = {"zero": "constant", "edge": "replicate", "reflect": "reflect"}[boundary]
    sides = (width // 2, (width - 1) // 2, height // 2, (height - 1) // 2)

    def wanted(v: Any) -> Any:
        padded = torch.nn.functional.pad(v.reshape(6, 1, 9, 11), sides, mode=mode)
        return torch.nn.functional.conv2d(padded, taps[None, None]).reshape(v.shape)

    close(op(image, taps), wanted(image))
    if boundary == "zero":
        close(gradients(lambda v: op(v, taps), image), gradients(wanted, image))


def test_names_that_do_not_fit() -> None:
    pipeline = operators.softmax().kernel
    for name in ("softmax", "a::b::c", "test ours::x"):
        with pytest.raises(ArgumentError, match="is no name of an operator"):
            torch_op(name, pipeline, **HERE)
    torch_op("test_ours::twice", pipeline, **HERE)
    with pytest.raises(ArgumentError, match="there is an operator test_ours::twice already"):
        torch_op("test_ours::twice", pipeline, **HERE)
    for options, text in [
        ({"shape": "image"}, "has no input 'image'"),
        ({"batched": ["image"]}, "batched=: result has no input 'image'"),
        ({"backward": pipeline}, "what is its output 'result'"),
        ({"backward": operators.unsharp(3, 3).kernel}, "what is its input"),
        ({"cpu": "yes"}, "neither 'refuse' nor 'interpret'"),
    ]:
        with pytest.raises(ArgumentError, match=text):
            torch_op(f"test_ours::wrong_{len(text)}", pipeline, **{**HERE, **options})
    with pytest.raises(ArgumentError, match="no type of elements"):
        operators.softmax("int32")
    with pytest.raises(ArgumentError, match="is no boundary"):
        operators.filter_2d(3, 3, boundary="wrap")


def test_numbers_of_numpy_agree() -> None:
    """Without torch's rules in between: the pipeline itself."""
    kernel = hb.compile(operators.softmax().kernel, target="sm_90a", schedule="auto")
    data = np.random.default_rng(1).random((4, 9), dtype=np.float32)
    wanted = np.exp(data) / np.exp(data).sum(1, keepdims=True)
    assert np.allclose(kernel.interpret(scores=data, sizes=data.shape), wanted, rtol=1e-5)
