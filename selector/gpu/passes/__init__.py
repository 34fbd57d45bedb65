"""What is decided about a kernel once it is written: passes from kernel to kernel, one flat list.

Each takes a kernel of the IR (``gpu.ir``) and the options that it needs, and returns one. They run
in the order of the list, each over all kernels of a program; the printer makes text of the last.
Under ``SELECTOR_CHECK`` a kernel is verified after each pass that changed it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from selector import environment
from selector.dataclass import dataclass
from selector.diagnostics import InternalError
from selector.gpu.ir.nodes import Kernel
from selector.gpu.ir.verify import memory_faults
from selector.gpu.passes.ask_first import ask_first
from selector.gpu.passes.bound_waits import bound_waits
from selector.gpu.passes.budget_registers import budget_registers
from selector.gpu.passes.drain_stores import drain_stores
from selector.gpu.passes.fetch_early import fetch_early
from selector.gpu.passes.insert_fences import insert_fences
from selector.gpu.passes.keep_used import keep_used
from selector.gpu.passes.name_choices import name_choices
from selector.gpu.passes.name_folds import name_folds
from selector.gpu.passes.name_repeated import name_repeated
from selector.gpu.passes.start_early import start_early
from selector.gpu.passes.unpack_bytes import unpack_bytes
from selector.targets import Multiprocessor


@dataclass(frozen=True, slots=True)
class Options:
    """What passes ask for beside the kernel. ``name``: of what it computes, for messages;
    ``shared_memory``: bytes that a block of the target can have, and all blocks of a multiprocessor
    together; ``resident``: blocks of one that were asked for; ``patience``: seconds that a wait
    takes at most, None: as long as it takes. Of the launches that run in every call, is it the
    ``last``, and by which parameters does it share memory with those that may not be complete when
    it starts (``earlier``; None: it does not start early)?
    """

    name: str
    shared_memory: int
    resident: int = 1
    patience: float | None = None
    earlier: frozenset[str] | None = None
    last: bool = True
    multiprocessor: Multiprocessor | None = None


@dataclass(frozen=True, slots=True)
class Pass:
    """``run(kernel, ...)``, by keyword with those options that it ``needs``."""

    name: str
    run: Callable[..., Kernel]
    needs: tuple[str, ...] = ()


PASSES = (
    Pass("fetch_early", fetch_early, ("resident", "shared_memory")),
    Pass("ask_first", ask_first),
    Pass("insert_fences", insert_fences),
    Pass("drain_stores", drain_stores),
    Pass("start_early", start_early, ("earlier", "last")),
    Pass("budget_registers", budget_registers, ("resident", "shared_memory", "multiprocessor")),
    Pass("unpack_bytes", unpack_bytes),
    Pass("name_folds", name_folds),
    Pass("name_repeated", name_repeated),
    Pass("name_choices", name_choices),
    Pass("keep_used", keep_used),
    Pass("bound_waits", bound_waits, ("name", "shared_memory", "patience")),
)

WRITTEN = "written"  # as the emitter leaves a kernel, before the first pass

Watch = Callable[[str, tuple[Kernel, ...]], None]
"""Is told the name of each pass that has run, and the kernels after it."""


def unwatched(name: str, kernels: tuple[Kernel, ...]) -> None:
    """For those who do not ask."""


@dataclass(slots=True)
class Trace:
    """The ``kernels`` of a program after each pass, by its name, in order."""

    kernels: dict[str, tuple[Kernel, ...]] = field(default_factory=dict[str, tuple[Kernel, ...]])

    def add(self, name: str, kernels: tuple[Kernel, ...]) -> None:
        self.kernels[name] = kernels


def run_passes(
    written: Sequence[tuple[Kernel, Options]], watch: Watch = unwatched
) -> tuple[Kernel, ...]:
    """The kernels of a program after all passes, with the options of each. ``ScheduleError`` for
    what a pass refuses; ``InternalError`` that names the one which broke a kernel.
    """
    kernels = tuple(kernel for kernel, _ in written)
    check = environment.checks_enabled()
    watch(WRITTEN, kernels)
    for p in PASSES:
        before = kernels
        kernels = tuple(
            p.run(kernel, **{name: getattr(options, name) for name in p.needs})
            for kernel, (_, options) in zip(kernels, written, strict=True)
        )
        watch(p.name, kernels)
        if check:
            for old, new in zip(before, kernels, strict=True):
                if new is not old and (faults := memory_faults(new)):
                    raise InternalError(f"after {p.name}, {new.name}: {'; '.join(faults)}")
    return kernels
