"""The compiler's schedule for a problem of a case study."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from halide_bridge import autoschedule


def scheduled(output: Any, arrays: Iterable[Any], target: str) -> Any:
    """The output, with the directives that it gets at the sizes of its arrays."""
    autoschedule(output, target=target, sizes={a.name: a.shape for a in arrays})
    return output
