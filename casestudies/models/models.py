"""The models, with random weights, and an input of each. f16, without gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch as installed

torch: Any = installed
nn: Any = torch.nn
functional: Any = torch.nn.functional


class Perceptron(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Any) -> Any:
        return x + self.second(functional.gelu(self.first(x)))


class Block(nn.Module):
    """A block of an encoder, norms first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.of, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.of(self.before(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Denoiser(nn.Module):
    """DnCNN's layers: 3 x 3, norm, ReLU; the noise is taken off the image."""

    def __init__(self, channels: int, layers: int) -> None:
        super().__init__()
        inner = []
        for _ in range(layers - 2):
            inner += [nn.Conv2d(channels, channels, 3, padding=1, bias=False)]
            inner += [nn.BatchNorm2d(channels), nn.ReLU()]
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.inner = nn.Sequential(*inner)
        self.last = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return x - self.last(self.inner(functional.relu(self.first(x))))


class Bottleneck(nn.Module):
    """ResNet's: 1 x 1, 3 x 3, 1 x 1, each with its norm, around a residual."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            [
                nn.Conv2d(channels, inner, 1, bias=False),
                nn.Conv2d(inner, inner, 3, padding=1, bias=False),
                nn.Conv2d(inner, channels, 1, bias=False),
            ]
        )
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in (inner, inner, channels))

    def forward(self, x: Any) -> Any:
        (a, b, c), (p, q, r) = self.convolutions, self.norms
        found = functional.relu(q(b(functional.relu(p(a(x))))))
        return functional.relu(x + r(c(found)))


def stack(make: Callable[..., Any], count: int, *sizes: int) -> Any:
    return nn.Sequential(*(make(*sizes) for _ in range(count)))


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    make: Callable[[], Any]
    shape: tuple[int, ...]

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 4

    def build(self, device: str, dtype: Any) -> tuple[Any, Any]:
        """The model and an input, the same on each device."""
        torch.manual_seed(0)
        model = self.make().eval().requires_grad_(False)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.3, 0.6)
        x = torch.randn(self.shape)
        model, x = model.to(device, dtype), x.to(device, dtype)
        if self.is_image:
            model = model.to(memory_format=torch.channels_last)
            x = x.to(memory_format=torch.channels_last)
        return model, x


MODELS = (
    Model("MLP, 4 x 1024-4096-1024", lambda: stack(Perceptron, 4, 1024, 4096), (2048, 1024)),
    Model("encoder, 4 blocks of ViT-B", lambda: stack(Block, 4, 768, 12), (8, 197, 768)),
    Model("DnCNN, 17 layers of 64", lambda: Denoiser(64, 17), (1, 3, 512, 512)),
    Model("ResNet, 3 blocks of 256-64", lambda: stack(Bottleneck, 3, 256, 64), (32, 256, 56, 56)),
)
