"""What a case study is, as data: arrays, problems, and the case itself.

Shapes follow NumPy: the last axis is Halide's dimension 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from selector.diagnostics import UserError
from selector.targets import Target

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
COPY = "copy"  # a peer that is no library: what moving the bytes takes
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
class Option:
    """An option of a case on the command line: ``name`` "taps" is ``--taps``.

    ``parse`` turns its text into the value that ``Case.options`` gets under ``name``; a
    ``ValueError`` of it is the user's mistake. Not given, the value is None.
    """

    name: str
    help: str
    parse: Callable[[str], Any] = str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pictures:
    """How a case takes a picture and gives one back: float32 in [0, 1], shape (height, width), or
    (height, width, 3) where ``planes`` is 3 (RGB).

    ``inputs(problem, picture)``: all inputs of the pipeline, from a picture of the problem's
    extents. ``picture(problem, output)``: the output array as a picture.
    """

    planes: int
    inputs: Callable[[Any, np.ndarray], Arrays]
    picture: Callable[[Any, np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True)
class Sounds:
    """How a case takes a sound and gives one back: float32 in [-1, 1], shape (samples, channels).

    ``inputs(problem, sound)``: all inputs of the pipeline, from a sound of the problem's extents.
    ``sound(problem, output)``: the output array as a sound.
    """

    inputs: Callable[[Any, np.ndarray], Arrays]
    sound: Callable[[Any, np.ndarray], np.ndarray]


@dataclass(frozen=True, slots=True)
class Tunable:
    """``space(problem)``: the configurations to choose from, first the one that is used without
    tuning; ``schedule(problem, configuration)``: the output Func. Both import Halide.
    """

    space: Callable[[Any], Iterable[Any]]
    schedule: Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A case study. ``output_name`` is the name of the pipeline's output Func.

    ``build(problem, schedule)`` returns the scheduled output Func (imports Halide);
    ``reference(problem, inputs, xp)`` the float64 result from decoded inputs, ``xp`` being NumPy or
    CuPy. ``tolerance`` bounds the relative Frobenius error for each output element type.
    ``compared`` are the benchmark problems that the peers are measured on, too. Of ``schedules``,
    ``cuda`` and those that begin so are stock Halide's, the others the selector's.

    ``options`` makes a problem of the command line: ``size``, the numbers of ``--size`` or None
    (a picture's are (width, height), a sound's (samples, channels)), and a value or None for each
    of ``arguments``. ``interpreted`` is the size where the interpreter does the work and none is
    given. ``random(problem, seed, xp)``: inputs of its own where normally distributed ones do not
    suit. ``on_target(problem, schedule, target)``: the schedule that stands behind that name on a
    target, where it is not the same on all. ``plain(problem)``: the output without any schedule,
    where the compiler makes that of ``tensor`` (``build`` does not know it then);
    ``tilings(problem, target)``: those that it is to take, by the names of Funcs.
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
    arguments: tuple[Option, ...] = ()
    pictures: Pictures | None = None
    sounds: Sounds | None = None
    random: Callable[[Any, int, Any], Arrays] | None = None
    interpreted: tuple[int, ...] | None = None
    on_target: Callable[[Any, str, Target], str] | None = None
    output_name: str = "output"
    tuning: Tunable | None = None
    plain: Callable[[Any], Any] | None = None
    tilings: Callable[[Any, Target], Mapping[str, Any]] | None = None
    tolerance: Mapping[str, float] = field(
        default_factory=lambda: {"f32": 2e-3, "f16": 5e-3, "bf16": 1e-2, "s32": 0.0, "s8": 2e-3}
    )

    def scheduled(self, problem: Any, schedule: str, target: str) -> Any:
        """The output, scheduled for a target by its name (``cuda``: the GPU at hand)."""
        from selector import resolve_target

        if schedule == "tensor" and self.plain is not None:
            from casestudies.common import automatic

            found = resolve_target(target)
            tilings = self.tilings(problem, found) if self.tilings is not None else None
            arrays = (*problem.inputs, problem.output)
            return automatic.scheduled(self.plain(problem), arrays, found, tilings)
        if self.on_target is not None:
            schedule = self.on_target(problem, schedule, resolve_target(target))
        return self.build(problem, schedule)


def bytes_of(problem: Problem) -> int:
    """Bytes that the job has to move: the problem's own count ``bytes`` if it has one, else each
    input read once and the output written once.
    """
    own = getattr(problem, "bytes", None)
    if own is not None:
        return int(own)
    return sum(spec.bytes for spec in (*problem.inputs, problem.output))


def positive(text: str) -> int:
    """The value of an option that counts something."""
    value = int(text)
    if value < 1:
        raise ValueError(f"{text} is not positive")
    return value


def given(options: Mapping[str, Any], *names: str, **usual: Any) -> dict[str, Any]:
    """Those of the options that the user gave, and what is ``usual`` where that is said."""
    said = {name: options.get(name) for name in (*names, *usual)}
    return usual | {name: value for name, value in said.items() if value is not None}


def check_schedule(schedule: str, *known: str) -> None:
    """``UserError`` for a name that is none of a case's schedules."""
    if schedule not in known:
        raise UserError(f"no schedule {schedule!r}", hint=f"schedules: {', '.join(known)}")


def check_operands(schedule: str, element: str, other: str) -> None:
    """``UserError`` where a schedule has no arithmetic for operands; ``other`` is the option for
    those that AMX has.
    """
    if schedule == "cuda" and element == "bf16":
        raise UserError("stock Halide 21 cannot compile bfloat16 arithmetic for CUDA")
    if schedule == "amx" and element == "f16":
        raise UserError("AMX multiplies bf16 and bytes, not f16", hint=other)


def size_of(
    options: Mapping[str, Any], form: str, counts: Sequence[int], usual: tuple[int, ...]
) -> tuple[int, ...]:
    """``size`` as the user gave it, or the ``usual`` one; ``UserError`` if it is not as many
    numbers as one of ``counts``, all of them positive. ``form`` says what it is.
    """
    size = options.get("size") or usual
    numbers = size if isinstance(size, tuple) else (size,)
    if len(numbers) not in counts or any(not isinstance(n, int) or n < 1 for n in numbers):
        raise UserError(f"a size is {form}, not {'x'.join(map(str, numbers))}")
    return numbers


def picture_size(options: Mapping[str, Any], usual: int) -> tuple[int, int]:
    """``size`` of a picture: (width, height), or one number for both."""
    size = size_of(options, "WIDTHxHEIGHT, or one number for both", (1, 2), (usual,))
    return size[0], size[-1]


def product_size(options: Mapping[str, Any]) -> tuple[int, int, int]:
    """``size`` of a matrix product: (m, n, k), or one number for all (default 1024)."""
    size = size_of(options, "N or MxNxK", (1, 3), (1024,))
    return size[0], size[len(size) // 2], size[-1]


def check_known(case: str, what: str, value: str, known: Sequence[str], hint: str = "") -> None:
    """``UserError`` for a value that is none of those there are."""
    if value not in known:
        names = ", ".join(filter(None, known))
        raise UserError(f"{case} has no {what} {value!r}", hint=f"{hint or f'{what}s:'} {names}")
