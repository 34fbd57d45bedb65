"""What has been decided for a plain pipeline as a whole, before directives are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from halide_bridge.schedules.candidates import Sum, Tiling
from halide_bridge.schedules.recognise.attention import Online
from halide_bridge.schedules.recognise.sliding import Slide
from halide_bridge.schedules.recognise.windows import Window
from halide_bridge.schedules.sizes import Guess
from selector.dataclass import dataclass
from selector.families import attention, transforms, windows
from selector.machine import Machine


@dataclass(frozen=True, slots=True)
class Plan:
    """Sums of a tensor unit, and why others are none, by the stable names of Funcs, and Funcs that
    have to be ``stored`` for them; what is computed ``online``, by the names of the Funcs that read
    it; ``unstaged`` sums, whose factors no block brings to shared memory; those that are computed
    ``apart``, in a kernel of their own and wherever they are needed; whether long rows are
    ``spread`` over several blocks; resamplings on tensor units, ``banded``; windows whose blocks
    make what they read, with those that do (``made``); chains of stencils that one kernel computes,
    by their last Func (``slides``), and terms of the ``windows`` that add up rows for them, by the
    names of these; why the ``loops`` of attention are several;
    what is known of the ``precisions`` of sums; the sizes and the GPU to be fast at; kernels whose
    blocks are numbered ``in_line``, by the Funcs that they compute.
    """

    tensor: Mapping[str, tuple[Sum, Tiling]]
    misses: Mapping[str, str]
    known: Guess
    machine: Machine
    stored: frozenset[str] = frozenset()
    online: Mapping[str, tuple[Online, attention.Tiling]] = field(default_factory=dict)
    unstaged: frozenset[str] = frozenset()
    apart: frozenset[str] = frozenset()
    banded: frozenset[str] = frozenset()
    spread: bool = False
    made: Mapping[str, str] = field(default_factory=dict[str, str])
    slides: Mapping[str, Slide] = field(default_factory=dict[str, Slide])
    windows: Mapping[str, int] = field(default_factory=dict[str, int])
    loops: Mapping[str, str] = field(default_factory=dict[str, str])
    precisions: Mapping[str, str] = field(default_factory=dict[str, str])
    in_line: frozenset[str] = frozenset()

    def attending(self, found: Online, tiling: attention.Tiling) -> Plan:
        return replace(self, online={**self.online, found.output: (found, tiling)})

    def in_loops(self, label: str, why: str) -> Plan:
        return replace(self, loops={**self.loops, label: why}) if why else self

    def having(self, label: str, found: Sum, tiling: Tiling) -> Plan:
        stored = self.stored | (found.computed if isinstance(found, Window) else frozenset())
        return replace(self, tensor={**self.tensor, label: (found, tiling)}, stored=stored)

    def storing(self, labels: Iterable[str]) -> Plan:
        return replace(self, stored=self.stored.union(labels))

    def unstaging(self, labels: Iterable[str]) -> Plan:
        return replace(self, unstaged=frozenset(labels))

    def setting_apart(self, labels: Iterable[str]) -> Plan:
        return replace(self, apart=frozenset(labels))

    def banding(self, label: str) -> Plan:
        misses = {name: why for name, why in self.misses.items() if name != label}
        return replace(self, banded=self.banded | {label}, misses=misses)

    def making(
        self,
        last: str,
        tiling: windows.Tiling | transforms.Tiling,
        before: Sequence[str],
        boxes: Sequence[windows.Tiling],
    ) -> Plan:
        names, tilings = (last, *before), (tiling, *boxes)
        tensor = {n: (self.tensor[n][0], t) for n, t in zip(names, tilings, strict=True)}
        made = dict(zip(names, before, strict=False))
        return replace(self, tensor={**self.tensor, **tensor}, made={**self.made, **made})

    def sliding(self, label: str, slide: Slide, sources: Iterable[str]) -> Plan:
        slides = {**self.slides, label: slide}
        return replace(self, slides=slides, stored=self.stored.union(sources))

    def spreading(self) -> Plan:
        return replace(self, spread=True)

    def without(self, label: str, why: str) -> Plan:
        return replace(self, misses={**self.misses, label: why})
