"""C for CPUs with AMX.

Read in this order: ``source`` (parameters, the text as a whole), ``function`` (loops, threads,
memory), ``plain`` (ordinary stores) with ``cover`` (tests ahead of loops),
``operands`` and ``registers`` (what a selected program asks of tile registers), ``tiles``
(products), ``loads`` and ``sums`` (what goes into and out of registers), ``preamble`` (the helpers
and the layer of tile instructions that the text stands on).
"""

from selector.cpu.source import emit

__all__ = ["emit"]
