"""How the threads of a kernel meet, run without their data.

Every thread's way through the synchronising nodes of a kernel is followed, in all worlds: with and
without tensor maps, for loops of none to twice as many iterations as a pipeline has stages, the
last threads of a block first or the first ones, copies as late as possible or at once. Text says
nothing here. Found are

- threads that wait forever, and for whom;
- more arrivals at a barrier than its phase has, fewer at the end, bytes that nobody expects;
- waits that end because of the parity of another phase than the one that is meant;
- copies by who cannot know that all who wait have seen the phase before; phases that end by
  arrivals of who cannot, or before anybody waited for the one before;
- registers that instructions of wgmma have, touched before these are complete;
- memory that is read before what stores or copies there is complete and known to be, written while
  it may still be read, stored by threads and read by the copy engine or wgmma without a fence, or
  left to the engine at the end (``races``);
- copies of the engine to where another one is under way, or those of another barrier go;
- barriers used by a thread that cannot know that they are made, or are no more; arrivals at a
  block of the cluster that may have ended.

What a thread can know is kept in clocks: how far each other one was at the last moment of which
this one knows through barriers (happens-before). Threads of a warp whose control is the same are
one; they are told apart where a condition does (``lane == 0``, ``threadIdx.x == 256``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from selector.gpu.ir.nodes import Init, Kernel, Read, Sync, walk
from selector.gpu.ir.products import Busy, Pin
from selector.gpu.simulator.meeting import meeting_only
from selector.gpu.simulator.run import Followed, Run
from selector.gpu.simulator.worlds import worlds_of

_TOLD = Init | Sync | Read | Busy | Pin  # without these nobody can be wrong


def protocol_faults(kernel: Kernel) -> tuple[str, ...]:
    """What is wrong with the protocol of a kernel, in any world; nothing, as a rule."""
    return _all_faults(meeting_only(kernel))


def first_fault(kernel: Kernel) -> str | None:
    """The first of them that is found, sooner than all."""
    return next(_faults(meeting_only(kernel)), None)


@lru_cache(maxsize=1 << 10)
def _all_faults(kernel: Kernel) -> tuple[str, ...]:
    """Of a kernel that does nothing else: many programs meet alike."""
    return tuple(dict.fromkeys(_faults(kernel)))


def _faults(kernel: Kernel) -> Iterator[str]:
    if any(isinstance(node, _TOLD) for node in walk(kernel.body)):
        followed = Followed(kernel)
        for world, eager in product(worlds_of(kernel), (True, False)):
            yield from Run(followed, world, eager).launch.faults
