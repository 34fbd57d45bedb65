"""Kernels that start while the launch before them still runs (PTX ISA, ``griddepcontrol``).

Of the launches of a plan that run in every call, each lets the next one start as soon as all of its
own blocks have, and each but the first waits, in every block, before it touches memory that one of
them writes. So what lies before that is done while the earlier launch ends: numbers of the block,
barriers, and copies of what no launch writes. Whoever waits for a launch waits, through its own
waiting, for all those before it. Launches that run once are complete by then: the call that
holds them starts none early.
"""

from __future__ import annotations

from collections.abc import Set

from selector.gpu.ir.builder import Builder
from selector.gpu.ir.nodes import Dependents
from selector.ir.nodes import Allocate, Block, Stmt
from selector.lowering.structure import loaded_names, stored_names

ALLOW_NEXT = Dependents("allow")


class EarlyStart:
    """Where one kernel waits. ``shared``: what launches of every call write, None if the kernel
    does not start early.
    """

    def __init__(self, shared: frozenset[str] | None, writer: Builder) -> None:
        self._shared = shared
        self._writer = writer

    def before(self, s: Stmt) -> None:
        """Wait here, unless nothing in the statement touches what is shared.

        Statements come in the order of execution, outer ones first, so that the first one that does
        is not inside any loop or branch.
        """
        if not isinstance(s, Block | Allocate):
            self.before_access(loaded_names(s) | stored_names(s))

    def before_access(self, names: Set[str]) -> None:
        """The same for an access to those buffers, outside of loops and branches."""
        if self._shared is not None and names & self._shared:
            self.finish()

    def finish(self) -> None:
        """Wait, if that has not been done."""
        if self._shared is not None:
            self._writer.add(Dependents("await"))
            self._shared = None
