"""The families of schedules whose model is tried, and what is asked of them.

Constants are numbers by name: those that were fitted, and rates of the machine that were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from casestudies.measuring.model import filters, sizes
from selector.families import contraction, windows
from selector.families.contraction.fitted import FITTED, Fitted
from selector.families.windows.cost import GROUPS, WARPS
from selector.families.windows.cost import Fitted as FittedToWindows
from selector.machine import Machine
from selector.targets import find_target

Constants = Mapping[str, float]
Foretelling = Callable[[Any, Any], float]
"""Microseconds of a tiling of a shape."""
RATES = ("l2", "fill")  # of the machine, fitted with the products' constants


@dataclass(frozen=True, slots=True)
class Family:
    """``problems(count, seed)``: to try the model on, so many of them drawn. ``ranked``: the space,
    with microseconds. ``usual``: what a shape has without the model, where there is that.
    """

    tiling: type[Any]
    problems: Callable[[int, int], Iterator[Any]]
    ranked: Callable[[Any, Machine], list[tuple[float, Any]]]
    constants: Callable[[Machine], dict[str, float]]
    foretelling: Callable[[Constants, Machine], Foretelling]
    usual: Callable[[Any, Machine], list[tuple[float, Any]]]


def _products(count: int, seed: int) -> Iterator[Any]:
    yield from sizes.SWEEP
    yield from sizes.drawn(count, seed)


def _of_products(constants: Constants, machine: Machine) -> Foretelling:
    fitted = Fitted(**{n: v for n, v in constants.items() if n not in RATES})
    gpu = replace(machine, **{n: constants[n] for n in RATES})
    return lambda t, shape: contraction.estimate(t, shape, gpu, fitted).microseconds


def _usual(shape: Any, machine: Machine) -> list[tuple[float, Any]]:
    found = contraction.usual(shape, machine)
    if contraction.why_not(found, shape, find_target(machine.target)):
        return []
    return [(contraction.estimate(found, shape, machine).microseconds, found)]


def _of_filters(constants: Constants, machine: Machine) -> Foretelling:
    by_unit = {
        unit: FittedToWindows(
            **{n.partition(".")[2]: v for n, v in constants.items() if n.startswith(unit)}
        )
        for unit in ("warp", "group")
    }
    return lambda t, shape: windows.estimate(t, shape, machine, by_unit[t.unit]).microseconds


def _windows(machine: Machine) -> dict[str, float]:
    parts = {"warp": WARPS, "group": GROUPS}
    return {f"{u}.{name}": v for u, part in parts.items() for name, v in asdict(part).items()}


FAMILIES = {
    "products": Family(
        contraction.Tiling, _products, contraction.ranked,
        lambda machine: asdict(FITTED) | {n: getattr(machine, n) for n in RATES},
        _of_products, _usual,
    ),
    "filters": Family(windows.Tiling, filters.problems, windows.ranked, _windows, _of_filters,
        lambda shape, machine: []),
}  # fmt: skip


def family_of(case: str) -> Family:
    """That of a case study."""
    return FAMILIES["products" if case == "gemm" else "filters"]
