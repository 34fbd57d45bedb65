"""The plan: everything that running a compiled pipeline needs, as data.

Expressions in a plan are scalar int32 expressions over ``<buffer>.extent.<d>`` and
``<buffer>.stride.<d>`` of the parameters and the names of scalar parameters;
``selector.ir.interpreter.evaluate_scalar`` gives their values.
"""

from __future__ import annotations

from enum import Enum

from selector.dataclass import dataclass
from selector.diagnostics import Where
from selector.ir.nodes import BufferParam, Expr, ScalarParam
from selector.ir.remarks import Promise, Requirement
from selector.ir.types import Type


@dataclass(frozen=True, slots=True)
class BufferArgument:
    """A pointer to a parameter or an intermediate buffer."""

    name: str


@dataclass(frozen=True, slots=True)
class ValueArgument:
    """A scalar of ``type`` with the value of ``value`` at call time."""

    value: Expr
    type: Type


@dataclass(frozen=True, slots=True)
class MapArgument:
    """A tensor map of a buffer (PTX ISA, "Tensors"), 128 bytes by value: the boxes that the copy
    engine brings into shared memory with one instruction, rows swizzled by 128 bytes.

    ``extents`` in elements, innermost first; ``strides`` in elements of all dimensions but the
    innermost, whose stride is 1. Elements outside the extents read as 0. ``rounds``: single floats
    are brought as tf32. ``steps``: a box has every so many elements along each dimension, if given.
    """

    name: str
    type: Type
    extents: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[int, ...]
    rounds: bool = False
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MapsReady:
    """1 if the tensor maps of these buffers could all be made for the arrays of the call, else 0
    (the kernel then copies by ordinary loads and stores). No names: all maps of the launch.
    """

    names: tuple[str, ...] = ()


Argument = BufferArgument | ValueArgument | MapArgument | MapsReady


@dataclass(frozen=True, slots=True)
class Intermediate:
    """Device memory between kernels: ``elements`` of ``type``, allocated once per kernel object
    and size.
    """

    name: str
    type: Type
    elements: Expr


class CopyLimit(Enum):
    """Why a copy into shared memory does not move 16 bytes at a time."""

    NONE = ""
    COMPUTED = "computed"  # its elements are not elements of the source
    START = "start"  # its rows start between two multiples of 16 bytes
    TURNED = "turned"  # neighbours of the source are neighbours along another dimension
    APART = "apart"  # it takes no neighbours
    THREADS = "threads"  # each thread copies elements of its own


@dataclass(frozen=True, slots=True)
class CopyCost:
    """A copy into shared memory, for the report: how many of the threads of its unit take part,
    bytes of an access, accesses of a warp that meet in one bank, the predicted ``share`` of the
    kernel's time, and what keeps an access from 16 bytes.
    """

    kernel: str
    to: str
    source: str
    threads: int
    of: int
    width: int
    conflicts: int
    share: float
    limit: CopyLimit = CopyLimit.NONE


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch: entry point, grid in blocks, threads per block, dynamic shared memory in
    bytes.

    A launch whose grid has an extent of zero is skipped. ``once``: what it writes, intermediates
    only, follows from the sizes, so that it runs when those are allocated and not in every call.
    ``early``: it may start while the launch before it ends, and waits by itself for the results of
    earlier ones that run in every call. ``crowd``: so many of its blocks come to each
    multiprocessor that the launch before leaves idle, where there is no room beside the blocks of
    that one (0: there is); if all of them would, it does not start early.

    ``persistent``, unless 0: so many blocks a multiprocessor do the work of all, and are numbered
    along x alone. ``cluster``: so many neighbours along x are one.
    """

    entry: str
    grid: tuple[Expr, Expr, Expr]
    threads: int
    shared_bytes: int
    arguments: tuple[Argument, ...]
    once: bool = False
    persistent: int = 0
    cluster: int = 1
    early: bool = False
    crowd: int = 0
    copies: tuple[CopyCost, ...] = ()


SECONDS, A_CHARACTER, A_LOOP = 0.2, 9e-6, 5.5e-7
"""NVRTC's time for an empty kernel, for a character, and for a character and each loop of a text:
loops that stand one after the other are compared with each other.

Of 269 programs (60 of the case studies and the corpus, 209 drawn) those foretold to take up to 2 s
all took less than that, of 63 others on a busy machine one took 3.7 s. One drawn program took ten
times as long: 68 loops, each around a long select between barriers, 28 s of a foretold 2.7. So a
text that is foretold 2 s may take 20.
"""
AT_ONCE = 2.0
"""Seconds, foretold of a text, that NVRTC may take in the process that wants its machine code."""


@dataclass(frozen=True, slots=True)
class Part:
    """What most of a text is for, the statement that most of that is, and the loops that are
    unrolled around it; ``copies`` of the statement, and characters in all.
    """

    where: Where
    loops: tuple[str, ...]
    copies: int
    characters: int


@dataclass(frozen=True, slots=True)
class TextSize:
    """How large the text of a GPU's kernels is once their loops are unrolled, and how many loops
    are in it: NVRTC's time grows with that. One that takes longer than ``AT_ONCE`` has its
    ``largest`` part.
    """

    characters: int
    loops: int
    largest: Part | None = None

    @property
    def seconds(self) -> float:
        """What NVRTC is foretold to take."""
        return SECONDS + self.characters * (A_CHARACTER + A_LOOP * self.loops)


@dataclass(frozen=True, slots=True)
class Plan:
    """A compiled pipeline: parameters in calling order, source text and launches in order.

    ``patience``: seconds after which a wait inside a kernel ends its launch in an error, if any.
    ``size``: of a text for a GPU; none in files that were saved without it.
    """

    name: str
    target: str
    source: str
    buffers: tuple[BufferParam, ...]
    scalars: tuple[ScalarParam, ...]
    requirements: tuple[Requirement, ...]
    intermediates: tuple[Intermediate, ...]
    launches: tuple[Launch, ...]
    patience: float | None = None
    promises: tuple[Promise, ...] = ()
    size: TextSize | None = None
