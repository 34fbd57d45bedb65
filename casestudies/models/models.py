"""The models, with random weights, and inputs. Channels lie innermost where there are pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch as installed

from casestudies.models import images, restoration, transformers
from casestudies.models.quantised import quantised

torch: Any = installed
nn: Any = torch.nn


@dataclass(frozen=True, slots=True)
class Model:
    """``shape``: of one input, without the batch. ``words``: how many there are, where its inputs
    are numbers of words. ``restores``: it makes images of images. ``quantised``: in any type but
    float32 it is one of bytes, which takes and gives float32; that needs ``torchao``.
    """

    name: str
    make: Callable[[], Any]
    shape: tuple[int, ...]
    words: int = 0
    restores: bool = False
    quantised: bool = False

    @property
    def missing(self) -> str:
        """The package that it needs and that is not here; empty if it can be built."""
        return "torchao" if self.quantised and find_spec("torchao") is None else ""

    def build(self, device: str, dtype: Any, batch: int = 1) -> Any:
        """The model, the same on each device, for any batch, but if it is quantised."""
        torch.manual_seed(0)
        model = self.make().eval().requires_grad_(False)
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.8, 1.2)
        if self.quantised and dtype != torch.float32:
            model = model.to(device, memory_format=torch.channels_last)
            with torch.no_grad():
                return quantised(model, self.inputs(batch, device, dtype))
        model = model.to(device, dtype)
        return model.to(memory_format=torch.channels_last) if len(self.shape) == 3 else model

    def inputs(self, batch: int, device: str, dtype: Any, seed: int = 0) -> Any:
        generator = torch.Generator().manual_seed(seed)
        shape = (batch, *self.shape)
        if self.words:
            return torch.randint(self.words, shape, generator=generator).to(device)
        dtype = torch.float32 if self.quantised else dtype
        x = torch.randn(shape, generator=generator).to(device, dtype)
        return x.to(memory_format=torch.channels_last) if len(self.shape) == 3 else x


MODELS = (
    Model("ResNet-50", images.resnet50, (3, 224, 224)),
    Model("ResNet-18-int8", images.resnet18, (3, 224, 224), quantised=True),
    Model("MobileNetV2", images.mobilenet, (3, 224, 224)),
    Model("ViT-B-16", images.VisionTransformer, (3, 224, 224)),
    Model("BERT-base", transformers.Bert, (128,), 30522),
    Model("GPT-2", transformers.Gpt, (512,), 50257),
    Model("U-Net-block", restoration.DiffusionBlock, (320, 64, 64)),
    Model("CycleGAN", restoration.generator, (3, 256, 256), restores=True),
    Model("DnCNN", restoration.Denoiser, (3, 256, 256), restores=True),
    Model("NAFNet", restoration.NafNet, (3, 256, 256), restores=True),
)


def model_of(name: str) -> Model:
    return next(m for m in MODELS if m.name == name)
