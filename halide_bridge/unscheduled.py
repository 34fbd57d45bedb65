"""Pipelines without a schedule, as their users hand them in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from halide_bridge import memory
from halide_bridge.checks import is_pipeline, output_funcs
from halide_bridge.memory import Directives
from halide_bridge.names import plain
from halide_bridge.native import native
from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError

_scheduled: dict[str, str] = {}  # outputs, by Halide's name, and where that was


@dataclass(frozen=True, slots=True)
class Source:
    """A plain pipeline as it was: copies of its ``outputs``, what was ``said`` of its Funcs, and
    the requirements of the ``pipeline``, if it is one.
    """

    outputs: list[Any]
    said: Mapping[str, Directives]
    pipeline: Any
    name: str | None
    inputs: Sequence[object] | None
    location: str


def source_of(output: Any, name: str | None, inputs: Sequence[object] | None) -> Source:
    """What a user hands in. ``ScheduleError`` for what is no output or has been scheduled."""
    location = memory.caller_location()
    outputs = output_funcs(output, location)
    refuse_scheduled(outputs, location)
    pipeline = output if is_pipeline(output) else None
    return Source(native().copy(outputs), memory.said(), pipeline, name, inputs, location)


def refuse_scheduled(outputs: Sequence[Any], location: str) -> None:
    """``ScheduleError`` for an output that has been scheduled before."""
    for func in outputs:
        if func.name() in _scheduled:
            raise ScheduleError(
                f"`{plain(func.name())}` has been scheduled already",
                why=f"at {_scheduled[func.name()]}; directives add up, and these would not fit",
                hint="build the pipeline anew, or keep that schedule",
                where=location,
            )


def now_scheduled(outputs: Sequence[Any], location: str) -> None:
    """Remember that these have been scheduled there."""
    _scheduled.update((func.name(), location) for func in outputs)
