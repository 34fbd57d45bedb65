"""Who takes part in a copy into shared memory: noted as it is written, for ``copy_costs``."""

from __future__ import annotations

from dataclasses import dataclass

from selector.runtime.plan import CopyLimit


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
