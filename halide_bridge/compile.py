"""One call from a Func to a kernel."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from halide_bridge.lowering import lower

if TYPE_CHECKING:
    from selector.api import Kernel


def compile(  # noqa: A001 - the public name
    output: Any,
    *,
    target: str = "cuda",
    name: str | None = None,
    inputs: Sequence[object] | None = None,
    strict: bool = True,
    **options: Any,
) -> Kernel:
    """Lower a scheduled pipeline and compile it for ``target``, on any machine.

    ``output``: a Func, several, or a Pipeline. ``name`` and ``inputs`` are those of ``lower``,
    ``strict`` and the other options those of ``selector.compile``; ``service="http://..."`` lowers
    here and has the rest done by a compile service.

    ``ScheduleError`` for what cannot be lowered or mapped onto the target, ``SelectionError`` for a
    statement that cannot go to the tensor unit it was asked onto, ``TargetError`` for an unknown
    target.
    """
    import selector

    start = time.perf_counter()
    module = lower(output, target=target, name=name, inputs=inputs)
    seconds = time.perf_counter() - start
    kernel = selector.compile(module, target=target, strict=strict, **options)
    kernel.begun_with("lower", seconds)
    return kernel
