"""Calls whose signature has been seen before, by the native module ``_launch`` (``cpp/launch``).

It reads the arrays of a call, finds by their library, type, shape, strides and device what was
prepared for such a call, fills in addresses, numbers and tensor maps, and launches. It judges
nothing: what it does not know, or what may be wrong, goes the way through Python, which does the
same, or says what is wrong. Without the module all calls go there.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from selector.ir.nodes import ScalarParam
from selector.ir.types import Kind
from selector.runtime import arguments
from selector.runtime.arrays import numpy_dtype
from selector.runtime.driver import Driver
from selector.runtime.plan import Plan
from selector.runtime.prepare import Prepared, PreparedLaunch, sizes_use_scalars

if TYPE_CHECKING:
    from selector.runtime import _launch


class KnownCalls:
    """The signatures of a plan's calls that were prepared, ``at_most`` so many: those that came
    first are forgotten first. As a context manager it keeps other threads from launching what
    uses intermediate buffers.
    """

    def __init__(
        self, plan: Plan, driver: Driver, libraries: _launch.Libraries, at_most: int
    ) -> None:
        from selector.runtime import _launch

        self._driver = driver
        self._libraries = libraries
        self._parameters = _parameters(plan)
        self.launcher = _launch.Launcher(
            libraries,
            arguments.parameter_names(plan),
            len(arguments.inputs_of(plan)),
            [_scalar(s) for s in plan.scalars],
            [b.name for b in arguments.outputs_of(plan)],
            sizes_use_scalars(plan),
            at_most,
            driver.failed,
        )
        self.call = self.launcher.call

    def takes(self, plan: Plan) -> bool:
        """Whether calls of another plan are told apart by the same things."""
        return plan.patience is None and _parameters(plan) == self._parameters

    def __enter__(self) -> None:
        self.launcher.__enter__()

    def __exit__(self, *error: object) -> None:
        self.launcher.__exit__(*error)

    def add(
        self,
        args: Sequence[Any],
        named: Mapping[str, Any],
        out: Any,
        sizes: Any,
        prepared: Prepared,
    ) -> None:
        """Remember a call that went well. The device of ``prepared`` has to be current."""
        self._driver.native()  # torch may have been imported since
        if prepared.program is None:
            prepared.program = self._program(prepared)
        filled = [(*key, s.addresses, s) for key, s in prepared.scratch.items() if s.filled]
        prepared.program.set_scratch(filled)
        self.launcher.add(args, named, out, sizes, prepared.program)

    def _program(self, prepared: Prepared) -> _launch.Program:
        from selector.runtime import _launch

        driver, library, device = self._driver, prepared.library, prepared.device
        early = bool(prepared.scratch_bytes)
        return _launch.Program(
            self._libraries,
            device,
            [_launch_of(p, early and n > 0) for n, p in enumerate(prepared.repeated)],
            prepared.spans,
            [driver.allocation(o.shape, o.dtype, library, device) for o in prepared.outputs],
            bool(prepared.scratch_bytes),
        )


def known_calls(plan: Plan, driver: Driver, at_most: int) -> KnownCalls | None:
    """None where all calls go through Python: without the module or a driver that it can use, and
    for plans whose launches are waited for.
    """
    libraries = driver.native()
    if libraries is None or plan.patience is not None:
        return None
    return KnownCalls(plan, driver, libraries, at_most)


def _launch_of(launch: PreparedLaunch, early: bool) -> _launch.Launch:
    """A launch; ``early``: if it can, it starts while the one before it ends."""
    told: dict[int, _launch.Argument] = {p: ("a", index) for p, index in launch.addresses}
    told |= {p: ("s", index) for p, index in launch.scalars}
    told |= {p: ("m", index, shape.described()) for p, index, shape in launch.maps}
    told |= {p: ("r", sorted(wanted)) for p, wanted in launch.ready}
    every = [told.get(p) or ("v", value.tobytes()) for p, value in enumerate(launch.template)]
    function: Any = launch.function
    early = early and launch.early is not None
    return function.ptr, launch.grid, launch.block, launch.shared_bytes, early, every


def _parameters(plan: Plan) -> tuple[Hashable, ...]:
    """What a signature is read by."""
    outputs = tuple(b.name for b in arguments.outputs_of(plan))
    return (arguments.parameter_names(plan), plan.scalars, outputs, sizes_use_scalars(plan))


def _scalar(scalar: ScalarParam) -> tuple[str, int]:
    """The kind of a number, and its bytes as an argument."""
    kind, size = scalar.type.kind, numpy_dtype(scalar.type).itemsize
    if scalar.type.is_bool:
        return "b", size
    return {Kind.FLOAT: "f", Kind.BFLOAT: "B", Kind.INT: "i", Kind.UINT: "u"}[kind], size
