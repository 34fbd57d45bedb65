"""What a ready-made operator consists of, as pipelines, kernels or paths of saved ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Operator:
    """What ``interop.torch.torch_op`` takes, by its names."""

    kernel: Any
    backward: Any = None
    shape: str | Callable[..., Any] | None = None
    batched: tuple[str, ...] = ()
