"""What a case study is, as data: arrays, problems, and the case itself.

Shapes follow NumPy: the last axis is Halide's dimension 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Arrays = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An array of a pipeline. ``element`` is f16, bf16, f32, s8, u8 or s32; bf16 travels as uint16
    bits.
    """

    name: str
    shape: tuple[int, ...]
    element: str

    @property
    def dtype(self) -> str:
        """The NumPy type that holds an element."""
        return DTYPES[self.element]

    @property
    def bytes(self) -> int:
        size = ELEMENT_BYTES[self.element]
        for extent in self.shape:
            size *= extent
        return size


DTYPES = {
    "f16": "float16",
    "bf16": "uint16",
    "f32": "float32",
    "s8": "int8",
    "u8": "uint8",
    "s32": "int32",
}
ELEMENT_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "s8": 1, "u8": 1, "s32": 4}


class Problem(Protocol):
    """One instance of a case: its sizes and types."""

    @property
    def name(self) -> str:
        """Unique within the case, usable as a file name."""
        ...

    @property
    def program(self) -> str:
        """Names what must be compiled: problems that share it run the same kernel at other
        sizes.
        """
        ...

    @property
    def inputs(self) -> tuple[ArraySpec, ...]: ...

    @property
    def output(self) -> ArraySpec: ...

    @property
    def multiply_adds(self) -> int:
        """Useful multiply-adds of the definition, none of the padding that an instruction needs."""
        ...


@dataclass(frozen=True, slots=True)
class Peer:
    """Another implementation of the same job, made of GPU arrays.

    ``prepare(problem, inputs, output)`` gets CuPy arrays and returns a call without arguments that
    does the job once, or None if the peer cannot do it. ``note`` says which call it is.
    ``capturable``: may be put in a CUDA graph.
    """

    name: str
    note: str
    prepare: Callable[[Any, Arrays, Any], Callable[[], object] | None]
    capturable: bool = True


@dataclass(frozen=True, slots=True)
class Case:
    """A case study. ``output_name`` is the name of the pipeline's output Func.

    ``build(problem, schedule)`` returns the scheduled output Func (imports Halide);
    ``reference(problem, inputs, xp)`` the float64 result from decoded inputs, ``xp`` being NumPy or
    CuPy. ``tolerance`` bounds the relative Frobenius error for each output element type.
    ``compared`` are the benchmark problems that the peers are measured on, too.
    """

    name: str
    summary: str
    build: Callable[[Any, str], Any]
    reference: Callable[[Any, Mapping[str, Any], Any], Any]
    benchmark: tuple[Any, ...]
    small: tuple[Any, ...]
    options: Callable[[Mapping[str, Any]], Any]
    peers: tuple[Peer, ...] = ()
    compared: tuple[Any, ...] = ()
    schedules: tuple[str, ...] = ("tensor", "cuda")
    takes_image: bool = False
    output_name: str = "output"
    tolerance: Mapping[str, float] = field(
        default_factory=lambda: {"f32": 2e-3, "f16": 5e-3, "s32": 0.0}
    )
