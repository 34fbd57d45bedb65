"""Models under ``torch.compile(backend="tensor_selector")``: against eager, in the interpreter."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")

from torch_compiled import compiled  # noqa: E402 - after the skip

from selector.diagnostics import ArgumentError, ArtifactError  # noqa: E402
from selector.interop.regions import store  # noqa: E402
from selector.interop.regions.graph import from_text  # noqa: E402
from selector.interop.torch_backend import report  # noqa: E402
from selector.interop.torch_backend.grow import parts  # noqa: E402
from selector.interop.torch_backend.library import REGION, readable  # noqa: E402
from selector.interop.torch_backend.region import Region  # noqa: E402
from selector.interop.torch_backend.report import reports  # noqa: E402
from selector.runtime import arguments  # noqa: E402

make_fx = torch.fx.experimental.proxy_tensor.make_fx
pytestmark = [pytest.mark.usefixtures("anew"), pytest.mark.verified]
nn, functional = torch.nn, torch.nn.functional
F16, BF16 = torch.float16, torch.bfloat16
# Of the norm: what eager itself is away from float32 at these depths, and a little.
TOLERANCE = {F16: 1e-3, BF16: 8e-3}


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(24, 40), nn.Linear(40, 24)

    def forward(self, x: Any) -> Any:
        return x + self.second(functional.gelu(self.first(x)))


class Layer(nn.Module):
    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.layer = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.norm.running_mean.normal_(0, 0.1)
        self.norm.running_var.uniform_(0.5, 1.5)

    def forward(self, x: Any) -> Any:
        return functional.relu(self.norm(self.layer(x))) + x


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 3, 3, padding=1)
        self.inner = nn.Sequential(Layer(), Layer())

    def forward(self, x: Any) -> Any:
        return x - self.last(self.inner(functional.relu(self.first(x))))


class Block(nn.Module):
    """Of an encoder, norms first."""

    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(32), nn.LayerNorm(32)
        self.of, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.wide, self.narrow = nn.Linear(32, 64), nn.Linear(64, 32)
        self.causal = causal

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = self.of(self.before(x)).view(batch, length, 3, 2, 16).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3, 1 x 1 with norms, around a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow, self.inner = nn.Conv2d(32, 16, 1, bias=False), Layer()
        self.wide, self.norm = nn.Conv2d(16, 32, 1), nn.BatchNorm2d(32)
        self.norm.running_mean.normal_(0, 0.1)

    def forward(self, x: Any) -> Any:
        found = self.inner(functional.relu(self.narrow(x)))
        return functional.relu(x + self.norm(self.wide(found)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("regions")


def near(found: Any, wanted: Any, tolerance: float) -> None:
    assert found.shape == wanted.shape
    assert float((found.float() - wanted).norm()) <= tolerance * float(wanted.norm())


MODELS: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "perceptron": (Perceptron, (33, 24), 2),
    "perceptron of rows in batches": (Perceptron, (3, 7, 24), 2),
    "layer": (Layer, (2, 16, 9, 7), 1),
    "denoiser": (Denoiser, (1, 3, 10, 11), 3),
    "bottleneck": (Bottleneck, (2, 32, 5, 7), 3),
    "encoder": (Block, (2, 9, 32), 5),
}


@pytest.mark.parametrize("dtype", [F16, BF16], ids=["f16", "bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, dtype: Any, folder: Path) -> None:
    make, shape, at_least = MODELS[name]
    if dtype == BF16 and name == "denoiser":
        pytest.skip("the same layers as in f16, and slow")
    model, x = make().eval(), torch.randn(shape).to(dtype)
    exact = make().eval()
    exact.load_state_dict(model.to(dtype).state_dict())
    if len(shape) == 4:
        model = model.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    with torch.no_grad():
        eager, wanted = model(x), exact.float()(x.float())
        found = compiled(model, folder)(x)
    near(found, wanted, TOLERANCE[dtype])
    assert found.dtype == dtype
    assert found.stride() == eager.stride()
    (graph,) = reports()
    assert len(graph.taken) >= at_least, str(graph)
    assert all(r.instructions for r in graph.taken)


def test_images_with_channels_outside(folder: Path) -> None:
    model, x = Layer().eval().half(), torch.randn(1, 16, 7, 9).half()
    with torch.no_grad():
        found = compiled(model, folder, take="all")(x)
        near(found, model.float()(x.float()), TOLERANCE[F16])
    assert found.is_contiguous()
    assert len(reports()[0].taken) == 1


def test_sizes_that_are_open(folder: Path) -> None:
    """One graph, one region a product, for all sizes of a batch."""
    model = Perceptron().eval().half()
    run = compiled(model, folder, dynamic=True)
    exact = Perceptron().eval()
    exact.load_state_dict(model.state_dict())
    with torch.no_grad():
        for rows in (33, 50, 7):
            x = torch.randn(rows, 24).half()
            near(run(x), exact(x.float()), TOLERANCE[F16])
    (graph,) = reports()
    assert [r.graph.symbols.keys() for r in graph.taken if r.graph] == [{"s0"}] * 2


def test_pixels_whose_number_is_open(folder: Path) -> None:
    model = Bottleneck().eval().half().to(memory_format=torch.channels_last)
    exact = Bottleneck().eval()
    exact.load_state_dict(model.state_dict())
    run = compiled(model, folder, dynamic=True)
    with torch.no_grad():
        for shape in ((2, 32, 5, 7), (3, 32, 9, 6)):
            x = torch.randn(shape).half().to(memory_format=torch.channels_last)
            near(run(x), exact(x.float()), TOLERANCE[F16])
    (graph,) = reports()
    assert len(graph.taken) == 3, str(graph)


def test_rows_in_batches_that_are_open(folder: Path) -> None:
    model = Block().eval().half()
    exact = Block().eval()
    exact.load_state_dict(model.state_dict())
    run = compiled(model, folder, dynamic=True)
    with torch.no_grad():
        for shape in ((2, 9, 32), (3, 14, 32)):
            x = torch.randn(shape).half()
            near(run(x), exact(x.float()), TOLERANCE[F16])
    (graph,) = reports()
    assert len(graph.taken) == 5, str(graph)


def test_training(folder: Path) -> None:
    """Products of the backward graph are regions as well."""
    model, x = Perceptron().half(), torch.randn(33, 24).half()
    exact = Perceptron()
    exact.load_state_dict(model.state_dict())
    weight = torch.randn(33, 24)
    (compiled(model, folder)(x) * weight.half()).sum().backward()
    (exact(x.float()) * weight.half().float()).sum().backward()
    for p, q in zip(model.parameters(), exact.parameters(), strict=True):
        near(p.grad, q.grad, 3e-3)
    forward, backward = reports()
    assert len(forward.taken) == 2
    assert len(backward.taken) >= 3, str(backward)


def test_what_is_left_to_torch_is_named(folder: Path) -> None:
    model, x = Perceptron().eval(), torch.randn(5, 24)
    with torch.no_grad():
        near(compiled(model, folder)(x), model(x), 1e-6)
        assert "left to torch: no tensor instruction multiplies float32" in report(clear=True)
        torch.compiler.reset()
        near(compiled(model, folder, cpu="leave")(x), model(x), 1e-6)
        assert "addmm + gelu: left to torch: on the CPU" in report(clear=True)
        torch.compiler.reset()
        near(compiled(model, folder, take="all")(x), model(x), 1e-5)
        assert report().count("threads") >= 2
        report(clear=True)


def test_causal_attention_is_one_loop_over_keys(folder: Path) -> None:
    block, x = Block(causal=True).eval().half(), torch.randn(2, 9, 32).half()
    with torch.no_grad():
        near(compiled(block, folder)(x), block.float()(x.float()), TOLERANCE[F16])
    assert "keys at a time" in report()


def test_attention_whose_scores_would_be_stored_is_left(folder: Path) -> None:
    """No schedule in one loop has 512 channels: as products alone it would be slower."""

    class Attention(nn.Module):
        def forward(self, x: Any) -> Any:
            return functional.scaled_dot_product_attention(x, x, x)

    x = torch.randn(2, 3, 37, 512).half()
    with torch.no_grad():
        near(compiled(Attention(), folder)(x), Attention()(x.float()), TOLERANCE[F16])
    assert "its scores would be stored" in report()


@pytest.mark.parametrize("heads_between", [False, True])
def test_attention_reads_its_operands_as_they_lie(folder: Path, heads_between: bool) -> None:
    """Any number of channels; of heads between channels and places no copy is made."""

    class Attention(nn.Module):
        def forward(self, *given: Any) -> Any:
            turned = (x.transpose(1, 2) if heads_between else x for x in given)
            return functional.scaled_dot_product_attention(*turned)

    shape = (2, 37, 3, 40) if heads_between else (2, 3, 37, 40)
    given = [torch.randn(shape).half() for _ in "qkv"]
    with torch.no_grad():
        near(
            compiled(Attention(), folder)(*given),
            Attention()(*(x.float() for x in given)),
            TOLERANCE[F16],
        )
    (region,) = reports()[0].taken
    assert region.graph is not None
    kernel = store.found(region.graph.key).kernel
    assert kernel is not None
    seen = [x.transpose(1, 2) if heads_between else x for x in given]
    buffers = arguments.inputs_of(kernel.plan)
    assert all(readable(b, x) is x for b, x in zip(buffers, seen, strict=True))


@pytest.mark.parametrize("channels", [16, 3])
def test_a_strided_layer_is_taken_but_not_to_copy_few_pixels(folder: Path, channels: int) -> None:
    """Three channels are copied to more before, which a launch is not worth for so few."""
    model = nn.Conv2d(channels, 8, 3, stride=2).eval().half().to(memory_format=torch.channels_last)
    x = torch.randn(1, channels, 9, 9).half().to(memory_format=torch.channels_last)
    with torch.no_grad():
        near(compiled(model, folder)(x), model.float()(x.float()), TOLERANCE[F16])
    (region,) = reports()[0].regions
    assert region.taken == (channels == 16)
    assert region.taken or "it is too short to have its image copied" in str(region)


def test_filters_of_one_tap_are_read_as_they_lie(folder: Path) -> None:
    """Their channels lie side by side, whichever order torch says their axes have."""
    model = nn.Conv2d(64, 32, 1, stride=2).eval().half().to(memory_format=torch.channels_last)
    x = torch.randn(1, 64, 18, 18).half().to(memory_format=torch.channels_last)
    with torch.no_grad():
        near(compiled(model, folder)(x), model.float()(x.float()), TOLERANCE[F16])
    (region,) = reports()[0].taken
    assert region.graph is not None
    kernel = store.found(region.graph.key).kernel
    assert kernel is not None
    assert [launch.entry for launch in kernel.plan.launches] == ["kernel_out0"]


def test_the_report(folder: Path) -> None:
    model, x = Perceptron().eval().half(), torch.randn(33, 24).half()
    with torch.no_grad():
        compiled(model, folder)(x)
    lines = report().splitlines()
    assert lines[0] == "graph 0"
    assert lines[1].startswith(
        "region 0: addmm + gelu (float16[40] float16[33, 24] float16[40, 24] "
        "-> float16[33, 40]): tensor units by "
    )
    assert lines[2].startswith("    product: on tensor units by ")


def test_torchs_own_checks_of_the_operator(folder: Path) -> None:
    model, x = nn.Linear(24, 40).half(), torch.randn(33, 24).half()
    with torch.no_grad():
        compiled(model, folder)(x)
    (region,) = reports()[0].taken
    assert region.graph is not None
    given = [model.bias.detach(), x, model.weight.detach()]
    found = torch.library.opcheck(REGION, (region.graph.key, given))
    assert set(found.values()) == {"SUCCESS"}
    assert from_text(region.graph.text) == region.graph


def test_a_key_follows_from_what_is_computed() -> None:
    """Not from the order in which a graph has it."""

    def first(x: Any, w: Any, a: Any, b: Any) -> Any:
        scale, shift = a.float() * 2, b.float() + 1
        return (x @ w * scale + shift).half()

    def second(x: Any, w: Any, a: Any, b: Any) -> Any:
        shift = b.float() + 1
        return (x @ w * (a.float() * 2) + shift).half()

    given = [torch.randn(s).half() for s in ((64, 16), (16, 24), (24,), (24,))]
    keys: list[str] = []
    for function in (first, second):
        graph = make_fx(function, tracing_mode="fake")(*given).graph
        (part,) = parts(graph)
        assert len(part.small) == 4
        keys.append(Region(part).graph.key)
    assert keys[0] == keys[1]


def test_regions_are_carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Halide leaves regions in a folder; with their kernels it takes them."""
    from selector.interop.regions.__main__ import main

    model, x = nn.Linear(16, 48).half(), torch.randn(20, 16).half()
    exact = nn.Linear(16, 48)
    exact.load_state_dict(model.state_dict())
    options = {"cpu": "reference"}
    with torch.no_grad(), monkeypatch.context() as without:
        without.setattr(store, "can_compile", lambda: False)
        near(compiled(model, tmp_path, **options)(x), exact(x.float()), TOLERANCE[F16])
        assert "no kernel in the folder of regions" in report(clear=True)
    assert [p.suffix for p in tmp_path.iterdir()] == [".json"]
    assert main([str(tmp_path), "--target", "sm_90a"]) == 0
    with torch.no_grad(), monkeypatch.context() as without:
        without.setattr(store, "can_compile", lambda: False)
        without.setattr(store, "_known", {})
        torch.compiler.reset()
        near(compiled(model, tmp_path, **options)(x), exact(x.float()), TOLERANCE[F16])
        assert len(reports()[0].taken) == 1
        key = reports()[0].taken[0].graph.key
        without.setattr(store, "_known", {})  # as in the next process, by a graph that torch kept
        without.setattr(store, "_folders", {})
        store.use(tmp_path)
        assert store.found(key).graph.key == key
        with pytest.raises(ArtifactError, match="no region"):
            store.found("0" * 32)


@pytest.mark.slow
def test_inductor_runs_the_rest(folder: Path) -> None:
    model, x = Block().eval().half(), torch.randn(2, 9, 32).half()
    exact = Block().eval()
    exact.load_state_dict(model.state_dict())
    with torch.no_grad():
        found = compiled(model, folder, rest="inductor")(x)
        near(found, exact(x.float()), TOLERANCE[F16])
    assert len(reports()[0].taken) == 5, report()


def test_options_are_checked(folder: Path) -> None:
    for wrong, message in (({"tune": 1}, "no option 'tune'"), ({"take": "some"}, "take='some'")):
        with pytest.raises(Exception, match=message) as caught:
            compiled(nn.Linear(2, 2), folder, **wrong)(torch.ones(1, 2))
        assert isinstance(caught.value.__cause__ or caught.value, (ArgumentError, Exception))


def test_the_entry_point() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    module, name = project["project"]["entry-points"]["torch_dynamo_backends"][
        "tensor_selector"
    ].split(":")
    assert callable(getattr(import_module(module), name))
    assert "tensor_selector" in torch._dynamo.list_backends()
