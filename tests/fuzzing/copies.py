"""The copies of a drawn program: where operands are staged, and how, as lines of Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from fuzzing.loops import places, serial_loop
from fuzzing.program import NAMES, Operand, Program, Staging, span


def staged_at(p: Program, s: Staging) -> str:
    """Where an operand is staged; without a serial loop there is none to stage around."""
    return "part" if s.at == "loop" and not serial_loop(p) else s.at


def staged_counts(p: Program, at: str) -> dict[str, int]:
    """How many values each variable takes in what is staged there; sums go in whole steps."""
    within = "unit" if at == "unit" or (at == "loop" and p.at == "unit") else "part"
    within = "block" if at == "block" else within
    found = {NAMES[i]: int(getattr(a, within)) for i, a in enumerate(p.axes)}
    loop = serial_loop(p) if at == "loop" else ""
    around = False  # loops further out than the one that is staged in: one step of each
    for i, s in enumerate(p.sums):
        step = s.step or s.vector
        whole = -(-s.extent // step) * step
        own = loop in (f"r.{NAMES[i]}", f"r{NAMES[i]}o") and bool(loop)
        around = around or own
        found[f"r.{NAMES[i]}"] = step if around and s.outer == "serial" else whole
    return found


def stagings(p: Program) -> Iterator[str]:
    for o in p.operands:
        if o.staging is None:
            continue
        funcs = p.accumulators if o.name == "A" else ("acc",)
        consumer = funcs[0] if len(funcs) == 1 else f"[{', '.join(funcs)}]"
        name, made = f"staged_{o.name}", o.source
        yield f"{name} = {made}" if o.produce else f"{name} = {made}.in_({consumer})"
        yield from _staging(p, name, o, o.staging)
        if o.before is not None:
            yield from _staging(
                p, f"first_{o.name}", o, replace(o.before, at=o.staging.at), o.reach
            )


def _staging(p: Program, name: str, o: Operand, s: Staging, more: int = 0) -> Iterator[str]:
    """``more`` elements along dimension 0 than the sum reads of them."""
    dims = [f"{name}.args()[{d}]" for d in range(len(o.index))]
    if s.turned and len(dims) > 1:
        yield f"{name}.reorder_storage({', '.join([dims[1], dims[0], *dims[2:]])})"
    if s.align:
        yield f"{name}.align_storage({dims[0]}, {s.align})"
    if s.at == "root":
        yield from _own_kernel(p, name, dims)
        return
    place = ("acc", serial_loop(p)) if staged_at(p, s) == "loop" else places(p)[staged_at(p, s)]
    yield f"{name}.compute_at({place[0]}, {place[1]})"
    if s.shared and p.memory != "amx":
        yield f"{name}.store_in(hl.MemoryType.GPUShared)"
    if s.rounding:
        count = staged_counts(p, staged_at(p, s))
        for d, index in enumerate(o.index):
            unit = _multiple(p, s, d)
            read = span(index, count) + (more if d == 0 else 0)
            extent = max(1, -(-(read - (s.rounding < 0)) // unit) * unit)
            yield f"{name}.bound_extent({dims[d]}, {extent})"
    yield from _copied(p, name, dims, s)
    if s.stages > 1:
        yield f"hb.pipeline_stages({name}, {s.stages})"


def _multiple(p: Program, s: Staging, d: int) -> int:
    """What a promised extent is a multiple of: where it is rounded, a copy's whole pieces as well,
    since what rounds a split up has to be promised."""
    if s.rounding < 8:
        return 1
    pieces = s.idiom in ("split", "lanes", "threads", "fused")
    warps = math.prod(a.warps for a in p.axes) if s.idiom in ("threads", "fused") else 1
    return math.lcm(s.rounding, s.run if pieces else 1) if d == 0 else warps if d == 1 else 1


def _own_kernel(p: Program, name: str, dims: list[str]) -> Iterator[str]:
    yield f"{name}.compute_root()"
    if p.memory == "amx":
        return
    new = [_var(n) for n in "pqrs"]
    if len(dims) == 1:
        yield f"{name}.gpu_tile({dims[0]}, {new[0]}, {new[1]}, 64)"
    else:
        yield f"{name}.gpu_tile({dims[0]}, {dims[1]}, {', '.join(new)}, 32, 4)"


def _copied(p: Program, name: str, dims: list[str], s: Staging) -> Iterator[str]:
    """How the loops of a copy run."""
    warps = math.prod(a.warps for a in p.axes)
    yield from (f"{name}.{line}" for line in IDIOMS[s.idiom](dims, s.run, warps))


def _var(suffix: str) -> str:
    return f'hl.Var("copy_{suffix}")'


def _split(dims: list[str], run: int) -> list[str]:
    return [f"split({dims[0]}, {_var('o')}, {_var('i')}, {run})", f"vectorize({_var('i')})"]


def _threads(dims: list[str], run: int, warps: int) -> list[str]:
    """Rows in turn by the warps of the block."""
    lines = _split(dims, run)
    if len(dims) > 1:
        lines.append(f"split({dims[1]}, {_var('p')}, {_var('q')}, {warps})")
        lines.append(f"reorder({_var('i')}, {_var('o')}, {_var('p')}, {_var('q')})")
        lines.append(f"gpu_threads({_var('q')})")
    return lines


def _fused(dims: list[str], run: int, warps: int) -> list[str]:
    """Runs of all elements in turn by the warps of the block."""
    flat = _var("f") if len(dims) > 1 else dims[0]
    lines = [f"fuse({dims[0]}, {dims[1]}, {flat})"] if len(dims) > 1 else []
    lines += _split([flat], run)
    lines.append(f"split({_var('o')}, {_var('p')}, {_var('q')}, {warps})")
    return [*lines, f"gpu_threads({_var('q')})"]


IDIOMS: dict[str, Callable[[list[str], int, int], list[str]]] = {
    "vectors": lambda dims, run, warps: [f"vectorize({d})" for d in dims],
    "inner": lambda dims, run, warps: [f"vectorize({dims[0]})"],
    "split": lambda dims, run, warps: _split(dims, run),
    "lanes": lambda dims, run, warps: [*_split(dims, run), f"gpu_threads({_var('o')})"],
    "threads": _threads,
    "fused": _fused,
    "plain": lambda dims, run, warps: [],
    "unrolled": lambda dims, run, warps: [
        f"vectorize({dims[0]})", *(f"unroll({d})" for d in dims[1:])
    ],
}  # fmt: skip
