"""The text of a program of the ``form`` "stages": its algorithm and a schedule by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fuzzing import elements
from fuzzing.elements import EXACT, HALIDE, Expression, limits, text
from fuzzing.program import Program


def _names(p: Program) -> list[str]:
    return list("xyz"[: len(p.axes)])


def pipeline(p: Program) -> Iterator[str]:
    """The lines of ``pipeline(scheduled)``."""
    parts, names = dict(p.parts), _names(p)
    at, inputs = ", ".join(names), dict(parts["inputs"])
    yield f"{at}{',' if len(names) == 1 else ''} = map(hl.Var, {names})"
    for name, kind in inputs.items():
        dims = {"T": 1, "K": min(2, len(names))}.get(name, len(names))
        yield f'{name} = hl.ImageParam({HALIDE[kind]}, {dims}, "{name}")'
    if parts["edges"]:
        more = f", hl.cast({HALIDE[inputs['A']]}, 1)" if "constant" in parts["edges"] else ""
        yield f"A_ = hl.BoundaryConditions.{parts['edges']}(A{more})"
    for stage in parts["stages"]:
        yield from _stage_lines(p, stage, at)
    values = [_text(p, e) for e in parts["outputs"]]
    if parts["together"]:
        yield 'out = hl.Func("out")'
        yield f"out[{at}] = ({', '.join(values)})"
        yield "outputs = [out]"
    else:
        for n, value in enumerate(values):
            yield f'out{n} = hl.Func("out{n}")'
            yield f"out{n}[{at}] = {value}"
        yield f"outputs = [{', '.join(f'out{n}' for n in range(len(values)))}]"
    yield "if not scheduled:"
    for name, *_ in parts["stages"]:
        yield f"    {name}.compute_root()"
    yield f"    return outputs, ({', '.join(inputs)},)"
    yield from _schedule(p) if p.schedule == "drawn" else _own(p)
    yield "return outputs"


def _text(p: Program, e: Expression, variables: tuple[str, ...] = ()) -> str:
    found = text(e, _names(p), variables)
    return found.replace("A[", "A_[") if dict(p.parts)["edges"] else found


def _stage_lines(p: Program, stage: tuple[Any, ...], at: str) -> Iterator[str]:
    name, _, _, reduction, e = stage
    yield f'{name} = hl.Func("{name}")'
    if not reduction:
        yield f"{name}[{at}] = {_text(p, e)}"
        return
    how, *counts = reduction
    yield f'r{name} = hl.RDom([{", ".join(f"(0, {n})" for n in counts)}], "r{name}")'
    variables = tuple(f"r{name}.{v}" for v in "xy"[: len(counts)])
    value, own = _text(p, e, variables), HALIDE[e[1]]
    low, high = ends(e[1])
    if how == "sum":
        yield f"{name}[{at}] = hl.cast({own}, 0)"
        yield f"{name}[{at}] += {value}"
    elif how in ("max", "min"):
        yield f"{name}[{at}] = hl.cast({own}, {low if how == 'max' else high})"
        yield f"{name}[{at}] = hl.{how}({name}[{at}], {value})"
    elif how == "both":  # the largest and where it is first, as a tuple
        yield f'pair_{name} = hl.Func("pair_{name}")'
        yield f"pair_{name}[{at}] = (hl.cast({own}, {low}), 0)"
        yield f"more = {value} > pair_{name}[{at}][0]"
        where = _flat(variables, counts)
        yield f"pair_{name}[{at}] = (hl.select(more, {value}, pair_{name}[{at}][0]),"
        yield f"    hl.select(more, {where}, pair_{name}[{at}][1]))"
        last = f"pair_{name}[{at}][0] + hl.cast({own}, pair_{name}[{at}][1] % 2)"
        yield f"{name}[{at}] = {last}"
    else:
        yield f"found = hl.argmax({value})"
        yield f"{name}[{at}] = {_flat(tuple(f'found[{d}]' for d in range(len(counts))), counts)}"


def ends(kind: str) -> tuple[int, int]:
    """Below and above all values."""
    if kind in elements.FLOATS:
        return -EXACT[kind], EXACT[kind]
    low, high = limits(kind)
    return max(low, -(1 << 31)), min(high, (1 << 31) - 1)


def _flat(variables: tuple[str, ...], counts: list[int]) -> str:
    x, *y = variables
    return x if not y else f"{x} + {counts[0]}*{y[0]}"


def _own(p: Program) -> Iterator[str]:
    sizes = f", sizes={p.sizes[::-1]}" if p.schedule == "sized" else ""
    yield f'pipeline.schedule = hb.autoschedule(outputs, target="{p.target}"{sizes})'


def _schedule(p: Program) -> Iterator[str]:
    parts = dict(p.parts)
    wide, tall = parts["tile"]
    vector = int(parts["vector"])
    outputs = ["out"] if parts["together"] else [f"out{n}" for n in range(len(parts["outputs"]))]
    for name in outputs:
        yield from _tiled(p, name, wide, tall, vector)
    for name, _, place, reduction, _ in parts["stages"]:
        funcs = [name, f"pair_{name}"] if reduction and reduction[0] == "both" else [name]
        for func in funcs:
            updates = [func] if not reduction or func != funcs[-1] else [func, f"{func}.update()"]
            if reduction and reduction[0] == "first":
                updates = [func]
            if place == "root":
                yield f"{func}.compute_root()"
                for stage in updates:
                    yield from _tiled(p, stage, 16, 4, 1)
            elif place == "shared":
                yield f"{func}.compute_at({outputs[0]}, xo).store_in(hl.MemoryType.GPUShared)"
                threads = ", ".join(_names(p)[:2])
                for stage in updates:
                    yield f"{stage}.gpu_threads({threads})"
            elif place == "register":
                yield f"{func}.compute_at({outputs[0]}, xi)"


def _tiled(p: Program, stage: str, wide: int, tall: int, vector: int) -> Iterator[str]:
    """Tiles of threads, each with a vector along x."""
    names = _names(p)
    yield 'xo, xi, xv, yo, yi = map(hl.Var, "xo xi xv yo yi".split())'
    yield f"{stage}.split(x, xo, xi, {wide * vector})"
    order, blocks, threads = ["xi"], ["xo"], ["xi"]
    if vector > 1:
        yield f"{stage}.split(xi, xi, xv, {vector}).vectorize(xv)"
        order = ["xv", "xi"]
    if len(names) > 1:
        yield f"{stage}.split(y, yo, yi, {tall})"
        order, blocks, threads = [*order, "yi"], ["xo", "yo"], ["xi", "yi"]
    blocks += names[2:]
    yield f"{stage}.reorder({', '.join([*order, *blocks])})"
    yield f"{stage}.gpu_blocks({', '.join(blocks)}).gpu_threads({', '.join(threads)})"
