"""What is no region is torch's, with the same results, and is named; mistakes are said."""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")

import torch_compiled  # noqa: E402 - after the skip

from selector.interop.regions import store  # noqa: E402
from selector.interop.torch_backend import report  # noqa: E402
from selector.interop.torch_backend.report import reports  # noqa: E402

pytestmark = [pytest.mark.usefixtures("anew"), pytest.mark.verified]
nn = torch.nn
compiled = partial(torch_compiled.compiled, fullgraph=False)
HALF = torch.float16


def layer(dtype: Any = HALF) -> Any:
    return nn.Sequential(nn.Linear(24, 16), nn.ReLU()).eval().to(dtype)


def given(*shape: int, dtype: Any = HALF) -> Any:
    return torch.randn(shape).to(dtype)


def complex_() -> tuple[Any, tuple[Any, ...]]:
    return (lambda a, b: (a @ b) * 1j), (
        given(4, 6, dtype=torch.complex64), given(6, 3, dtype=torch.complex64),
    )  # fmt: skip


def integers() -> tuple[Any, tuple[Any, ...]]:
    return (lambda a, b: a @ b), (torch.arange(24).view(4, 6), torch.arange(18).view(6, 3))


def sparse() -> tuple[Any, tuple[Any, ...]]:
    model, matrix = layer(), torch.eye(9).to_sparse()
    return (lambda x: model(torch.sparse.mm(matrix, x.float()).half())), (given(9, 24),)


def of_no_rows() -> tuple[Any, tuple[Any, ...]]:
    return layer(), (given(0, 24),)


def of_no_terms() -> tuple[Any, tuple[Any, ...]]:
    return (lambda a, b: a @ b + 1), (given(4, 0), given(0, 3))


def images_of_none() -> tuple[Any, tuple[Any, ...]]:
    x = given(0, 16, 8, 8).to(memory_format=torch.channels_last)
    return nn.Conv2d(16, 16, 3, padding=1).half().eval(), (x,)


def strided() -> tuple[Any, tuple[Any, ...]]:
    return (lambda a, b: a[::2, ::2] @ b), (given(8, 12), given(6, 4))


def expanded() -> tuple[Any, tuple[Any, ...]]:
    return (lambda a, b: a.expand(8, 6) @ b), (given(1, 6), given(6, 4))


LEFT: dict[Callable[[], tuple[Any, tuple[Any, ...]]], str] = {
    complex_: "no tensor instruction multiplies complex64",
    integers: "no tensor instruction multiplies int64",
    of_no_terms: "its product has not gone to a tensor unit",
    strided: "no axis of",
    expanded: "it is no product of two matrices",
}
# Of no elements, or whose graph torch does not hand over whole.
RIGHT = (of_no_rows, images_of_none, sparse)


@pytest.mark.parametrize("case", [*LEFT, *RIGHT], ids=lambda case: case.__name__)
def test_results_are_those_of_torch(case: Any) -> None:
    model, inputs = case()
    with torch.no_grad():
        found, wanted = compiled(model)(*inputs), model(*inputs)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    assert torch.allclose(found, wanted, atol=1e-2)
    assert LEFT.get(case, "") in report()
    if case in LEFT:
        assert not [r for graph in reports() for r in graph.taken]


def test_elements_of_other_types_are_named_when_all_are_asked_for() -> None:
    for case, why in ((complex_, "an argument of type complex"), (integers, "a product of int64")):
        torch.compiler.reset()
        model, inputs = case()
        assert torch.allclose(compiled(model, take="all")(*inputs), model(*inputs))
        assert why in report(clear=True)


@pytest.mark.parametrize("inside", [False, True])
def test_sizes_that_data_decide_are_torchs(inside: bool) -> None:
    model = nn.Conv2d(16, 16, 3, padding=1).half().eval()
    x = given(4, 16, 6, 5)
    if inside:
        model, x = (v.to(memory_format=torch.channels_last) for v in (model, x))
    options = {"cpu": "interpret", "rest": "eager", "folder": None, "target": "sm_90a"}

    def some(x: Any) -> Any:
        return torch.relu(model(x[x[:, 0, 0, 0] > 0])) + 1, torch.relu(model(x)) * 2

    with torch.no_grad(), torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        run = torch.compile(some, backend="tensor_selector", fullgraph=True, options=options)
        for f, w in zip(run(x), some(x), strict=True):
            assert torch.allclose(f, w, atol=2e-2)
    (graph,) = reports()
    assert "left to torch: a size that data decide" in str(graph)
    assert not any("<built-in" in name for name in graph.left)
    assert len(graph.taken) == inside


def test_what_only_has_shapes_is_torchs() -> None:
    model, x = layer().to("meta"), torch.empty(5, 24, dtype=HALF, device="meta")
    with torch.no_grad():
        assert compiled(model)(x).shape == (5, 16)
    assert "left to torch: on meta" in report()


def test_types_that_autocast_makes_are_those_of_regions() -> None:
    model, x = layer(torch.float32), given(5, 24, dtype=torch.float32)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found, wanted = compiled(model)(x), model(x)
    assert found.dtype == wanted.dtype == torch.bfloat16
    assert torch.allclose(found, wanted, atol=2e-2)
    assert len(reports()[0].taken) == 1


def test_inference_mode() -> None:
    model, x = layer(), given(5, 24)
    with torch.inference_mode():
        assert torch.allclose(compiled(model)(x), model(x), atol=1e-2)
    assert len(reports()[0].taken) == 1


def test_batches_that_become_empty() -> None:
    model = layer()
    run = compiled(model, dynamic=True)
    with torch.no_grad():
        for rows in (9, 1, 0):
            x = given(rows, 24)
            assert torch.allclose(run(x), model(x), atol=1e-2)


WRONG = {
    "target": ("sm_12345", "unknown target 'sm_12345'"),
    "of a CPU": ("amx", "has no regions for amx"),
    "folder": ("a file", "cannot be a folder of regions"),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_said_once(name: str, tmp_path: Path) -> None:
    value, message = WRONG[name]
    if name == "folder":
        value = str(tmp_path / "file")
        Path(value).touch()
    option: dict[str, Any] = {"folder" if name == "folder" else "target": value}
    with pytest.raises(Exception, match=message):
        compiled(layer(), **option)(given(5, 24))
    assert not report()


def test_a_folder_may_be_one_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = layer(), given(7, 24)
    monkeypatch.setattr(store, "_known", {})
    monkeypatch.setattr(store, "writable", lambda folder: False)
    with torch.no_grad():
        assert torch.allclose(compiled(model, folder=tmp_path)(x), model(x), atol=1e-2)
    assert len(reports()[0].taken) == 1
    assert not any(tmp_path.iterdir())
