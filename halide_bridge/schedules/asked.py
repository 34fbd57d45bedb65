"""Our own directives, for Funcs and for recorded ones: what families of schedules ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from halide_bridge import instead, memory
from halide_bridge.schedules.recorder import Recorded


def _ask(directive: Callable[..., Any], func: Any, *arguments: Any) -> Any:
    if isinstance(func, Recorded):
        func.script.ask(directive, func, arguments)
        return func
    return directive(func, *arguments)


def store_in(func: Any, kind: memory.MemoryType) -> Any:
    return _ask(memory.store_in, func, kind)


def pipeline_stages(func: Any, stages: int) -> Any:
    """One stage is what there is without being asked for."""
    return _ask(memory.pipeline_stages, func, stages) if stages > 1 else func


def persistent(func: Any, blocks: int = 1) -> Any:
    return _ask(memory.persistent, func, blocks)


def teams(func: Any, count: int) -> Any:
    return _ask(memory.teams, func, count)


def self_fed(func: Any) -> Any:
    return _ask(memory.self_fed, func)


def cluster(func: Any, blocks: int) -> Any:
    return _ask(memory.cluster, func, blocks)


def resident_blocks(func: Any, blocks: int) -> Any:
    return _ask(memory.resident_blocks, func, blocks)


def in_line(func: Any) -> Any:
    return _ask(memory.in_line, func)


def interleaved(stored: Any, channels: int, *output: bool) -> Any:
    return _ask(memory.interleaved, stored, channels, *output)


def online(maximum: Any, *sums: Any) -> Any:
    return _ask(memory.online, maximum, *sums)


def from_zero(sum_: Any, reader: Any) -> Any:
    return _ask(instead.from_zero, sum_, reader)


def clone(func: Any, consumer: Any, along: Any = None) -> Any:
    """Recorded Funcs only."""
    return func.script.cloned(func, consumer, along)
