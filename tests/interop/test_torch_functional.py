"""Ready-made operators with torch's and torchvision's arguments, in the interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from selector.diagnostics import ArgumentError

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra `torch`)")

from selector.interop import functional  # noqa: E402 - after the skip

pytestmark = pytest.mark.verified


@pytest.fixture(autouse=True)
def here() -> Iterator[None]:
    functional.use(target="sm_90a", cpu="interpret")
    yield
    functional.use()


def random(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def blurred(image: Any, across: Any, down: Any) -> Any:
    a, b = across.numel() // 2, down.numel() // 2
    planes = image.reshape(-1, 1, *image.shape[-2:])
    planes = torch.nn.functional.pad(planes, (a, a, b, b), mode="reflect")
    planes = torch.nn.functional.conv2d(planes, across[None, None, None])
    return torch.nn.functional.conv2d(planes, down[None, None, :, None]).reshape(image.shape)


def bell(size: int, sigma: float) -> Any:
    places = torch.arange(size) - size // 2
    heights = torch.exp(-(places**2) / (2 * sigma**2))
    return heights / heights.sum()


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_softmax_along_any_axis() -> None:
    a = random(3, 4, 9)
    for dim in (0, 1, 2, -1):
        close(functional.softmax(a, dim), a.softmax(dim))


def test_rms_norm_over_several_axes() -> None:
    a, weight, plain = random(3, 4, 9), random(4, 9), torch.nn.functional.rms_norm
    close(functional.rms_norm(a, (9,)), plain(a, (9,)))
    close(functional.rms_norm(a, (4, 9), weight, 1e-3), plain(a, (4, 9), weight, 1e-3))
    with pytest.raises(ArgumentError, match=r"normalized_shape is \(8,\)"):
        functional.rms_norm(a, (8,))


def test_gaussian_blur() -> None:
    image = random(2, 3, 12, 14)
    close(functional.gaussian_blur(image, 5), blurred(image, bell(5, 1.1), bell(5, 1.1)))
    found = functional.gaussian_blur(image, [3, 7], [0.8, 2.0])
    close(found, blurred(image, bell(3, 0.8), bell(7, 2.0)))
    for size, sigma in [(4, None), (3, 0.0), ((3, 2), None)]:
        with pytest.raises(ArgumentError, match="kernel_size"):
            functional.gaussian_blur(image, size, sigma)


def test_filters_and_unsharp_masks() -> None:
    image, taps = random(3, 12, 14), random(3, 5)
    wanted = torch.nn.functional.conv2d(image[:, None], taps[None, None], padding=(1, 2))[:, 0]
    close(functional.filter_2d(image, taps, "zero"), wanted)
    with pytest.raises(ArgumentError, match=r"expected a window .*, its shape is \(5,\)"):
        functional.filter_2d(image, taps[0])
    found = functional.unsharp_mask(image, 3, 1.0, amount=0.5)
    close(found, image + 0.5 * (image - blurred(image, bell(3, 1.0), bell(3, 1.0))))


@pytest.mark.nvrtc
def test_operators_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = random(4, 9).half()
    functional.softmax(a)
    name = "softmax_float16"
    monkeypatch.setattr(functional, "_made", {name: functional._made[name]})
    functional.save(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {f"{name}.kernel", f"{name}.backward.kernel"}
    made: list[Any] = []

    def noted(name: str, operator: Any, **options: Any) -> Any:
        made.append(operator)
        return lambda *args: name

    monkeypatch.setattr(functional, "_made", {})
    monkeypatch.setattr(functional, "torch_op", noted)
    functional.use(tmp_path)
    assert functional.softmax(a) == f"tensor_selector::{name}"
    assert (made[0].kernel, made[0].shape) == (tmp_path / f"{name}.kernel", "scores")
    assert made[0].backward == tmp_path / f"{name}.backward.kernel"
