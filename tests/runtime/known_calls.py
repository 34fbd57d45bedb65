"""Calls by way of the native module and by way of Python, for the tests that compare them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from fake_cuda import FakeCuda
from runtime_plans import conv_plan

from selector.ir.nodes import Var
from selector.ir.types import FLOAT16
from selector.runtime.cuda import CupyDriver, native_libraries
from selector.runtime.execute import Executable
from selector.runtime.plan import BufferArgument, MapArgument, MapsReady, Plan


def executable(cuda: FakeCuda, plan: Plan, native: bool = True) -> Executable:
    libraries = native_libraries(cuda.cupy) if native else None
    assert (libraries is not None) == native
    return Executable(plan, lambda: b"cubin", CupyDriver(cuda.cupy, libraries))


def known(run: Executable) -> Any:
    """Calls that the native module takes; what it does not is a failure of the test."""
    assert run._known is not None

    def call(*args: Any, out: Any = None, stream: Any = None, sizes: Any = None, **named: Any):
        result = run._known.call(args, named, out, stream, sizes)
        assert result is not NotImplemented, "left to Python"
        return result

    return call


def unknown(run: Executable, *args: Any, out: Any = None, stream: Any = None, **named: Any) -> None:
    """A call that the native module leaves to Python."""
    assert run._known is not None
    assert run._known.call(args, named, out, stream, None) is NotImplemented


def image(cuda: FakeCuda, height: int = 5, width: int = 200) -> Any:
    return cuda.cupy.ndarray((height, width), np.float16)


def conv_arrays(cuda: FakeCuda) -> tuple[Any, Any, Any]:
    return image(cuda), cuda.cupy.ndarray((9,), np.float16), cuda.cupy.ndarray((5, 192))


def mapped_plan() -> Plan:
    """A kernel that takes its image by a map, and is told whether there is one."""
    extents = (Var("I.extent.0"), Var("I.extent.1"))
    argument = MapArgument("I", FLOAT16, extents, (Var("I.stride.1"),), (64, 8))
    plan = conv_plan()
    (launch,) = plan.launches
    arguments = (argument, BufferArgument("K"), BufferArgument("output"), MapsReady())
    return replace(plan, launches=(replace(launch, entry="mapped", arguments=arguments),))


def both(cuda: FakeCuda, plan: Plan, call: Callable[[Executable], object]) -> list[Any]:
    """The launches of a call that is repeated, which are those of Python."""
    taken: list[list[Any]] = []
    for native in (False, True):
        run = executable(cuda, plan, native)
        call(run)
        cuda.taken()
        call(run)
        taken.append(cuda.taken())
        if run._known is not None:
            assert len(run._known.launcher) == 1
    assert taken[0] == taken[1]
    assert taken[0]
    return taken[0]


def aligned(cuda: FakeCuda, offset: int = 0) -> Any:
    room = np.zeros(5 * 200 + 64, np.float16)
    first = -(room.__array_interface__["data"][0] // 2) % 8 + offset
    return cuda.cupy.ndarray(room[first : first + 1000].reshape(5, 200))
