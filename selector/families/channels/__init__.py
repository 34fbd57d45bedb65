"""Sums over windows of pixels on CUDA cores where each channel, or each few, has filters of its
own: depthwise layers, and grouped ones.

A thread has a tile of results in its registers, some neighbours along each dimension, and keeps
what these read there as well: pixels and weights come once, by vectors where channels lie side by
side, and are turned into single floats once. What neighbours among threads both read the first
cache answers, or shared memory: where channels are planes, and elements come one by one, a block
may bring what its threads read there, each element once. Or a thread has neighbours along such
rows, whose pixels come as a vector, and single ones at both of its ends.

``tiling``: sizes, and a schedule as data. ``space``: what threads and blocks may have. ``cost``:
cycles of that on a GPU. ``choice``: the best.
"""

from __future__ import annotations

from selector.families.channels.choice import best, ranked
from selector.families.channels.tiling import Shape, Tile, Windows

__all__ = ["Shape", "Tile", "Windows", "best", "ranked"]
