"""What the problems of filters of an image share: names, arrays, and the choice of a schedule.

conv1d and conv2d filter at every pixel (``Convolution``), downsample and upsample by a factor
(``Sampling``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

from casestudies.common.boundary import VALID, before, check, suffix
from casestudies.common.case import ArraySpec, Tunable, check_schedule, given, picture_size
from selector.diagnostics import UserError
from selector.families.windows import Axis, Shape, Tiling, ranked
from selector.families.windows.limits import why_not
from selector.machine import machine_for
from selector.targets import find_target

ELEMENTS = ("f16", "bf16")
TARGET = "sm_90a"
ROOM = "sm_86"  # has least shared memory


@dataclass(frozen=True, slots=True)
class Tilings:
    """The model's choices for a filter: the best for a GPU with wgmma, the best for warps of any
    GPU, and the best for warpgroups, if they take the filter.
    """

    best: Tiling
    warps: Tiling
    groups: Tiling | None


@lru_cache(maxsize=4096)
def tilings_of(shape: Shape) -> Tilings:
    """Plain arithmetic: programs are named by it, where there is no Halide."""
    room, found = find_target(ROOM), [t for _, t in ranked(shape, machine_for(TARGET))]
    warps = next((t for t in found if t.unit == "warp" and not why_not(t, shape, room)), found[0])
    groups = next((t for t in found if t.unit == "group"), None)
    return Tilings(next(t for t in found if t in (warps, groups)), warps, groups)


class Filtering:
    """A filter of ``taps`` taps along each of ``axes``, whose output has ``width`` x ``height``
    pixels; ``title`` is the case's.
    """

    __slots__ = ()
    title: ClassVar[str]
    axes: ClassVar[int] = 2
    width: int
    height: int
    taps: int
    boundary: str

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        """The image and the taps."""
        raise NotImplementedError

    @property
    def axis(self) -> Axis:
        """What an output reads along each of the axes."""
        return Axis(self.taps, first=-before(self.boundary, self.taps))

    @property
    def shape(self) -> Shape:
        """The problem as its family of schedules knows it."""
        down = self.axis if self.axes == 2 else Axis(1)
        return Shape(
            self.width, self.height, self.axis, down, declared=self.boundary == VALID,
            aligned=self.inputs[0].shape[1] % 8 == 0,
        )  # fmt: skip

    @property
    def tilings(self) -> Tilings:
        return tilings_of(self.shape)

    def tiling(self, schedule: str) -> Tiling:
        """Of the schedule ``mma``, for warps, or ``wgmma``; ``UserError`` if it has none."""
        found = self.tilings.groups if schedule == "wgmma" else self.tilings.warps
        if found is None:
            raise UserError(f"warpgroups have no tiles for {self.name}")
        return found

    @property
    def kind(self) -> str:
        """What tells pipelines apart besides taps and boundary."""
        return ""

    @property
    def variant(self) -> str:
        """What tells pipelines apart."""
        return f"{self.title}-k{self.taps}{self.kind}{suffix(self.boundary)}"

    @property
    def name(self) -> str:
        return f"{self.variant}-{self.width}x{self.height}"

    @property
    def program(self) -> str:
        """Named by the tiles."""
        return f"{self.variant}-{self.tilings.best.label}"

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", (self.height, self.width), "f32")

    @property
    def multiply_adds(self) -> int:
        return self.width * self.height * self.taps**self.axes

    def arrays(self, image: tuple[int, ...], element: str = "f16") -> tuple[ArraySpec, ...]:
        """An image of that shape, and the taps."""
        taps = (self.taps,) * self.axes
        return ArraySpec("I", image, element), ArraySpec("K", taps, element)


@dataclass(frozen=True, slots=True)
class Convolution(Filtering):
    """Extents of the output, taps along each axis, and rows and columns of the image that are not
    read: of rows only where there are taps along them.
    """

    width: int
    height: int
    taps: int
    spare: int = 0
    boundary: str = VALID
    element: str = "f16"

    def __post_init__(self) -> None:
        check(self.title, self.boundary)
        if self.element not in ELEMENTS:
            raise UserError(
                f"{self.title} of {self.element!r}", hint=f"elements: {', '.join(ELEMENTS)}"
            )
        if min(self.width, self.height, self.taps) < 1 or self.spare < 0:
            size = f"{self.width} x {self.height}"
            if self.axes == 1:
                what = f"{self.taps} taps leave an output of {size} pixels"
            else:
                what = f"{self.taps} x {self.taps} taps leave {size} pixels"
            hint = f"the image must be {'wider' if self.axes == 1 else 'larger'} than the taps"
            raise UserError(f"{self.title}: {what}", hint=hint)

    @classmethod
    def of_image(
        cls, width: int, height: int, taps: int, boundary: str = VALID, element: str = "f16"
    ) -> Self:
        """The paper's size: an image of ``width`` columns gives ``width - taps`` outputs a row, one
        that continues ``width``.
        """
        if boundary != VALID:
            return cls(width, height, taps, 0, boundary, element)
        rows = height - taps if cls.axes == 2 else height
        return cls(width - taps, rows, taps, 1, boundary, element)

    @property
    def kind(self) -> str:
        return "" if self.element == "f16" else f"-{self.element}"

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        margin = self.spare + (self.taps - 1 if self.boundary == VALID else 0)
        rows = self.height + (margin if self.axes == 2 else 0)
        return self.arrays((rows, self.width + margin), self.element)

    @classmethod
    def from_options(cls, options: Mapping[str, Any], taps: int) -> Self:
        """``taps`` (by default so many), ``boundary`` (valid), ``element`` (f16) and ``size``, the
        (width, height) of the image.
        """
        width, height = picture_size(options, 4096)
        return cls.of_image(width, height, **given(options, "boundary", "element", taps=taps))


@dataclass(frozen=True, slots=True)
class Sampling(Filtering):
    """Extents of the output, taps along each axis (of all phases), the factor, and rows and columns
    that the image has beyond the last ones that are needed.
    """

    width: int
    height: int
    taps: int
    factor: int = 2
    boundary: str = VALID
    spare: int = 0

    def __post_init__(self) -> None:
        check(self.title, self.boundary)

    @property
    def kind(self) -> str:
        return "" if self.factor == 2 else f"-by{self.factor}"


def space(problem: Filtering) -> list[Tiling]:
    """The family's tiles as the model ranks them, those that are used without tuning first."""
    best = problem.tilings.best
    return [best, *(t for _, t in ranked(problem.shape, machine_for(TARGET)) if t != best)]


def scheduled(p: Any, problem: Filtering, schedule: str, threads: Any = None) -> Any:
    """The output of a pipeline of ``filters``, scheduled as ``mma`` or ``wgmma`` (sm_90a),
    ``cuda`` (in such threads), ``amx`` or ``plain`` (Halide's default, for the CPU).
    """
    from casestudies.common import amx, filters

    check_schedule(schedule, "mma", "wgmma", "cuda", "amx", "plain")
    match schedule:
        case "amx":
            return amx.amx(p)
        case "cuda":
            return filters.cuda(p, problem, threads)
        case "plain":
            p.total.compute_root()
            return p.output
        case _:
            return filters.tensor(p, problem.tiling(schedule))


def tunable(defined: Callable[[Any], Any]) -> Tunable:
    """The choice of tiles for a case, of whose problems ``defined`` gives the unscheduled Funcs."""

    def configured(problem: Filtering, tiling: Tiling) -> Any:
        from casestudies.common import filters

        return filters.tensor(defined(problem), tiling)

    return Tunable(space, configured)
