"""What is to be tuned, as data, and which of it worker processes can be sent."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any

from selector.dataclass import dataclass
from selector.tuning.bench import Bench, made, on_host
from selector.tuning.building import Lowered, Options
from selector.tuning.results import Trial
from selector.tuning.space import Point


class Check(StrEnum):
    """What results are compared with."""

    REFERENCE = "reference"
    INTERPRETER = "interpreter"
    FIRST = "first"
    NONE = "nothing"


@dataclass(frozen=True, slots=True)
class Budget:
    """No configuration is begun after ``seconds``; only the first ``most`` are tried at all."""

    seconds: float | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A tuning. Points are lowered by ``lower``, or are the kernels of ``built``, by index.

    They are timed on the GPU with ``bench``, or by ``measure`` (``device`` is then what its times
    are from), or not at all. ``limit``: seconds for each step of a configuration.
    """

    name: str
    options: Options
    points: tuple[Point, ...]
    lower: Callable[[Point, Options], Lowered] | None = None
    built: Mapping[int, Trial] = field(default_factory=dict[int, Trial])
    bench: Bench | None = None
    measure: Callable[..., Any] | None = None
    check: Check = Check.NONE
    device: str = ""
    limit: float = 60.0
    budget: Budget = Budget()
    retry: bool = False


def shippable(value: Any) -> bool:
    """Whether another process can be sent a value: it can be pickled, and nothing in it belongs to
    the main module, which workers do not import.
    """
    try:
        return b"__main__" not in pickle.dumps(value)
    except Exception:  # whatever an object's own methods raise
        return False


def shipped(bench: Bench) -> Bench:
    """The bench in a form that a worker can be sent.

    A function stays one where all of them can be sent; otherwise its result takes its place. The
    reference sees the arguments as they were given or made.
    """
    if callable(bench.arguments) and shippable(bench):
        return bench
    arguments = made(bench.arguments)
    reference = bench.reference
    if callable(reference):
        reference = reference(arguments)
    if isinstance(reference, Mapping):
        reference = _on_host(reference)
    elif reference is not None:
        reference = on_host("reference", reference)
    return dataclasses.replace(bench, arguments=_on_host(arguments), reference=reference)


def _on_host(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: on_host(name, value) for name, value in arrays.items()}
