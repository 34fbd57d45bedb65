"""Timing kernels that were built elsewhere: no Halide, no rules, no compiler."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from selector.tuning.building import Options
from selector.tuning.executor import Executor
from selector.tuning.request import Request
from selector.tuning.results import Trial, Tuning
from selector.tuning.space import Point
from selector.tuning.start import Run, Timing
from selector.tuning.store import Store


def tune_saved(
    folder: str | os.PathLike[str],
    arguments: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    *,
    reference: Any = None,
    tolerance: float | None = None,
    sizes: Any = None,
    measure: Callable[..., Any] | None = None,
    device: str = "",
    seconds: float | None = None,
    most: int | None = None,
    limit: float = 60.0,
    executor: Executor | None = None,
    progress: bool | Callable[[Trial], object] | None = None,
    retry: bool = False,
) -> Tuning:
    """Time the kernels that ``halide_bridge.tune(..., folder=folder, build_only=True)`` left, on
    the machine with the GPU. Needs NumPy and CuPy.

    The arguments are those of ``halide_bridge.tune``; ``measure`` gets settings, as JSON data, for
    a configuration. A kernel that runs at any size can be timed at several: call it again with
    other arguments, results of each are kept. ``ArtifactError`` for a folder without kernels.
    """
    name, target, trials = Store(Path(folder).absolute()).read_space()
    points = tuple(Point(i, dict(t.settings), dict(t.settings)) for i, t in enumerate(trials))
    timing = Timing(arguments, reference, tolerance, sizes, measure, device)
    run = Run(Path(folder), seconds, most, limit, 1, executor, progress, retry)
    request = Request(name, Options(target), points, built=dict(enumerate(trials)))
    return run.go(request, timing)
