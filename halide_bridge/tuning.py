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

    What to try. ``schedule`` builds a pipeline anew for each configuration and returns its
    scheduled output: ``schedule(**configuration)`` for a space of names, ``{"n": (128, 256),
    "stages": (3, 4)}``, ``schedule(configuration)`` for any other iterable. ``where``, called the
    same way, refuses combinations. The order is that of the space (the last name varies fastest),
    or that of the seed ``shuffle``.

    What to call. ``arguments``: arrays of NumPy, CuPy or torch and scalars, by parameter, or a
    function without arguments that makes them; ``sizes`` where a call needs it. Times are
    microseconds, medians of CUDA graph replays over copies of the arrays that rotate through more
    memory than the L2 cache holds.

    What is right. Every kernel writes to poisoned outputs, which are compared before it is timed.
    ``reference``: the results to expect (an array, or arrays by output), a function that computes
    them from the arguments as they were given or made, ``"interpreter"`` (of the first
    configuration: slow beyond small sizes), or None: what the first configuration gives; should any
    other then disagree, there is no best one. ``tolerance`` bounds the relative Frobenius error
    (2e-3; 5e-3 for 16-bit floats; integers exact).

    What can go wrong. A configuration that raises, cannot be compiled, crashes, hangs or takes more
    than ``limit`` seconds in a step loses itself alone: its trial says why. Compilers and kernels
    run in ``workers`` processes of their own (default: one a processor, and one for the GPU);
    ``schedule`` does too where a process can import it, and is called here where not (a lambda, a
    closure, a function of the main module). ``executor`` runs them elsewhere.

    What is kept. Each finished trial is on disk, in ``folder`` or the kernel cache's, found again
    by the kernel's program (which holds the configuration), the versions, the GPU, its driver, the
    arguments' shapes and types, and the check: an interrupted call goes on where it was, and a
    changed space reuses what it shares with the old one. ``retry`` tries failed ones again.
    ``seconds``: none is begun after that time; ``most``: only the first so many are tried.

    Without a GPU. ``build_only`` compiles, for a named target, into ``folder``, which
    ``selector.tuning.tune_saved`` times on another machine. ``measure(kernel, configuration)``
    replaces the timing: it returns microseconds or a ``selector.tuning.Measurement``, and has to
    see to checking; ``device`` names what its times are from.

    ``progress``: a line on standard error, if that is a terminal; True, False, or a function that
    gets each ``Trial``. ``name``, ``strict`` and ``instructions`` are those of ``compile``.

    ``TargetError`` where there is no GPU to time on, ``UserError`` for a space with nothing in it
    and for a reference that cannot be computed, ``ArgumentError`` for arguments that are none.
    """
    from selector.tuning.building import Options
    from selector.tuning.request import Request
    from selector.tuning.space import points_of
    from selector.tuning.start import Run, Timing

    points = points_of(space, where, shuffle)
    only = None if instructions is None else tuple(instructions)
    timing = Timing(arguments, reference, tolerance, sizes, measure, device, build_only)
    if target == "cuda" and (build_only or measure is not None):
        from selector import resolve_target

        target = resolve_target(target).name
    if build_only and folder is None:
        raise UserError(
            "build_only=True builds for another machine, and says not where",
            hint="folder='kernels', to be timed there by selector.tuning.tune_saved",
        )
    inner = schedule.func if isinstance(schedule, partial) else schedule
    known = getattr(inner, "__name__", type(inner).__name__)
    request = Request(
        name or known, Options(target, strict, only), points, partial(lower_point, schedule, name)
    )
    run = Run(folder, seconds, most, limit, workers, executor, progress, retry)
    return run.go(request, timing)


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
