"""Images to images: DnCNN, NAFNet, a generator of CycleGAN, a block of a diffusion U-Net."""

from __future__ import annotations

from typing import Any

import torch as installed

from casestudies.models.transformers import Attention

torch: Any = installed
nn: Any = torch.nn
functional: Any = torch.nn.functional


class Denoiser(nn.Module):
    """DnCNN: 3 x 3, norm, ReLU; the noise is taken off the image."""

    def __init__(self, channels: int = 64, layers: int = 17) -> None:
        super().__init__()
        inner: list[Any] = []
        for _ in range(layers - 2):
            inner += [nn.Conv2d(channels, channels, 3, padding=1, bias=False)]
            inner += [nn.BatchNorm2d(channels), nn.ReLU()]
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.inner = nn.Sequential(*inner)
        self.last = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return x - self.last(self.inner(functional.relu(self.first(x))))


class ChannelNorm(nn.Module):
    """Of each pixel over its channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1))

    def forward(self, x: Any) -> Any:
        middle = x.mean(1, keepdim=True)
        apart = x - middle
        spread = apart.square().mean(1, keepdim=True)
        return self.weight * (apart * torch.rsqrt(spread + 1e-6)) + self.bias


def gated(x: Any) -> Any:
    a, b = x.chunk(2, 1)
    return a * b


class NafBlock(nn.Module):
    """NAFNet's: a gate in the place of an activation, and attention of channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        c = channels
        self.norms = nn.ModuleList(ChannelNorm(c) for _ in range(2))
        self.wide, self.each = (
            nn.Conv2d(c, 2 * c, 1),
            nn.Conv2d(2 * c, 2 * c, 3, 1, 1, groups=2 * c),
        )
        self.scale, self.narrow = nn.Conv2d(c, c, 1), nn.Conv2d(c, c, 1)
        self.up, self.down = nn.Conv2d(c, 2 * c, 1), nn.Conv2d(c, c, 1)
        self.beta = nn.Parameter(torch.full((1, c, 1, 1), 0.1))
        self.gamma = nn.Parameter(torch.full((1, c, 1, 1), 0.1))

    def forward(self, x: Any) -> Any:
        y = gated(self.each(self.wide(self.norms[0](x))))
        y = y * self.scale(y.mean((2, 3), keepdim=True))
        x = x + self.narrow(y) * self.beta
        return x + self.down(gated(self.up(self.norms[1](x)))) * self.gamma


class NafNet(nn.Module):
    """NAFNet of width 32: blocks of four sizes down and up again."""

    def __init__(
        self, width: int = 32, down: tuple[int, ...] = (2, 2, 4, 8), middle: int = 12,
        up: tuple[int, ...] = (2, 2, 2, 2),
    ) -> None:  # fmt: skip
        super().__init__()

        def blocks(channels: int, count: int) -> Any:
            return nn.Sequential(*(NafBlock(channels) for _ in range(count)))

        self.first, self.last = nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, 3, 3, 1, 1)
        levels = [width << i for i in range(len(down))]
        self.down = nn.ModuleList(map(blocks, levels, down))
        self.smaller = nn.ModuleList(nn.Conv2d(c, 2 * c, 2, 2) for c in levels)
        self.middle = blocks(2 * levels[-1], middle)
        self.larger = nn.ModuleList(
            nn.Sequential(nn.Conv2d(2 * c, 4 * c, 1, bias=False), nn.PixelShuffle(2))
            for c in levels[::-1]
        )
        self.up = nn.ModuleList(map(blocks, levels[::-1], up))

    def forward(self, x: Any) -> Any:
        y, kept = self.first(x), []
        for blocks, smaller in zip(self.down, self.smaller, strict=True):
            kept.append(blocks(y))
            y = smaller(kept[-1])
        y = self.middle(y)
        for blocks, larger in zip(self.up, self.larger, strict=True):
            y = blocks(larger(y) + kept.pop())
        return x + self.last(y)


class Mirrored(nn.Module):
    """CycleGAN's residual block."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        pad, norm = nn.ReflectionPad2d(1), nn.InstanceNorm2d(channels)
        first, second = (nn.Conv2d(channels, channels, 3) for _ in range(2))
        self.inner = nn.Sequential(pad, first, norm, nn.ReLU(), pad, second, norm)

    def forward(self, x: Any) -> Any:
        return x + self.inner(x)


def generator(width: int = 64, blocks: int = 9) -> Any:
    """CycleGAN's for 256 x 256 pixels."""

    def closed(layer: Any, channels: int) -> list[Any]:
        return [layer, nn.InstanceNorm2d(channels), nn.ReLU()]

    layers: list[Any] = [nn.ReflectionPad2d(3), *closed(nn.Conv2d(3, width, 7), width)]
    for c in (width, 2 * width):
        layers += closed(nn.Conv2d(c, 2 * c, 3, 2, 1), 2 * c)
    layers += [Mirrored(4 * width) for _ in range(blocks)]
    for c in (4 * width, 2 * width):
        layers += closed(nn.ConvTranspose2d(c, c // 2, 3, 2, 1, output_padding=1), c // 2)
    return nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh())


class DiffusionBlock(nn.Module):
    """The first block of Stable Diffusion's U-Net: two layers, attention to itself, to a text of
    77 places, and a gated product. Time and text are constants of it.
    """

    def __init__(self, channels: int = 320, heads: int = 8, text: int = 768) -> None:
        super().__init__()
        c = channels
        self.norms = nn.ModuleList(nn.GroupNorm(32, c) for _ in range(3))
        self.layers = nn.ModuleList(nn.Conv2d(c, c, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(4 * c, c)
        self.into, self.out = nn.Linear(c, c), nn.Linear(c, c)
        self.rows = nn.ModuleList(nn.LayerNorm(c) for _ in range(3))
        self.own, self.cross = Attention(c, heads), Attention(c, heads, text)
        self.wide, self.narrow = nn.Linear(c, 8 * c), nn.Linear(4 * c, c)
        self.register_buffer("moment", torch.randn(1, 4 * c))
        self.register_buffer("words", torch.randn(1, 77, text))

    def forward(self, x: Any) -> Any:
        batch, c, height, width = x.shape
        y = self.layers[0](functional.silu(self.norms[0](x)))
        y = y + self.time(functional.silu(self.moment))[:, :, None, None]
        x = x + self.layers[1](functional.silu(self.norms[1](y)))
        z = self.into(self.norms[2](x).permute(0, 2, 3, 1).reshape(batch, height * width, c))
        z = z + self.own(self.rows[0](z))
        z = z + self.cross(self.rows[1](z), self.words.expand(batch, -1, -1))
        a, gate = self.wide(self.rows[2](z)).chunk(2, -1)
        z = z + self.narrow(a * functional.gelu(gate))
        return x + self.out(z).view(batch, height, width, c).permute(0, 3, 1, 2)
