"""Errors of the bridge: arguments, directives that cannot be met, what Halide itself refuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from halide_bridge.memory import Directives
from halide_bridge.names import Names, of_user, plain
from halide_bridge.native import native
from halide_bridge.records import Record
from halide_bridge.stock import Func, HalideError, is_func, is_image_param, is_input, is_pipeline
from selector.diagnostics import ScheduleError, Where
from selector.ir.contents import holds, loaded
from selector.ir.nodes import IfThenElse, Shuffle, Stmt, Store, VectorReduce
from selector.ir.printer import print_expr, print_stmt
from selector.ir.traverse import walk_stmt

LARGEST_VECTOR = 65535
_LANES = re.compile(r"up to 65535 lanes. (\d+) lanes requested")
_NO_GPU = re.compile(r"Schedule for Func (\S+) requires <Default_GPU>")
_UNBOUNDED = re.compile(r"calls function (\S+) in an unbounded way in dimension (\d+)")
_VECTOR_VAR = re.compile(r"\.v\d+$")  # the inner variable that `vectorize(x, n)` makes
_HEADER = re.compile(
    r"^(?:\w+ )?[Ee]rror(?: at \S+)?:?\s*|Condition failed: .*? Error: ", re.DOTALL
)


def output_funcs(output: object, location: str) -> list[Func]:
    """The Funcs of a Func, a Pipeline or a list of Funcs; ScheduleError for anything else."""
    if is_image_param(output):
        raise ScheduleError(
            f"`{plain(output.name())}` is an ImageParam, an input; nothing computes it",
            where=location,
        )
    if is_pipeline(output):
        funcs = list(output.outputs())
    else:
        given = list(output) if isinstance(output, list | tuple) else [output]
        funcs = [f for f in given if is_func(f)]
        if not given or len(funcs) != len(given):
            raise ScheduleError(
                f"an output is a halide.Func, a halide.Pipeline or a list of Funcs, "
                f"not {output!r:.80}",
                where=location,
            )
    for n, func in enumerate(funcs):
        _check_defined(func, location)
        if any(func.name() == f.name() for f in funcs[:n]):
            raise ScheduleError(
                f"`{plain(func.name())}` is an output twice",
                hint="name it once, or compute a Func of its own from it",
                where=location,
            )
    return funcs


def _check_defined(func: Func, location: str) -> None:
    if not func.defined():
        name = plain(func.name())
        raise ScheduleError(
            f"the Func `{name}` has no definition",
            hint=f"define it first: `{name}[x, y] = ...`",
            where=location,
        )


def input_order(
    inputs: Sequence[object] | None, location: str
) -> Callable[[str, bool], tuple[int, str]]:
    """A sort key for parameters: the order of ``inputs``, then the rest by Halide's name."""
    place: dict[str, int] = {}
    for i, value in enumerate(inputs or ()):
        if not is_input(value):
            raise ScheduleError(
                f"inputs are ImageParams and Params, not {type(value).__name__}", where=location
            )
        place[value.name()] = i

    def key(name: str, is_output: bool) -> tuple[int, str]:
        return (0, "") if is_output else (place.get(name, len(place)), name)

    return key


def refuse_embedded(names: Sequence[str], location: str) -> None:
    """Constant images inside a pipeline have no form in a module."""
    if names:
        raise ScheduleError(
            f"the pipeline holds the contents of a Buffer (`{plain(names[0])}`)",
            why="a module has parameters and no data of its own",
            hint="read it through an ImageParam and pass the array when the kernel is called",
            where=location,
        )


def refuse_repeated(names: Collection[str], location: str) -> None:
    """Arguments are given by name."""
    for name in sorted(names):
        raise ScheduleError(
            f"the pipeline has two parameters named `{name}` that are no one argument",
            why="arrays and numbers are given by name, and these have other types or dimensions",
            hint="give each ImageParam and Param, and each output, a name of its own",
            where=location,
        )


def check_unused(
    unused: Sequence[tuple[Func, Directives]], env: Sequence[str], outputs: Sequence[Func]
) -> None:
    """Refuse if a marked Func shares inputs with this pipeline and is in none lowered so far.

    A Func of the same name in this pipeline makes the two variants of one algorithm, built before
    either is lowered; that is no mistake.
    """
    names_here = {plain(name) for name in env}
    for func, directives in unused:
        if not func.defined() or plain(directives.func) in names_here:
            continue
        others = {f[0] for f in native().describe_funcs([func])} - {directives.func}
        if others & set(env):
            names = ", ".join(f"`{plain(f.name())}`" for f in outputs)
            raise ScheduleError(
                f"`{plain(directives.func)}` was placed in {_kind(directives)} "
                f"and {names} does not use it",
                why="it reads the same inputs, and no output depends on it",
                hint="compute the output from it, or remove the store_in",
                where=Where(func=plain(directives.func), location=directives.location),
            )


def check_directives(
    described: Sequence[Record], directives: Mapping[str, Directives], outputs: Sequence[Func]
) -> None:
    """What a tensor unit's Func must have before anything is lowered."""
    stored = {f.name() for f in outputs}
    for unique, kind, inlined in described:
        name = plain(unique)
        if kind == "extern":
            raise ScheduleError(
                f"`{name}` is an extern stage, which cannot be compiled for a tensor target"
            )
        asked = directives.get(unique)
        if asked is None or asked.kind is None:
            continue
        where = Where(func=name, location=asked.location)
        if unique in stored:
            raise ScheduleError(
                f"`{name}` is placed in {_kind(asked)} and has no storage of its own",
                why="an output is stored in its buffer",
                hint=f"make another Func the output: `out[x, y] = {name}[x, y]`",
                where=where,
            )
        if kind != "update":
            raise ScheduleError(
                f"`{name}` is placed in {_kind(asked)} and has no update definition",
                why="a tensor unit accumulates: it needs `f[...] = 0` and `f[...] += a * b`",
                hint="mark the Func that holds the sum over the reduction domain",
                where=where,
            )
        if inlined:
            raise ScheduleError(
                f"`{name}` is placed in {_kind(asked)} and is not computed anywhere",
                hint=f"say where its tiles live: `{name}.compute_at(consumer, var)`",
                where=where,
            )


def check_marked(body: Stmt, directives: Mapping[str, Directives], names: Names) -> None:
    """Every tensor Func must be updated by a vector reduction, not by scalar loops; or not at all,
    where nothing is left of its reduction domain.
    """
    stores = (s for s in walk_stmt(body) if isinstance(s, Store))
    reduced = {s.buffer for s in stores if holds(s.value, VectorReduce)}
    for name, asked in directives.items():
        buffer = names(name)
        if asked.kind is None or buffer in reduced or not is_updated(body, buffer):
            continue
        where = Where(func=buffer, stage="update 0", location=asked.location)
        raise _scalarized(body, buffer, asked, where)


def is_updated(body: Stmt, buffer: str) -> bool:
    """Whether some statement computes elements of a buffer from what is in it."""
    stores = (s for s in walk_stmt(body) if isinstance(s, Store) and s.buffer == buffer)
    return any(buffer in loaded(s.value) for s in stores)


def _scalarized(body: Stmt, buffer: str, asked: Directives, where: Where) -> ScheduleError:
    updates = [s for s in walk_stmt(body) if isinstance(s, Store) and s.buffer == buffer]
    statement = print_stmt(updates[-1]) if updates else ""
    why, hint = _split_by(body, updates[-1]) if updates else ("it has no update", "")
    innermost = (
        f"`{buffer}.update().atomic().vectorize(r).vectorize(x)...`: vectorize a reduction "
        "variable innermost and the pure variables of one tile around it, unroll over tiles"
    )
    return ScheduleError(
        f"the update of `{buffer}` is not one vector statement, so {_kind(asked)} cannot hold it",
        why=f"its loops hold no reduction over vector lanes: {why}",
        hint=hint or innermost,
        where=Where(where.func, where.stage, where.location, statement[:400]),
    )


def _split_by(body: Stmt, update: Store) -> tuple[str, str]:
    """What keeps an update from being one vector statement, and the way out if it is another than
    to vectorize it."""
    lanes = update.value.type.lanes
    if holds(update.value, Shuffle):
        return (
            "its sum is vectorized outside of the tile, so Halide takes the vector apart and adds "
            "the pieces",
            "",
        )
    if lanes > 1:
        return (
            f"its {lanes} outputs are vectorized and its sum is not, whose terms are statements or "
            "turns of a loop",
            "",
        )
    conditions = [
        s.condition
        for s in walk_stmt(body)
        if isinstance(s, IfThenElse) and any(x is update for x in walk_stmt(s))
    ]
    if conditions:
        return (
            "a condition guards it, under which Halide takes vectors apart: "
            f"`{print_expr(conditions[-1])[:80]}`",
            "add what is summed to the element itself, `f[...] += a*b`: then a condition of the "
            "algorithm (`RDom.where`) is one of its terms; where it is the tail of a split, let "
            "the tile divide the extent",
        )
    return "it was not vectorized", ""


def _kind(directives: Directives) -> str:
    return "no tensor memory" if directives.kind is None else directives.kind.name


def halide_errors() -> tuple[type[Exception], ...]:
    """What Halide raises, from Python and from the native module."""
    return native().HalideError, HalideError


def in_words(text: str) -> str:
    """What Halide says of an error, without where in Halide and in names that users know."""
    return plain(_HEADER.sub("", text).strip())


def run_native(
    function: Callable[..., Any], outputs: list[Func], request: dict[str, Any], location: str
) -> Any:
    """Call the native module; what Halide refuses becomes a ScheduleError."""
    try:
        return function(outputs, request)
    except halide_errors() as error:
        raise _explained(str(error), outputs, location) from error


def _explained(text: str, outputs: list[Func], location: str) -> ScheduleError:
    lanes = _LANES.search(text)
    if lanes is not None:
        return _too_long(int(lanes[1]), outputs, location)
    on_gpu = _NO_GPU.search(text)
    if on_gpu is not None:
        func = plain(on_gpu[1])
        return ScheduleError(
            f"`{func}` has loops over GPU blocks or threads, and the target is a CPU",
            hint="leave out gpu_blocks, gpu_threads and gpu_tile, and use parallel and vectorize; "
            "or compile for a GPU target such as sm_80",
            where=Where(func=func, location=location),
        )
    unbounded = _UNBOUNDED.search(text)
    if unbounded is not None:
        func = of_user(unbounded[1], (f.name() for f in outputs))
        return ScheduleError(
            f"dimension {unbounded[2]} of `{func}` is read or written at any place",
            why="an index depends on data, and Halide knows no bounds of it",
            hint="clamp the index: `hl.clamp(index, 0, size - 1)`",
            where=Where(func=func, location=location),
        )
    name = plain(outputs[0].name())
    return ScheduleError(
        f"Halide cannot lower `{name}`: {in_words(text)}", where=Where(func=name, location=location)
    )


def _too_long(lanes: int, outputs: list[Func], location: str) -> ScheduleError:
    stages = native().describe_vectors(outputs)
    suspects = [s for s in stages if _product(s[2]) > LARGEST_VECTOR] or [
        s for s in stages if s[2] and any(n < 0 for _, n in s[2])
    ]
    listed = "; ".join(
        f"`{plain(func)}` {stage}: {_factors(vectors)}" for func, stage, vectors in suspects
    )
    return ScheduleError(
        f"a vector statement of {lanes} lanes is too long: "
        f"Halide's vectors have at most {LARGEST_VECTOR} lanes",
        why=listed,
        hint="vectorize fewer outputs in one statement and unroll over several, or split the "
        "reduction variable and vectorize its inner part",
        where=Where(plain(suspects[0][0]), suspects[0][1], location) if suspects else location,
    )


def _product(vectors: Sequence[tuple[str, int]]) -> int:
    total = 1
    for _, count in vectors:
        total *= max(count, 1)
    return total


def _factors(vectors: Sequence[tuple[str, int]]) -> str:
    return " * ".join(
        f"{_VECTOR_VAR.sub('', plain(var))} ({count if count > 0 else 'whole extent'})"
        for var, count in vectors
    )
