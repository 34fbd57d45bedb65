"""Ready-made operators with the arguments of torch's and torchvision's functions.

Each makes its operator (``halide_bridge.operators``) at the first call with a dtype (and a size of
window), for the GPU at hand; ``use`` has them read from files instead, which ``save`` has written,
on a machine without Halide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch as installed  # pyright: ignore

from selector.diagnostics import ArgumentError
from selector.interop.operator import Operator, ready
from selector.interop.torch import TorchOp, torch_op

torch: Any = installed
_settings: dict[str, Any] = {"target": "cuda", "cpu": "refuse", "folder": None}
_made: dict[str, TorchOp] = {}


def softmax(input: Any, dim: int = -1) -> Any:  # noqa: A002 - torch's name
    """As ``torch.softmax``: float32, float16 or bfloat16, along any axis."""
    op = _operator("softmax", input.dtype)
    if dim in (-1, input.dim() - 1):
        return op(input)
    return op(input.movedim(dim, -1)).movedim(-1, dim)


def rms_norm(
    input: Any,  # noqa: A002 - torch's name
    normalized_shape: Sequence[int],
    weight: Any = None,
    eps: float | None = None,
) -> Any:
    """As ``torch.nn.functional.rms_norm``."""
    shape = tuple(normalized_shape)
    axes = len(shape)
    if not axes or tuple(input.shape[-axes:]) != shape:
        raise ArgumentError(
            f"normalized_shape is {shape}, and the last axes of input are "
            f"{tuple(input.shape[-axes:])}"
        )
    flat = input.flatten(-axes)
    known = flat.new_ones(flat.shape[-1]) if weight is None else weight.flatten()
    limit = torch.finfo(input.dtype).eps if eps is None else eps
    return _operator("rms_norm", input.dtype)(flat, known, float(limit)).view(input.shape)


def gaussian_blur(
    img: Any, kernel_size: int | Sequence[int], sigma: float | Sequence[float] | None = None
) -> Any:
    """As ``torchvision.transforms.functional.gaussian_blur`` on a tensor of floats: odd sizes and
    deviations along x and y, the image mirrored beyond its edges. No gradient.
    """
    sizes = _pair(kernel_size, int)
    given = [0.15 * n + 0.35 for n in sizes] if sigma is None else _pair(sigma, float)
    if any(n < 1 or n % 2 == 0 for n in sizes) or any(s <= 0 for s in given):
        raise ArgumentError(
            f"kernel_size={sizes} and sigma={tuple(given)}",
            why="sizes of a window are odd, and deviations more than 0",
        )
    across, down = (_bell(n, s, img) for n, s in zip(sizes, given, strict=True))
    return _operator("separable_filter", img.dtype, sizes[1], sizes[0])(img, across, down)


def filter_2d(img: Any, taps: Any, boundary: str = "reflect") -> Any:
    """The correlation of each plane with a window (height, width) around each pixel; beyond the
    edges lie zeros (``"zero"``, with a gradient of the image), the last pixels (``"edge"``) or the
    image mirrored (``"reflect"``).
    """
    if taps.dim() != 2:
        raise ArgumentError(
            f"taps: expected a window (height, width), its shape is {tuple(taps.shape)}"
        )
    height, width = taps.shape
    return _operator("filter_2d", img.dtype, height, width, boundary=boundary)(img, taps)


def unsharp_mask(
    img: Any, kernel_size: int, sigma: float | None = None, amount: float = 1.0
) -> Any:
    """``img + amount * (img - gaussian_blur(img, kernel_size, sigma))``, in one go. No gradient."""
    taps = _bell(kernel_size, 0.15 * kernel_size + 0.35 if sigma is None else sigma, img)
    op = _operator("unsharp", img.dtype, kernel_size, kernel_size)
    return op(img, taps, taps, float(amount))


def use(folder: str | Path | None = None, *, target: str = "cuda", cpu: str = "refuse") -> None:
    """Where operators that are not there yet come from: files of ``folder``, if it has them, else
    compiled for ``target``; ``cpu`` as in ``torch_op``.
    """
    _settings.update(folder=None if folder is None else Path(folder), target=target, cpu=cpu)


def save(folder: str | Path) -> None:
    """Write the kernels of all operators that have been made, for ``use`` elsewhere."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, op in _made.items():
        op.kernel.save(folder / f"{name}.kernel", overwrite=True)
        if op.backward is not None:
            op.backward.save(folder / f"{name}.backward.kernel", overwrite=True)


def _operator(name: str, dtype: Any, *sizes: int, **named: str) -> TorchOp:
    parts = (name, str(dtype).removeprefix("torch."), *map(str, sizes), *named.values())
    full = "_".join(parts)
    found = _made.get(full)
    if found is None:
        folder = _settings["folder"]
        if folder is not None and (folder / f"{full}.kernel").exists():
            back = folder / f"{full}.backward.kernel"
            made = ready(name, folder / f"{full}.kernel", back if back.exists() else None)
        else:
            made = _pipelines(name, sizes, parts[1], named)
        options = {"target": _settings["target"], "cpu": _settings["cpu"]}
        found = _made[full] = torch_op(f"tensor_selector::{full}", made, **options)
    return found


def _pipelines(name: str, sizes: Sequence[int], dtype: str, named: Mapping[str, str]) -> Operator:
    from halide_bridge import operators

    return getattr(operators, name)(*sizes, dtype=dtype, **named)


def _pair(value: Any, kind: type) -> tuple[Any, Any]:
    """Along x and y, of one number or two."""
    values = (value,) if isinstance(value, (int, float)) else tuple(value)
    return kind(values[0]), kind(values[-1])


def _bell(size: int, sigma: float, like: Any) -> Any:
    """A window of a normal distribution, as torchvision makes it."""
    half = (size - 1) / 2
    places = torch.linspace(-half, half, size, device=like.device, dtype=torch.float32)
    heights = torch.exp(-0.5 * (places / sigma) ** 2)
    return (heights / heights.sum()).to(like.dtype)
