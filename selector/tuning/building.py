"""Compiling a configuration, in a worker process or here: plain data in, plain data out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selector.dataclass import dataclass
from selector.ir.module import Module
from selector.ir.serialize import dumps, loads
from selector.runtime.cache import key_of
from selector.runtime.versions import versions
from selector.tuning.results import Measurement


@dataclass(frozen=True, slots=True)
class Options:
    """How kernels are compiled: the arguments of ``selector.compile`` besides the module."""

    target: str
    strict: bool = True
    instructions: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Lowered:
    """A configuration's program: its JSON form, the name of its kernel, and the hash that its
    kernel is found by.
    """

    text: str
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class Built:
    """A saved kernel, and seconds by stage of compilation."""

    kernel: bytes
    stages: Mapping[str, float]


def lowered(module: Module, options: Options) -> Lowered:
    """A program with the hash of all that decides what its kernel is."""
    key = key_of(
        {
            "module": str(module),
            "target": options.target,
            "strict": str(options.strict),
            "instructions": repr(options.instructions),
            **versions(),
        }
    )
    return Lowered(dumps(module), module.name, key)


def build(text: str, options: Options) -> Built:
    """Compile a program down to machine code; ``UserError`` as ``selector.compile``."""
    from selector.api import compile_module

    only = options.instructions
    kernel = compile_module(loads(text), options.target, options.strict, instructions=only)
    return Built(kernel.to_bytes(), kernel.stages)


def call_measure(measure: Any, kernel: bytes, value: Any) -> Measurement:
    """What a user's function says of a saved kernel: microseconds, or a ``Measurement``."""
    from selector.api import load_bytes

    found = measure(load_bytes(kernel, trust=True), value)
    if isinstance(found, Measurement):
        return found
    microseconds = float(found)
    if not 0 < microseconds < float("inf"):
        raise ValueError(f"measure returned {found!r} and not microseconds")
    return Measurement(microseconds, microseconds, microseconds, method="measure")
