"""The shared memory of a kernel: how what is there lies, and how much of it is taken."""

from __future__ import annotations

from dataclasses import field

from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError
from selector.gpu.codegen.warpgroups.left_boxes import LeftBox
from selector.gpu.codegen.warpgroups.panels import ALIGNMENT as PANEL_ALIGNMENT
from selector.gpu.codegen.warpgroups.panels import Panels
from selector.gpu.ir.layouts import Dealt
from selector.gpu.ir.nodes import SHARED_ALIGNMENT
from selector.runtime.plan import CopyLimit
from selector.targets import Target


@dataclass(frozen=True, slots=True)
class Layouts:
    """How buffers lie that do not lie row by row."""

    panels: dict[str, Panels] = field(default_factory=dict[str, Panels])
    windows: dict[str, Dealt] = field(default_factory=dict[str, Dealt])
    strips: dict[str, Dealt] = field(default_factory=dict[str, Dealt])

    @property
    def group_operands(self) -> set[str]:
        """Shared memory that wgmma reads."""
        return self.panels.keys() | self.windows.keys()

    @property
    def alignment(self) -> int:
        """That of large allocations."""
        return PANEL_ALIGNMENT if self.panels else SHARED_ALIGNMENT


@dataclass(slots=True)
class Staging:
    """Shared memory in which results wait for the copy engine: that of operands which nobody reads
    any more, or its ``own``, into which a loop puts boxes again and again; ``evenly`` if every box
    has the same place in all iterations.
    """

    offset: int
    bytes: int
    own: bool = False
    evenly: bool = False
    box_bytes: int = 0  # of all boxes
    stored: int = 0


@dataclass(frozen=True, slots=True)
class Taking:
    """How the emitter writes a copy: who takes part, of how many, bytes of an access, and how many
    accesses of a warp meet in one bank."""

    source: str
    threads: int
    of: int
    width: int
    conflicts: int = 1
    limit: CopyLimit = CopyLimit.NONE


@dataclass(slots=True)
class SharedMemory:
    """Of the kernel that computes ``name``: the ``bytes`` that are taken. ``left_boxes``: results
    that wait there, where the copy engine does not store them; ``copies``: who takes part in those
    that fill a buffer.
    """

    name: str
    target: Target
    layouts: Layouts
    bytes: int = 0
    staging: Staging | None = None
    left_boxes: list[LeftBox] = field(default_factory=list[LeftBox])
    exchanged: tuple[int, int] = (0, 0)  # where lanes exchange what they have, and its bytes
    copies: dict[str, Taking] = field(default_factory=dict[str, Taking])

    def allocate(self, size: int, what: str, alignment: int = SHARED_ALIGNMENT) -> int:
        """Reserve bytes; the offset. ScheduleError when the block's share is used up."""
        offset = -(-self.bytes // alignment) * alignment
        self.bytes = offset + size
        if self.bytes + self.layouts.alignment > self.target.shared_memory:
            raise ScheduleError(
                f"the kernel of `{self.name}` needs {self.bytes} bytes of shared memory",
                f"{self.target.name} has {self.target.shared_memory}; `{what}` takes {size}",
                "use smaller tiles, fewer pipeline stages, or stage less",
            )
        return offset

    def exchange(self, size: int, warps: int) -> int:
        """Bytes of every warp, which has them to itself while its lanes exchange what they have;
        the offset.
        """
        offset, known = self.exchanged
        if known < size * warps:
            offset = self.allocate(size * warps, "what the lanes of a warp exchange")
            self.exchanged = offset, size * warps
        return offset

    def left(self) -> int:
        """Bytes that a large allocation could still have."""
        alignment = self.layouts.alignment
        used = -(-self.bytes // alignment) * alignment
        return self.target.shared_memory - alignment - used
