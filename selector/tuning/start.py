"""From a caller's arguments to a tuning: what ``halide_bridge.tune`` and ``tune_saved`` share."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from selector import environment
from selector.dataclass import dataclass
from selector.diagnostics import ArgumentError, UserError
from selector.tuning.bench import Bench
from selector.tuning.engine import tune
from selector.tuning.executor import Executor
from selector.tuning.local import LocalExecutor
from selector.tuning.progress import reporter
from selector.tuning.request import Budget, Check, Request
from selector.tuning.results import Trial, Tuning
from selector.tuning.store import Store

Folder = str | Path | None


@dataclass(frozen=True, slots=True)
class Timing:
    """How to time: the arguments of ``halide_bridge.tune`` of these names."""

    arguments: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None
    reference: Any = None
    tolerance: float | None = None
    sizes: Any = None
    measure: Callable[..., Any] | None = None
    device: str = ""
    build_only: bool = False

    @property
    def on_gpu(self) -> bool:
        """Whether the GPU at hand is asked for times."""
        return not self.build_only and self.measure is None

    def bench(self) -> Bench | None:
        """What the GPU is to do; None if it is not asked. ``ArgumentError`` where it cannot be."""
        if not self.on_gpu:
            return None
        if self.arguments is None:
            raise ArgumentError(
                "there is nothing to call the kernels with",
                hint="arguments={'I': image, ...}, or a function that makes them; or measure=, or "
                "build_only=True",
            )
        reference = None if self.check is Check.INTERPRETER else self.reference
        return Bench(self.arguments, reference, self.tolerance, self.sizes)

    @property
    def check(self) -> Check:
        if not self.on_gpu:
            return Check.NONE
        if self.reference is None:
            return Check.FIRST
        if isinstance(self.reference, str):
            if self.reference != "interpreter":
                raise ArgumentError(
                    f"reference={self.reference!r} is none",
                    hint="an array, arrays by output, a function of the arguments, 'interpreter', "
                    "or None: what the first configuration gives",
                )
            return Check.INTERPRETER
        return Check.REFERENCE

    @property
    def device_name(self) -> str:
        """What times of the user's own function are from."""
        if self.measure is None or self.device:
            return self.device
        module = getattr(self.measure, "__module__", "")
        name = getattr(self.measure, "__qualname__", repr(type(self.measure)))
        return f"measure {module}.{name}"


@dataclass(frozen=True, slots=True)
class Run:
    """How tuning goes on: the arguments of ``halide_bridge.tune`` of these names."""

    folder: Folder = None
    seconds: float | None = None
    most: int | None = None
    limit: float = 60.0
    workers: int | None = None
    executor: Executor | None = None
    progress: bool | Callable[[Trial], object] | None = None
    retry: bool = False

    def go(self, request: Request, timing: Timing) -> Tuning:
        """Tune, in the folder that was given, the cache, or one that is removed afterwards."""
        if timing.build_only and self.folder is None:
            raise UserError(
                "build_only=True builds for another machine, and says not where",
                hint="folder='kernels', to be timed there by selector.tuning.tune_saved",
            )
        if self.most is not None and self.most < 1:
            raise UserError(f"most={self.most} tries nothing", hint="at least 1")
        if self.limit <= 0:
            raise UserError(f"limit={self.limit} leaves no time", hint="seconds for each step")
        request = replace(
            request,
            bench=timing.bench(),
            measure=None if timing.build_only else timing.measure,
            check=timing.check,
            device=timing.device_name,
            limit=self.limit,
            budget=Budget(self.seconds, self.most),
            retry=self.retry,
        )
        executor = self.executor or LocalExecutor(self.workers)
        with self._folder() as folder:
            store = Store(Path(folder).absolute())
            count = min(len(request.points), self.most or len(request.points))
            result = tune(request, executor, store, reporter(self.progress, request.name, count))
            if self.folder is not None and request.lower is not None:
                store.write_space(result.name, result.target, result.trials)
            return result

    def _folder(self) -> AbstractContextManager[str | Path]:
        if self.folder is not None:
            return nullcontext(self.folder)
        cache = environment.cache_directory()
        if cache is not None:
            return nullcontext(cache / "tuning")
        return tempfile.TemporaryDirectory(prefix="tuning-")
