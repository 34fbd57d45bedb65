"""One call from a space of schedules to the fastest kernel.

What runs it is imported when it is called: most processes never tune.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halide_bridge.lowering import lower
from selector.diagnostics import UserError

if TYPE_CHECKING:
    from selector.tuning import Executor, Trial, Tuning
    from selector.tuning.building import Lowered, Options
    from selector.tuning.request import Request
    from selector.tuning.space import Point

_outputs: list[object] = []  # the one that was lowered last in this process


def tune(
    schedule: Callable[..., Any],
    space: Mapping[str, Iterable[Any]] | Iterable[Any],
    arguments: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    *,
    target: str = "cuda",
    name: str | None = None,
    where: Callable[..., bool] | None = None,
    shuffle: int | None = None,
    reference: Any = None,
    tolerance: float | None = None,
    sizes: Any = None,
    measure: Callable[..., Any] | None = None,
    device: str = "",
    build_only: bool = False,
    folder: str | Path | None = None,
    seconds: float | None = None,
    most: int | None = None,
    limit: float = 60.0,
    workers: int | None = None,
    executor: Executor | None = None,
    progress: bool | Callable[[Trial], object] | None = None,
    retry: bool = False,
    strict: bool = True,
    instructions: Iterable[str] | None = None,
) -> Tuning:
    """Compile, check and time every configuration of a space; ``.best`` is the fastest right one.

    ``schedule`` builds a pipeline anew for each and returns its scheduled output:
    ``schedule(**configuration)`` for a space of names, ``{"n": (128, 256), "stages": (3, 4)}``,
    ``schedule(configuration)`` for any other iterable; ``where``, called the same way, refuses
    some. The order is the space's (the last name varies fastest), or that of the seed ``shuffle``.

    ``arguments``: arrays and scalars by parameter, or a function that makes them; ``sizes`` where a
    call needs it. ``reference``: the results to expect (an array, arrays by output), a function of
    the arguments, ``"interpreter"`` (of the first configuration), or None: what the first one
    gives; should any other then disagree, there is no best one. ``tolerance`` bounds the relative
    Frobenius error (2e-3; 5e-3 for 16-bit floats; integers exact). Times are microseconds.

    What raises, crashes or takes more than ``limit`` seconds in a step loses itself alone: it runs
    in one of ``workers`` processes (default: one a processor, one for the GPU), or in the
    ``executor``'s. Trials are kept in ``folder``, or the kernel cache's; ``retry`` tries failed
    ones again. None begins after ``seconds``, and only the first ``most`` do.

    ``build_only`` compiles into ``folder``, for ``selector.tuning.tune_saved`` on another machine.
    ``measure(kernel, configuration)`` takes the place of timing and checking: microseconds or a
    ``Measurement``; ``device`` says what of. ``progress``: a line on standard error, if that is a
    terminal; True, False, or a function that gets each ``Trial``. The others are ``compile``'s.

    ``TargetError`` where there is no GPU to time on, ``UserError`` for a space with nothing in it
    and for a reference that cannot be computed, ``ArgumentError`` for arguments that are none.
    """
    from selector.tuning.space import points_of
    from selector.tuning.start import Run, Timing

    points = points_of(space, where, shuffle)
    timing = Timing(arguments, reference, tolerance, sizes, measure, device, build_only)
    run = Run(folder, seconds, most, limit, workers, executor, progress, retry)
    options = _options(target if timing.on_gpu else _named(target), strict, instructions)
    return run.go(_request(schedule, points, options, name), timing)


def _options(target: str, strict: bool, instructions: Iterable[str] | None) -> Options:
    from selector.tuning.building import Options

    return Options(target, strict, None if instructions is None else tuple(instructions))


def _request(
    schedule: Callable[..., Any], points: tuple[Point, ...], options: Options, name: str | None
) -> Request:
    """What is to be tried; without a name it has that of the schedule's function."""
    from selector.tuning.request import Request

    inner = schedule.func if isinstance(schedule, partial) else schedule
    known = getattr(inner, "__name__", type(inner).__name__)
    return Request(name or known, options, points, partial(lower_point, schedule, name))


def _named(target: str) -> str:
    """The target's own name, that of the GPU at hand for ``cuda``."""
    from selector import resolve_target

    return resolve_target(target).name if target == "cuda" else target


def lower_point(
    schedule: Callable[..., Any], name: str | None, point: Point, options: Options
) -> Lowered:
    """The program of a configuration; ``UserError`` if it is the Func of the one before."""
    from selector.tuning.building import lowered

    output = point.call(schedule)
    if _outputs and _outputs[0] is output:
        raise UserError(
            "the schedule returned the same Func for two configurations",
            why="schedules add up on a Func",
            hint="build the pipeline inside the function",
        )
    _outputs[:] = [output]
    return lowered(lower(output, target=options.target, name=name), options)
