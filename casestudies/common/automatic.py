"""The compiler's schedule for a problem of a case study."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from halide_bridge import autoschedule
from selector.targets import Target


def scheduled(
    output: Any,
    arrays: Iterable[Any],
    target: str | Target,
    tilings: Mapping[str, Any] | None = None,
) -> Any:
    """The output, with the directives that it gets at the sizes of its arrays; ``tilings``: of sums
    that have theirs, by name.
    """
    sizes = {a.name: a.shape for a in arrays}
    autoschedule(output, target=target, sizes=sizes, tilings=tilings)
    return output
