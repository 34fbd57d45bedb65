"""Graphs of Funcs that nobody schedules, drawn as text: what users write of images, in any order.

Stencils, other grids, windows with conditions, filters, products and rows in proportion, sums of
rows and columns, histograms and lookups, scans, searches, updates of some elements, totals, values
of a tuple, planes and pixels side by side, of any types under any boundary condition, each reading
whatever is there before it. A program
follows from a number alone: ``Graph(7).text`` defines ``pipeline()``, which returns its outputs and
its parameters; ``arrays()`` are the arguments, ``shape`` that of the outputs.

Other than the fuzzer's programs these are no data: a failure is made small by hand.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from fuzzing.graph_steps import STEPS
from fuzzing.graph_writer import CHANNELS, KINDS, Input, Writer

Array = np.ndarray[Any, Any]


class Graph(Writer):
    """One program."""

    def __init__(self, number: int) -> None:
        super().__init__(Random(number))
        self.number, r = number, self.random
        for _ in range(r.randint(1, 2)):
            self.add_input()
        for _ in range(r.randint(1, 5)):
            self.sources.append(r.choices(*zip(*STEPS, strict=True))[0](self))
        self.planes = r.random() < 0.5
        outputs = [self.add_output() for _ in range(1 if r.random() < 0.75 else 2)]
        self.say(f"return [{', '.join(outputs)}], params")
        self.outputs = outputs

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    @property
    def shape(self) -> tuple[int, ...]:
        plane = (self.height, self.width)
        return (CHANNELS, *plane) if self.planes else plane

    def arrays(self) -> dict[str, Array]:
        """The arguments, random; pixels of interleaved ones lie side by side."""
        rng = np.random.default_rng(self.number)
        found = dict[str, Array]()
        for i in self.inputs:
            array = _numbers(i, rng)
            if i.interleaved:
                array = np.ascontiguousarray(array.transpose(1, 2, 0)).transpose(2, 0, 1)
            found[i.name] = array
        return found


def _numbers(i: Input, rng: np.random.Generator) -> Array:
    kind = KINDS[i.kind][1]
    if i.kind.startswith("f"):
        return (rng.integers(-8, 9, i.shape) / 4).astype(kind)
    info = np.iinfo(kind)
    low, high = (info.min, info.max) if info.bits < 32 else (-1000, 1000)
    return rng.integers(low, high, i.shape, endpoint=True).astype(kind)
