"""What regions read and write beside whole tensors of floats: bools, numbers, what is expanded; and
attention in the forms in which models have it. Against torch in float32, in the interpreter.
"""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")

import torch_compiled  # noqa: E402 - after the skip

from halide_bridge.torch_backend import compile_region  # noqa: E402
from selector.interop.torch_backend.attention import why_not  # noqa: E402
from selector.interop.torch_backend.report import reports  # noqa: E402

pytestmark = [pytest.mark.usefixtures("anew"), pytest.mark.verified]
nn, functional = torch.nn, torch.nn.functional
attend = functional.scaled_dot_product_attention
compiled = partial(torch_compiled.compiled, take="all")
INSIDE = torch.channels_last


def given(*shape: int, dtype: Any = torch.float16) -> Any:
    return torch.randn(shape).to(dtype)


def like_torch(model: Any, *inputs: Any, tolerance: float = 2e-3, **options: Any) -> Any:
    """The report, if the results are torch's in float32, and lie as torch's do."""
    with torch.no_grad():
        wanted, found = model(*inputs), compiled(model, **options)(*inputs)
        wide = [x.float() if x.is_floating_point() else x for x in inputs]
        exact = model.float()(*wide) if isinstance(model, nn.Module) else model(*wide)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    assert found.stride() == wanted.stride()
    near(found, exact, tolerance)
    return reports()[-1]


def near(found: Any, exact: Any, tolerance: float) -> None:
    assert float((found.float() - exact.float()).norm()) <= tolerance * float(exact.float().norm())


OPERANDS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a mask of bools": (
        lambda a, b, c: (a @ b).masked_fill(c, 2.0),
        (given(5, 16), given(16, 8), torch.arange(40).view(5, 8) % 3 == 0),
    ),
    "bools that leave": (lambda a, b: (a @ b) > 0.5, (given(5, 16), given(16, 8))),
    "a matrix for a batch": (
        lambda w, x: functional.gelu(w @ x),
        (given(18, 9), given(2, 9, 16)),
    ),
    "an expanded row": (lambda a, b: a.expand(5, 16) @ b + 1, (given(1, 16), given(16, 8))),
    "one number": (
        lambda a, b, s: (a @ b) * s.expand(5, 8),
        (given(5, 16), given(16, 8), given(1, 1)),
    ),
    "a bias that is not read": (
        lambda c, a, b: torch.baddbmm(c * torch.nan, a, b, beta=0, alpha=0.25),
        (given(3, 5, 7), given(3, 5, 16), given(3, 16, 7)),
    ),
    "a bias that is cast": (
        lambda c, a, b: torch.addmm(c.to(a.dtype), a, b).relu(),
        (given(17, dtype=torch.float32), given(20, 16), given(16, 17)),
    ),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands(name: str) -> None:
    graph = like_torch(OPERANDS[name][0], *OPERANDS[name][1])
    assert len(graph.taken) == 1, str(graph)
    assert "convert_element_type" not in graph.left


def test_a_matrix_for_a_batch_goes_to_tensor_units() -> None:
    """As one matrix: neither a copy for each of the batch nor an axis of zeros."""
    from torch_regions import TARGET, region_of

    def product(w: Any, x: Any) -> Any:
        return torch.bmm(w.expand(8, 128, 128), x)

    graph, symbols = region_of(product, given(128, 128), given(8, 128, 512))
    assert "on tensor units by wgmma" in compile_region(graph, symbols.hints, TARGET)[1]


WEIGHTS = {
    "turned": lambda x, w, s: functional.linear(x, w.to(x.dtype)) * s,
    "as they lie": lambda x, w, s: (x @ w.view(70, 45).to(x.dtype)) * s,
    "for a batch": lambda x, w, s: (
        torch.bmm(x.repeat(3, 1, 1), w.view(3, 15, 70).to(x.dtype).mT) * s[:15]
    ),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["f16", "bf16"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_of_bytes_are_read_as_bytes(name: str, dtype: Any) -> None:
    """Where they are more than the result: no kernel writes them as floats."""
    x, s = given(5, 70, dtype=dtype), given(45, dtype=dtype) * 0.01
    w = torch.randint(-128, 127, (45, 70), dtype=torch.int8)
    graph = like_torch(WEIGHTS[name], x, w, s, tolerance=2e-3 if dtype == torch.float16 else 1e-2)
    (region,) = graph.taken
    assert region.graph is not None
    assert "int8" in [t.dtype for t in region.graph.inputs]
    assert region.instructions
    assert "convert_element_type" not in graph.left


def test_weights_of_bytes_that_many_rows_read_are_floats_before() -> None:
    w = torch.randint(-128, 127, (45, 70), dtype=torch.int8)
    graph = like_torch(lambda x, w: functional.linear(x, w.to(x.dtype)), given(90, 70), w)
    assert graph.left["convert_element_type"] == 1
    assert len(graph.taken) == 1


def test_masks_of_a_backward_graph() -> None:
    """That of a ReLU is one of bools."""
    model = nn.Sequential(nn.Linear(16, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 8))
    other = nn.Sequential(nn.Linear(16, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 8))
    other.load_state_dict(model.state_dict())
    x = given(20, 16, dtype=torch.float32)
    for each in (model, compiled(other)):
        each(x).square().mean().backward()
    for p, q in zip(other.parameters(), model.parameters(), strict=True):
        if float(q.grad.norm()) > 1e-6:  # a norm takes the first bias away
            near(p.grad, q.grad, 1e-4)
    for p, q in zip(other.buffers(), model.buffers(), strict=True):
        near(p, q, 1e-4)
    assert [len(g.taken) for g in reports()] == [2, 3]


def test_gradients_that_are_the_same_everywhere() -> None:
    """Of a sum they are one number, expanded."""
    w, x = (given(*s, dtype=torch.float32) for s in ((16, 8), (5, 16)))
    gradient = torch.func.grad(lambda x: (x @ w).tanh().sum())
    near(compiled(gradient)(x), gradient(x), 1e-4)
    assert len(reports()[0].taken) == 2, str(reports()[0])


def test_numbers_that_are_open() -> None:
    run = compiled(lambda a, b, s: (a @ b) * s + s, dynamic=True)
    a, b = given(5, 16), given(16, 8)
    with torch.no_grad():
        for s in (4.0, 6.5):
            near(run(a, b, s), a.float() @ b.float() * s + s, 2e-3)
    assert len(reports()[-1].taken) == 1, str(reports()[-1])


def test_strides_of_images_whose_sizes_are_open() -> None:
    """The sizes of a result follow from those of its image."""
    model = nn.Conv2d(16, 8, 3, stride=2, padding=1).half().eval().to(memory_format=INSIDE)
    run = compiled(model, dynamic=True)
    with torch.no_grad():
        for shape in ((2, 16, 12, 7), (2, 16, 9, 12)):
            x = given(*shape).to(memory_format=INSIDE)
            near(run(x), model(x), 2e-3)
    (graph,) = reports()
    assert len(graph.taken) == 1, str(graph)


def test_channels_that_are_weighed() -> None:
    """A convolution of one pixel is a product of matrices, however the pixel lies."""

    class Weighed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.narrow, self.wide = nn.Conv2d(16, 8, 1), nn.Conv2d(8, 16, 1)

        def forward(self, x: Any) -> Any:
            found = functional.relu(self.narrow(x.mean((2, 3), keepdim=True)))
            return x * torch.sigmoid(self.wide(found))

    x = given(4, 16, 5, 6).to(memory_format=INSIDE)
    graph = like_torch(Weighed().half().eval().to(memory_format=INSIDE), x)
    assert [len(r.graph.inputs[0].shape) for r in graph.taken] == [2, 2]
    assert all(r.instructions for r in graph.taken)


FORMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "heads that share keys": (
        partial(attend, enable_gqa=True, is_causal=True),
        ((1, 4, 17, 16), (1, 2, 19, 16), (1, 2, 19, 16)),
    ),
    "one head of keys": (
        partial(attend, scale=-0.5),
        ((2, 4, 9, 16), (2, 1, 23, 16), (2, 1, 23, 16)),
    ),
    "no heads": (attend, ((4, 17, 16), (4, 23, 16), (4, 23, 16))),
    "scores that are 0": (
        partial(attend, scale=0.0),
        ((1, 2, 9, 16), (1, 2, 9, 16), (1, 2, 9, 16)),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_attention(name: str) -> None:
    function, shapes = FORMS[name]
    graph = like_torch(function, *(given(*s) for s in shapes))
    assert [r.what for r in graph.taken] == ["attention"], str(graph)
    assert all(r.instructions for r in graph.taken)


def test_attention_inside_of_functions_of_torch() -> None:
    """As ``nn.MultiheadAttention`` has it, and with a mask that is as good as none."""
    model, x = nn.MultiheadAttention(32, 2).half().eval(), given(9, 2, 32)
    mask = nn.Transformer.generate_square_subsequent_mask(9)

    def mixed(x: Any) -> Any:
        return model(x, x, x, need_weights=False, is_causal=True, attn_mask=mask.to(x.dtype))[0]

    with torch.no_grad():
        found = compiled(mixed)(x)
        model.float()
        near(found, mixed(x.float()), 2e-3)
    assert "attention" in [r.what for r in reports()[0].taken], str(reports()[0])


LEFT: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "it has a mask": (
        lambda q, k, v, m: attend(q, k, v, attn_mask=m),
        (*[(1, 4, 17, 16)] * 3, (17, 17)),
    ),
    "batches or heads of keys": (attend, ((2, 4, 9, 16), (1, 4, 9, 16), (1, 4, 9, 16))),
    "it has no elements": (attend, ((2, 4, 9, 16), (2, 4, 0, 16), (2, 4, 0, 16))),
    "another number of channels": (attend, ((2, 4, 9, 16), (2, 4, 9, 16), (2, 4, 9, 24))),
}


@pytest.mark.parametrize("why", LEFT)
def test_attention_that_is_torchs(why: str) -> None:
    function, shapes = LEFT[why]
    inputs = [given(*s) for s in shapes]
    graph = like_torch(function, *inputs)
    assert "attention" not in [r.what for r in graph.taken]
    arguments = {"attn_mask": inputs[3]} if len(inputs) > 3 else {}
    assert why in why_not(arguments, inputs[:3])


def test_why_attention_is_left_is_said() -> None:
    q = given(1, 4, 9, 16).requires_grad_()
    compiled(attend)(q, q, q)
    with torch.no_grad():
        compiled(lambda q, m: attend(q, q, q, attn_mask=m))(q, given(9, 9))
    first, second = (str(g) for g in reports())
    assert "attention_for_cpu: left to torch: its gradient is wanted" in first
    assert "attention_for_cpu: left to torch: it has a mask" in second
