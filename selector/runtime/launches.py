"""Launches by way of Python: arguments filled in one by one, tensor maps once for each address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from selector.runtime.arrays import Library
from selector.runtime.driver import Driver
from selector.runtime.prepare import Prepared, PreparedLaunch, Scratch
from selector.runtime.tensor_map import BYTES as MAP_BYTES

_SCRATCH_SETS_AT_MOST = 16
_MAPS_AT_MOST = 256
K = TypeVar("K")
V = TypeVar("V")


def launch(
    driver: Driver,
    launches: Sequence[PreparedLaunch],
    addresses: Sequence[int],
    numbers: Sequence[Any],
    on: Any,
    *,
    early: bool = False,
) -> None:
    """``early``: all launches are of the kind that is repeated, so that each may start while
    the one before it ends, but the first, before which anything may run.
    """
    for number, each in enumerate(launches):
        values = list(each.template)
        for position, index in each.addresses:
            values[position] = addresses[index]
        for position, index in each.scalars:
            values[position] = numbers[index]
        if each.maps:
            for position, value in _maps(driver, each, addresses):
                values[position] = value
        function = each.early if early and number else None
        function = function or each.function
        function(each.grid, each.block, values, each.shared_bytes, on)


def kept_scratch(driver: Driver, prepared: Prepared, on: Any) -> Scratch:
    """The intermediate buffers for one stream; allocated at the first call on it."""
    stream = driver.stream_key(on)
    found = prepared.scratch.get(stream)
    if found is None:
        found = new_scratch(driver, prepared, prepared.library)
        remember(prepared.scratch, stream, found, _SCRATCH_SETS_AT_MOST)
    return found


def new_scratch(driver: Driver, prepared: Prepared, library: Library) -> Scratch:
    """Intermediate buffers of zeros: what no kernel writes may meet the zeros of a band
    (``intrinsics.windows``).
    """
    owners = [driver.zeros(size, library, prepared.device) for size in prepared.scratch_bytes]
    return Scratch(owners, [driver.pointer(o) for o in owners])


def filled_scratch(
    driver: Driver, prepared: Prepared, addresses: Sequence[int], numbers: Sequence[Any]
) -> Scratch:
    """Intermediate buffers for a graph, when the launches that run once have done so. Never of
    torch's memory, parts of which belong to graphs of torch's own.
    """

    def fill(on: Any) -> Scratch:
        scratch = new_scratch(driver, prepared, Library.CUPY)
        once = [each for each in prepared.launches if each.once]
        launch(driver, once, [*addresses, *scratch.addresses], numbers, on)
        scratch.filled = True
        return scratch

    return driver.apart(prepared.device, fill) if prepared.scratch_bytes else Scratch([], [])


def remember(cache: dict[K, V], key: K, value: V, at_most: int) -> None:
    """Keep ``value``; the oldest entry goes when there are too many."""
    for oldest in list(cache)[: max(len(cache) - at_most + 1, 0)]:
        cache.pop(oldest, None)  # another thread may have done so
    cache[key] = value


def _maps(
    driver: Driver, launch: PreparedLaunch, addresses: Sequence[int]
) -> tuple[tuple[int, Any], ...]:
    """Positions and values of the tensor maps, and whether those that belong together could be
    made.
    """
    key = tuple(addresses[index] for _, index, _ in launch.maps)
    found = launch.made.get(key)
    if found is None:
        made = [
            (position, driver.tensor_map(shape, addresses[index]))
            for position, index, shape in launch.maps
        ]
        missing = {position for position, value in made if value is None}
        nothing = np.zeros((), (np.void, MAP_BYTES))[()]
        found = (
            *((p, nothing if p in missing else value) for p, value in made),
            *((p, np.int32(not missing & wanted)) for p, wanted in launch.ready),
        )
        remember(launch.made, key, found, _MAPS_AT_MOST)
    return found
