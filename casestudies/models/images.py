"""Classifiers of images: ResNet-50, MobileNetV2, ViT-B/16, and ResNet-18 in int8."""

from __future__ import annotations

from typing import Any

import torch as installed

from casestudies.models.transformers import Block

torch: Any = installed
nn: Any = torch.nn
functional: Any = torch.nn.functional


def normed(inputs: int, outputs: int, taps: int, stride: int = 1, groups: int = 1) -> list[Any]:
    """A convolution that keeps the pixels, without a bias, and its norm."""
    layer = nn.Conv2d(inputs, outputs, taps, stride, padding=taps // 2, groups=groups, bias=False)
    return [layer, nn.BatchNorm2d(outputs)]


class Residual(nn.Module):
    """What is added to its input, which is fitted where sizes differ, then a ReLU."""

    def __init__(self, inner: list[Any], inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(*inner)
        inner[-1].weight.data.fill_(0.3)  # or sums of many would grow
        fits = stride == 1 and inputs == outputs
        self.fitted = nn.Identity() if fits else nn.Sequential(*normed(inputs, outputs, 1, stride))

    def forward(self, x: Any) -> Any:
        return functional.relu(self.inner(x) + self.fitted(x))


def bottleneck(inputs: int, inner: int, stride: int) -> Any:
    layers = [*normed(inputs, inner, 1), nn.ReLU(), *normed(inner, inner, 3, stride), nn.ReLU()]
    return Residual([*layers, *normed(inner, 4 * inner, 1)], inputs, 4 * inner, stride)


def basic(inputs: int, inner: int, stride: int) -> Any:
    layers = [*normed(inputs, inner, 3, stride), nn.ReLU(), *normed(inner, inner, 3)]
    return Residual(layers, inputs, inner, stride)


def resnet(block: Any, counts: tuple[int, ...], expansion: int) -> Any:
    layers: list[Any] = [*normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, count in enumerate(counts):
        inner = 64 << stage
        for i in range(count):
            layers.append(block(inputs, inner, 2 if stage and not i else 1))
            inputs = inner * expansion
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def resnet50() -> Any:
    return resnet(bottleneck, (3, 4, 6, 3), 4)


def resnet18() -> Any:
    return resnet(basic, (2, 2, 2, 2), 1)


class Inverted(nn.Module):
    """MobileNetV2's: channels widened, filtered one by one, and narrowed."""

    def __init__(self, inputs: int, outputs: int, stride: int, factor: int) -> None:
        super().__init__()
        inner = inputs * factor
        wide = [] if factor == 1 else [*normed(inputs, inner, 1), nn.ReLU6()]
        each = [*normed(inner, inner, 3, stride, inner), nn.ReLU6()]
        self.layers = nn.Sequential(*wide, *each, *normed(inner, outputs, 1))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Any) -> Any:
        return x + self.layers(x) if self.adds else self.layers(x)


def mobilenet() -> Any:
    layers, inputs = [*normed(3, 32, 3, 2), nn.ReLU6()], 32
    plan = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
            (6, 160, 3, 2), (6, 320, 1, 1)]  # fmt: skip
    for factor, outputs, count, stride in plan:
        for i in range(count):
            layers.append(Inverted(inputs, outputs, stride if not i else 1, factor))
            inputs = outputs
    layers += [*normed(inputs, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(1280, 1000))


class VisionTransformer(nn.Module):
    """ViT-B/16 of 224 x 224 pixels."""

    def __init__(self, width: int = 768, heads: int = 12, count: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 197, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, eps=1e-6) for _ in range(count)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 1000)

    def forward(self, x: Any) -> Any:
        found = self.patches(x).flatten(2).transpose(1, 2)
        found = torch.cat([self.first.expand(x.shape[0], -1, -1), found], 1) + self.places
        return self.head(self.norm(self.blocks(found))[:, 0])
