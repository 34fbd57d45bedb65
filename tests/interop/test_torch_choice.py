"""What is done to a model's graph before regions are found in it, and which regions are taken."""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")

from torch_regions import TARGET, random, region_of  # noqa: E402

from halide_bridge.torch_backend import compile_region  # noqa: E402
from selector.interop.regions import store  # noqa: E402
from selector.interop.regions.graph import (  # noqa: E402
    Node,
    Ref,
    RegionGraph,
    TensorType,
)
from selector.interop.torch_backend import choice, report, whole  # noqa: E402
from selector.interop.torch_backend.choice import Times  # noqa: E402
from selector.interop.torch_backend.grow import parts  # noqa: E402
from selector.interop.torch_backend.layouts import turn_images, turn_last  # noqa: E402
from selector.interop.torch_backend.patches import as_products  # noqa: E402

pytestmark = pytest.mark.verified

make_fx = torch.fx.experimental.proxy_tensor.make_fx
functional = torch.nn.functional
INNERMOST = torch.channels_last


def names(graph: Any) -> list[str]:
    return [str(n.target).split(".")[1] for n in graph.nodes if n.op == "call_function"]


def changed(change: Any, function: Any, *tensors: Any) -> tuple[Any, Any]:
    """A graph after a pass over it, and what it gives."""
    made = make_fx(function, tracing_mode="fake")(*tensors)
    change(made.graph)
    made.graph.lint()
    made.recompile()
    return made.graph, made(*tensors)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_patches_are_rows_of_a_product(inside: bool, has_bias: bool) -> None:
    x, w = torch.randn(2, 3, 8, 12), torch.randn(5, 3, 4, 2)
    if inside:
        x, w = x.to(memory_format=INNERMOST), w.to(memory_format=INNERMOST)

    def layer(x: Any, w: Any, *rest: Any) -> Any:
        bias = rest[0] if rest else None
        return torch.ops.aten.convolution(x, w, bias, [4, 2], [0, 0], [1, 1], False, [0, 0], 1)

    given = (x, w, torch.randn(5)) if has_bias else (x, w)
    graph, found = changed(as_products, layer, *given)
    wanted = layer(*given)
    assert "convolution" not in names(graph)
    assert ("addmm" if has_bias else "mm") in names(graph)
    assert found.stride() == wanted.stride()
    assert torch.allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize(("stride", "padding"), [(2, 0), (4, 1)])
def test_other_windows_stay_convolutions(stride: int, padding: int) -> None:
    x, w = torch.randn(1, 3, 10, 10), torch.randn(5, 3, 4, 4)
    graph, _ = changed(as_products, lambda x, w: functional.conv2d(
        x, w, stride=stride, padding=padding), x, w)  # fmt: skip
    assert names(graph) == ["convolution"]


def test_images_lie_as_filters_do() -> None:
    x, w = torch.randn(1, 3, 10, 10), torch.randn(5, 3, 3, 3).to(memory_format=INNERMOST)

    def layers(x: Any, w: Any) -> Any:
        padded = functional.pad(x, (1, 1, 1, 1))
        return functional.conv2d(padded, w) + functional.conv2d(padded, w)

    graph, found = changed(turn_images, layers, x, w)
    assert names(graph).count("clone") == 1
    assert torch.allclose(found, layers(x, w), atol=1e-5)
    graph, _ = changed(turn_images, layers, x.to(memory_format=INNERMOST), w)
    assert "clone" not in names(graph)


@pytest.mark.parametrize("inside", [False, True])
def test_what_is_done_to_turned_results_is_done_before(inside: bool) -> None:
    """Where the rest lies so, too: what a block of rows of pixels gives is added to an image."""

    def block(x: Any, w: Any) -> Any:
        rows = x.permute(0, 2, 3, 1).reshape(-1, 8) @ w
        turned = rows.view(2, 5, 7, 8).permute(0, 3, 1, 2)
        return functional.relu(x + turned) * 2

    x, w = torch.randn(2, 8, 5, 7), torch.randn(8, 8)
    x = x.to(memory_format=INNERMOST) if inside else x
    graph, found = changed(turn_last, block, x, w)
    wanted = block(x, w)
    assert torch.equal(found, wanted)
    assert found.stride() == wanted.stride()
    (part,) = parts(graph)
    assert (names(graph)[-1] == "permute") == inside
    assert len(part.inside) == (5 if inside else 2)


def test_what_two_read_stays_turned() -> None:
    def function(x: Any, w: Any) -> Any:
        turned = (x @ w).permute(1, 0)
        return turned * 2, turned + 1

    graph, found = changed(turn_last, function, torch.randn(4, 8), torch.randn(8, 8))
    assert names(graph) == ["mm", "permute", "mul", "add"]
    assert len(found) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_activations_that_no_region_has_are_taken_apart(dtype: Any) -> None:
    x = torch.randn(7, 9).to(dtype)

    def both(x: Any) -> Any:
        return functional.silu(functional.gelu(x)) + functional.gelu(x, approximate="tanh")

    assert not {torch.ops.aten.gelu.default, torch.ops.aten.silu.default} & {
        *whole.decompositions()
    }
    graph, found = changed(whole.taken_apart, both, x)
    assert not {"gelu", "silu", "_to_copy"} & {*names(graph)}, "Inductor has none of them"
    assert torch.allclose(found, both(x), atol=1e-6 if dtype == torch.float32 else 2e-3)


def product() -> RegionGraph:
    """A product, and its result added to a matrix."""
    kinds = [TensorType("float16", s) for s in ((64, 32), (32, 48), (64, 48))]
    nodes = (
        Node("aten.mm.default", (Ref(0), Ref(1)), (), kinds[2]),
        Node("aten.add.Tensor", (Ref(3), Ref(2)), (), kinds[2]),
    )
    return RegionGraph(tuple(kinds), nodes, (4,))


def test_what_torch_would_run_is_the_product_and_one_kernel() -> None:
    graph = product()
    given = [torch.randn(t.shape).half() for t in graph.inputs]
    multiply, behind = choice.stages(graph, given)
    assert torch.equal(multiply(), given[0] @ given[1])
    assert behind is not None
    assert behind().numel() == 64 * 48
    alone = RegionGraph(graph.inputs, graph.nodes[:1], (3,))
    assert choice.stages(alone, given)[1] is None


def test_a_kernel_that_inductor_has_anyway_counts_in_part() -> None:
    times = Times(ours=10.0, product=8.0, rest=4.0)
    assert times.torch(fused=False) == 12.0
    assert 8.0 < times.torch(fused=True) < 10.0


def test_times_are_kept_by_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "one GPU")
    asked: list[str] = []

    def measured(graph: RegionGraph, hints: Any) -> Times:
        asked.append(graph.key)
        return Times(1.0, 2.0, 0.5)

    monkeypatch.setattr(choice, "timed", measured)
    graph = product()
    path = tmp_path / f"{graph.key}.sm_90a.times"
    for text in ("", "[]", '{"one GPU": [1]}', '{"another": [3, 2, 1]}'):
        path.write_text(text)
        monkeypatch.setattr(choice, "_known", {})
        assert choice.times_of(graph, {}, "sm_90a", tmp_path) == Times(1.0, 2.0, 0.5)
    assert {*json.loads(path.read_text())} == {"one GPU", "another"}
    monkeypatch.setattr(choice, "_known", {})
    assert choice.times_of(graph, {}, "sm_90a", tmp_path) == Times(1.0, 2.0, 0.5)
    assert len(asked) == 4


def test_a_block_of_one_image_does_what_follows_its_sums() -> None:
    """Axes of one are read at the reader's own index, or the sums would be stored first."""

    def layer(x: Any, w: Any, scale: Any) -> Any:
        image, filters = x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2)
        sums = torch.ops.aten.convolution(
            image, filters, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1
        )
        return functional.relu(sums * scale).permute(0, 2, 3, 1)

    x, w = random(1, 32, 32, 64, dtype=torch.float16), random(64, 3, 3, 64, dtype=torch.float16)
    graph, symbols = region_of(layer, x, w, random(64, 1, 1, dtype=torch.float16))
    *_, layer_line, last = compile_region(graph, symbols.hints, TARGET)[1].splitlines()
    assert "a layer on tensor units" in layer_line
    assert last == "out0: in a kernel of its own, 256 threads a block"


def test_regions_compile_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "EACH", 1)
    graph = product()
    alone = Node("aten.mm.default", (Ref(0), Ref(1)), (), graph.inputs[2])
    other = RegionGraph(graph.inputs[:2], (alone,), (2,))
    store.prepare([(graph, {}), (other, {})], "sm_90a", tmp_path)
    for each in (graph, other):
        assert (tmp_path / f"{each.key}.sm_90a.kernel").exists()
    assert not report()
