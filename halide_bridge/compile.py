"""One call from a Func to a kernel."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from halide_bridge.checks import output_funcs
from halide_bridge.lowering import lower
from selector.diagnostics import ScheduleError

if TYPE_CHECKING:
    from halide_bridge.schedules.sizes import Sizes
    from selector.api import Kernel
    from selector.report import Opportunity


def compile(  # noqa: A001 - the public name
    output: Any,
    *,
    target: str = "cuda",
    name: str | None = None,
    inputs: Sequence[object] | None = None,
    strict: bool = True,
    schedule: str | None = None,
    sizes: Sizes | Sequence[Sizes] | None = None,
    **options: Any,
) -> Kernel:
    """Lower a pipeline and compile it for ``target``, on any machine.

    ``output``: a Func, several, or a Pipeline, scheduled by its user; with ``schedule="auto"`` what
    its user has not scheduled is scheduled as ``autoschedule`` does, in a copy: the pipeline stays
    as it is. Where the schedule depends on sizes, the kernel is a ``SizedKernel``: each call gets
    a program for its sizes, of their class. ``sizes``: those to be fast at, and there is one
    program for all calls; or a list of those whose classes are compiled at once, the others when a
    call needs them. ``name`` and ``inputs`` are those of
    ``lower``, ``strict`` and the other options those of ``selector.compile``;
    ``service="http://..."`` lowers here and has the rest done by a compile service.

    ``ScheduleError`` for what cannot be lowered or mapped onto the target, ``SelectionError`` for a
    statement that cannot go to the tensor unit it was asked onto, ``TargetError`` for an unknown
    target.
    """
    import selector

    start = time.perf_counter()
    if schedule is None:
        if sizes is not None:
            raise ScheduleError(
                "sizes choose a schedule, and this pipeline has its user's",
                hint='drop sizes=..., or ask for schedule="auto"',
            )
        module = lower(output, target=target, name=name, inputs=inputs)
    elif schedule == "auto":
        from halide_bridge.programs import Programs

        programs = Programs(output, name, inputs, target, {"strict": strict, **options})
        return programs.kernel(sizes)
    else:
        raise ScheduleError(f"schedule is 'auto' or nothing, not {schedule!r}")
    seconds = time.perf_counter() - start
    kernel = selector.compile(module, target=target, strict=strict, **options)
    kernel.lowered_in(seconds)
    taken = {s.func for s in kernel.report.statements if not s.miss}
    asked = frozenset(options.get("instructions") or ())
    outputs = output_funcs(output, "")

    def look() -> tuple[Opportunity, ...]:
        from halide_bridge.opportunities import opportunities

        return opportunities(outputs, kernel.target, taken, asked)

    kernel.report = replace(kernel.report, look=cache(look))
    return kernel
