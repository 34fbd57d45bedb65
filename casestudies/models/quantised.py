"""Models in int8, by PT2E of ``torchao``: activations are unsigned bytes with a scale and a zero
point, weights signed ones with a scale a channel; between them is float32.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch as installed

torch: Any = installed


def quantised(model: Any, example: Any) -> Any:
    """The model, quantised by what it does with an input. Its weights are bytes, and on the device
    of the example. ``ImportError`` without ``torchao``.
    """
    pt2e: Any = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
    room = "torchao.quantization.pt2e.quantizer.x86_inductor_quantizer"
    x86: Any = importlib.import_module(room)
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    exported = torch.export.export(model, (example,), strict=True).module()
    prepared = pt2e.prepare_pt2e(exported, quantizer)
    prepared(example)
    return pt2e.convert_pt2e(prepared)
