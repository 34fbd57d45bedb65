"""The programs of the GPU corpus, compiled: each case for each of its targets."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pytest
from corpus import CORPUS

import halide_bridge as hb
import selector
from selector.diagnostics import PerformanceWarning
from selector.ir.module import Module

TARGETS = ("sm_80", "sm_90a")
PROGRAMS = [(name, t) for name, case in CORPUS.items() for t in TARGETS if case.target in (None, t)]
TURNS = {name: case.target or TARGETS[i % 2] for i, (name, case) in enumerate(CORPUS.items())}
"""The target of each case where one is enough: what differs between them is not in the cases."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program as it was lowered and its kernel, whose module is the selected one."""

    name: str
    target: str
    lowered: Module
    kernel: Any


@lru_cache(maxsize=64)
def compiled(name: str, target: str) -> Compiled:
    case = CORPUS[name]
    lowered = hb.lower(case.build(), target=target, name=name)
    with pytest.warns(PerformanceWarning) if case.warned else nullcontext():
        kernel = selector.compile(lowered, target=target, cache=False, instructions=case.only)
    return Compiled(name, target, lowered, kernel)
