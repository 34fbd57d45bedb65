"""How the threads of a block are arranged."""

from __future__ import annotations

from selector.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Of ``threads``: ``warps``, or groups of four of them (``group``, in a kernel with wgmma), in
    each of ``teams`` that do a block's work in turn; a ``producer``, one more group behind the
    others, feeds pipelines, unless those that multiply ask for their operands (``self_fed``).
    ``tensor``: accumulators lie in tensor memory, and a warp of that group asks for products;
    ``tall``: these have 128 rows. ``persistent``: so many blocks of a multiprocessor do the work of
    the whole grid. A ``cluster`` is of ``neighbours`` along the innermost loop of the grid, which
    this is. ``slots``: shared buffers that pipelines fill ahead. Registers have to do for so many
    ``resident`` blocks of a multiprocessor. ``in_line``: blocks of all loops are along x.
    """

    warps: int = 1
    threads: int = 32
    group: bool = False
    producer: bool = False
    tensor: bool = False
    tall: bool = False
    self_fed: bool = False
    persistent: int = 0
    teams: int = 1
    cluster: int = 1
    neighbours: str = ""
    slots: frozenset[str] = frozenset()
    resident: int = 1
    in_line: bool = False

    @property
    def unit(self) -> str:
        """What a gpu_thread loop counts."""
        return "group" if self.group else "warp"

    @property
    def number(self) -> str:
        """The variable of a kernel that numbers it, in its team where there are several."""
        return "member" if self.teams > 1 else self.unit

    @property
    def unit_threads(self) -> int:
        return 128 if self.group else 32

    @property
    def consumers(self) -> int:
        """Threads of all warps or groups of all teams."""
        return self.teams * self.warps * self.unit_threads

    @property
    def warp_rows(self) -> int:
        """Rows of an instruction of a group that a warp has one after the other."""
        return 32 if self.tall else 16
