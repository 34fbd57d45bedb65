"""Models by the backend without a GPU: regions are interpreted, the rest runs eagerly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from selector.interop.torch_backend import report


def compiled(model: Any, folder: Path | None = None, *, dynamic: bool | None = None,
             fullgraph: bool = True, **options: Any) -> Any:  # fmt: skip
    given = {"cpu": "interpret", "rest": "eager", "folder": folder, "target": "sm_90a", **options}
    return torch.compile(
        model, backend="tensor_selector", fullgraph=fullgraph, dynamic=dynamic, options=given
    )


@pytest.fixture
def anew() -> Iterator[None]:
    """The same random numbers, nothing compiled, an empty report."""
    torch.manual_seed(0)
    torch.compiler.reset()
    report(clear=True)
    yield
    report(clear=True)
