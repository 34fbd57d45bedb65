"""A drawn program as Python text: what is built is what is printed.

``pipeline_text`` gives a function ``pipeline(scheduled)``: the algorithm, and unless it is not
wanted its schedule. ``script`` makes a program of its own of it, with inputs, that imports nothing
but Halide, this compiler and NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuzzing.program import NAMES, Axis, Index, Mask, Operand, Program, Staging, Sum, Term, span
from fuzzing.reference import input_kinds, scalars

TYPES = {
    "f16": "hl.Float(16)", "bf16": "bf16", "f32": "hl.Float(32)", "s8": "hl.Int(8)",
    "u8": "hl.UInt(8)", "s32": "hl.Int(32)",
}  # fmt: skip
MEMORY = {"wmma": "WMMAAccumulator", "wgmma": "WGMMAAccumulator", "amx": "AMXTile"}
IDIOMS = ("vectors", "inner", "split", "threads", "lanes", "fused", "plain", "unrolled")
EDGES = {
    "zero": "hl.BoundaryConditions.constant_exterior({0}, hl.cast({1}, 0))",
    "repeat": "hl.BoundaryConditions.repeat_edge({0})",
    "mirror": "hl.BoundaryConditions.mirror_image({0})",
    "wrap": "hl.BoundaryConditions.repeat_image({0})",
}


def term_text(t: Term) -> str:
    text = t.var
    if t.div > 1:
        text = f"({text}/{t.div})"
    if t.mod:
        text = f"({text} % {t.mod})"
    return text if t.factor == 1 else f"{t.factor}*{text}"


def index_text(index: Index) -> str:
    parts = [term_text(t) for t in index.terms]
    if index.offset or not parts:
        parts.append(str(index.offset))
    return " + ".join(parts).replace("+ -", "- ")


def condition_text(m: Mask) -> str:
    text = f"{index_text(m.condition)} >= 0"
    return f"hl.likely({text})" if m.likely else text


def pipeline_text(p: Program) -> str:
    """The function ``pipeline``; unscheduled it gives the parameters, too."""
    lines = ["def pipeline(scheduled=True):"]
    for line in (*_algorithm(p), "if not scheduled:", *_unscheduled(p), *_schedule(p)):
        lines.append(f"    {line}")
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------ algorithm


def _names(p: Program) -> list[str]:
    return list(NAMES[: len(p.axes)])


def _algorithm(p: Program) -> Iterator[str]:
    names = _names(p)
    if "bf16" in (p.a.type, p.b.type, p.result):  # Halide's own code for it is slow
        yield "bf16 = hl.BFloat(16) if scheduled else hl.Float(32)"
    at = ", ".join(names)
    yield f"{at} = " + ", ".join(f'hl.Var("{n}")' for n in names)
    for o in p.operands:
        yield f'{o.name} = hl.ImageParam({TYPES[o.stored]}, {len(o.index)}, "{o.name}")'
        yield from _source(o)
    yield from _extra_inputs(p)
    depth = "A.dim(0).extent()"
    extents = ", ".join(f"(0, {depth if s.dynamic else s.extent})" for s in p.sums)
    yield f'r = hl.RDom([{extents}], "r")'
    for m in p.masks:
        if m.kind == "where":
            yield f"r.where({condition_text(m)})"
    for f in sums_of(p):
        start = {"zero": "0", "one": "1", "bias": f"start[{names[0]}]"}[p.start]
        yield f'{f} = hl.Func("{f}")'
        yield f"{f}[{at}] = hl.cast({TYPES[p.accumulator]}, {start})"
        yield f"{f}[{at}] += {_product(p, f)}"
    yield 'out = hl.Func("out")'
    value = _finished(p, " + ".join(f"{f}[{at}]" for f in sums_of(p)))
    if not p.after:
        yield f"out[{at}] = {value}"
        return
    rest = ", ".join(names[1:])
    yield 'kept = hl.Func("kept")'
    yield f"kept[{at}] = {value}"
    neighbour = f"kept[{names[0]} + 1{', ' + rest if rest else ''}]"
    yield f"out[{at}] = kept[{at}] + {neighbour}*2"


def sums_of(p: Program) -> tuple[str, ...]:
    return ("acc", "more") if p.second else ("acc",)


def _source(o: Operand) -> Iterator[str]:
    dims = len(o.index)
    args = ", ".join(f"{o.name.lower()}{d}" for d in range(dims))
    variables = f"{args} = " + ", ".join(f'hl.Var("{a}")' for a in args.split(", "))
    source = o.name
    if o.edges == "clamp":
        yield variables
        yield f'wide_{o.name} = hl.Func("wide_{o.name}")'
        clamped = ", ".join(
            f"hl.clamp({a}, 0, {o.name}.dim({d}).extent() - 1)"
            for d, a in enumerate(args.split(", "))
        )
        yield f"wide_{o.name}[{args}] = {o.name}[{clamped}]"
        source = f"wide_{o.name}"
    elif o.edges:
        yield f"wide_{o.name} = " + EDGES[o.edges].format(o.name, TYPES[o.stored])
        source = f"wide_{o.name}"
    if o.produce:
        yield variables
        value = f"{source}[{args}]" + ("*0.5 + 1" if o.produce == "scale" else "")
        if o.produce == "relu":
            value = f"hl.max({source}[{args}], 0)"
        yield f'made_{o.name} = hl.Func("made_{o.name}")'
        yield f"made_{o.name}[{args}] = hl.cast({TYPES[o.type]}, {value})"


def source_name(o: Operand) -> str:
    """What the sum reads: the array, the array with edges, or what is made of it."""
    if o.produce:
        return f"made_{o.name}"
    return f"wide_{o.name}" if o.edges else o.name


def _extra_inputs(p: Program) -> Iterator[str]:
    if _has(p, "start"):
        yield f'start = hl.ImageParam({TYPES[p.accumulator]}, 1, "start")'
    if _has(p, "C"):
        yield f'C = hl.ImageParam({TYPES[p.b.stored]}, {len(p.b.index)}, "C")'
    if _has(p, "alpha"):
        yield f'alpha = hl.Param({TYPES[p.accumulator]}, "alpha")'
    for name, kind, dims in (("bias", p.accumulator, 1), ("rest", "f16", len(p.axes))):
        if _has(p, name):
            yield f'{name} = hl.ImageParam({TYPES[kind]}, {dims}, "{name}")'


def _product(p: Program, f: str) -> str:
    wide = TYPES[p.accumulator]
    texts: list[str] = []
    for o, kind in ((p.a, "left"), (p.b, "right")):
        name = "C" if f == "more" and o is p.b else source_name(o)
        element = f"{name}[{', '.join(index_text(i) for i in o.index)}]"
        for m in p.masks:
            if m.kind == kind:
                element = f"hl.select({condition_text(m)}, {element}, hl.cast({TYPES[o.type]}, 0))"
        texts.append(f"hl.cast({wide}, {element})")
    if p.factor == "left":
        texts[0] = f"({texts[0]}*2)"
    product = "*".join(reversed(texts) if p.swapped else texts)
    if p.factor in ("product", "param"):
        product = f"{product}*{'2' if p.factor == 'product' else 'alpha'}"
    for m in p.masks:
        if m.kind == "select":
            product = f"hl.select({condition_text(m)}, {product}, hl.cast({wide}, 0))"
    return product


def _finished(p: Program, value: str) -> str:
    """What is stored of a sum."""
    names = _names(p)
    for name in p.epilogue:
        zero = f"hl.cast({TYPES[p.accumulator]}, 0)"
        value = {
            "relu": f"hl.max({value}, {zero})",
            "bias": f"({value} + bias[{names[0]}])",
            "bias of rows": f"({value} + bias[{names[-1]}])",
            "scale": f"({value}*2)",
            "rest": f"({value} + hl.cast({TYPES[p.accumulator]}, rest[{', '.join(names)}]))",
            "parity": f"hl.select(({' + '.join(names)}) % 2 == 0, {value}, -({value}))",
            "clamp": f"hl.clamp({value}, {zero} - 50, {zero} + 50)",
        }[name]
    return value if p.result == p.accumulator else f"hl.cast({TYPES[p.result]}, {value})"


def _unscheduled(p: Program) -> Iterator[str]:
    for f in (*sums_of(p), *(("kept",) if p.after else ())):
        yield f"    {f}.compute_root()"
    arrays = ["A", "B"] + [n for n in ("start", "C", "alpha", "bias", "rest") if _has(p, n)]
    yield f"    return out, ({', '.join(arrays)})"


def _has(p: Program, name: str) -> bool:
    """Whether a parameter besides A and B is there."""
    match name:
        case "start":
            return p.start == "bias"
        case "C":
            return p.second
        case "alpha":
            return p.factor == "param"
        case _:
            return any(e.startswith(name) for e in p.epilogue)


# ------------------------------------------------------------------- schedule


def levels(a: Axis, name: str, outer: str = "") -> list[tuple[str, int]]:
    """Loops of an axis from the outside in, with their counts (0: what there is): blocks,
    segments, warps, unrolled, vector; only those that are there. ``outer``: the first of them."""
    found = [(f"{name}o", 0), (f"{name}s", a.segments), (f"{name}w", a.warps),
             (f"{name}u", a.unroll), (f"{name}i", a.vector)]  # fmt: skip
    if outer:
        found = found["oswui".index(outer) :]
    return [(n, c) for n, c in found if c != 1]


def split_loops(stage: str, name: str, loops: list[tuple[str, int]], tail: str = "") -> list[str]:
    """Statements that split ``name`` into these loops; a single one keeps the name."""
    lines: list[str] = []
    current = name
    for i, (outer, _) in enumerate(loops[:-1]):
        size = 1
        for _, count in loops[i + 1 :]:
            size *= count
        inner = loops[i + 1][0]
        lines.append(f"{stage}.split({current}, {outer}, {inner}, {size}{tail if i == 0 else ''})")
        current = inner
    return lines


def loop_name(loops: list[tuple[str, int]], name: str, wanted: str) -> str:
    """The loop of that name, which is the variable itself where it is the only one."""
    if not any(n == wanted for n, _ in loops):
        return ""
    return name if len(loops) == 1 else wanted


def _schedule(p: Program) -> Iterator[str]:
    loops = sorted({n for i, a in enumerate(p.axes) for n, _ in levels(a, NAMES[i])})
    yield f"{', '.join(loops)}, = map(hl.Var, {tuple(loops)!r})".replace("'", '"')
    target = "kept" if p.after else "out"
    if p.after:
        yield from _stencil(p)
    yield from _outputs(p, target)
    for f in sums_of(p):
        yield from _sum(p, f, target)
    yield from _stagings(p, target)
    for name, count in p.directives:
        yield f"hb.{name}(out{f', {count}' if count else ''})"
    yield "return out"


def _stencil(p: Program) -> Iterator[str]:
    """The output that reads what is kept: a block of it, a little narrower than what is kept."""
    if p.after == "root":
        yield "kept.compute_root()"
        names = _names(p)
        if len(names) == 1:
            yield "out.gpu_tile(x, hl.Var('xt'), hl.Var('xj'), 64)"
        else:
            yield "out.gpu_tile(x, y, hl.Var('xt'), hl.Var('yt'), hl.Var('xj'), hl.Var('yj'), 32, 4)"
        return
    names = _names(p)
    inner: list[str] = []
    for i, (n, a) in enumerate(zip(names, p.axes, strict=True)):
        size = a.block - 8 if i == 0 else a.block
        if size > 1:
            yield f"out.split({n}, {n}b, {n}j, {size})".replace(f"{n}b", f'hl.Var("{n}b")').replace(
                f"{n}j", f'hl.Var("{n}j")'
            )
            inner.append(n)
    order = [f'hl.Var("{n}j")' for n in inner] + [
        f'hl.Var("{n}b")' if n in inner else n for n in names
    ]
    yield f"out.reorder({', '.join(order)})"
    blocks = order[len(inner) :]
    yield f"out.gpu_blocks({', '.join(blocks)})"
    yield f"kept.compute_at(out, {blocks[0]}).store_in(hl.MemoryType.GPUShared)"


def _all_loops(p: Program, outer: str) -> dict[str, list[str]]:
    """By level, the loops of all axes from the innermost axis out."""
    found: dict[str, list[str]] = {level: [] for level in "oswui"}
    for i, a in enumerate(p.axes):
        loops = levels(a, NAMES[i], outer)
        for level in found:
            name = loop_name(loops, NAMES[i], NAMES[i] + level)
            if name:
                found[level].append(name)
    return found


def _outputs(p: Program, f: str) -> Iterator[str]:
    inside = p.after == "shared"
    outer = "s" if inside else "o"
    tail = f", hl.TailStrategy.{p.tail}" if p.tail else ""
    for i, a in enumerate(p.axes):
        if a.bounded:
            yield f"out.bound({NAMES[i]}, 0, {a.size})"
        if inside:
            yield f"{f}.bound_extent({NAMES[i]}, {a.block})"
        yield from split_loops(f, NAMES[i], levels(a, NAMES[i], outer), tail)
    by = _all_loops(p, outer)
    order = by["i"] + by["u"] + by["w"] + by["s"] + by["o"]
    if inside:  # a loop of one iteration is none
        order += [NAMES[i] for i, a in enumerate(p.axes) if a.block == 1]
    if len(order) > 1:
        yield f"{f}.reorder({', '.join(order)})"
    yield from _marked(p, f, by)


def _marked(p: Program, f: str, by: dict[str, list[str]]) -> Iterator[str]:
    for name in by["i"]:
        yield f"{f}.vectorize({name})"
    for name in by["u"]:
        yield f"{f}.unroll({name})"
    if p.memory == "amx":
        if by["o"]:
            yield f"{f}.parallel({by['o'][-1]})"
        return
    if by["w"]:
        yield f"{f}.gpu_threads({', '.join(by['w'])})"
    if by["o"]:
        yield f"{f}.gpu_blocks({', '.join(by['o'])})"


def places(p: Program) -> dict[str, tuple[str, str]]:
    """Where a Func can be computed: (consumer, loop) for "unit", "part" and "block"."""
    target = "kept" if p.after else "out"
    by = _all_loops(p, "s" if p.after == "shared" else "o")
    block = (target, by["o"][0]) if by["o"] else ("out", 'hl.Var("xb")')
    part = (target, by["s"][0]) if by["s"] else block
    unit = (target, by["w"][0]) if by["w"] else part
    return {"unit": unit, "part": part, "block": block}


def _sum(p: Program, f: str, target: str) -> Iterator[str]:
    place = places(p)["unit" if p.at == "unit" else "part"]
    outer = "u" if p.at == "unit" else "w"
    for i, a in enumerate(p.axes):
        extent = a.unit if p.at == "unit" else a.part
        if extent > 1:
            yield f"{f}.bound_extent({NAMES[i]}, {extent})"
    yield f"{f}.compute_at({place[0]}, {place[1]})"
    yield f"hb.store_in({f}, hb.MemoryType.{MEMORY[p.memory]})"
    by = _all_loops(p, outer)
    for i, a in enumerate(p.axes):
        yield from split_loops(f, NAMES[i], levels(a, NAMES[i], outer))
    order = by["i"] + by["u"] + by["w"]
    if len(order) > 1:
        yield f"{f}.reorder({', '.join(order)})"
    yield from _marked(p, f, by)
    yield f"update = {f}.update()"
    for i, a in enumerate(p.axes):
        yield from split_loops("update", NAMES[i], levels(a, NAMES[i], outer))
    yield from _reduction(p, by)


def sum_loops(s: Sum, name: str) -> list[tuple[str, int]]:
    """Loops of a variable of the sum from the outside in: over steps, unrolled, vector."""
    step = s.step or max(s.vector, 1)
    loops = [(f"r{name}o", 0 if step < s.extent or s.dynamic else 1),
             (f"r{name}u", step // s.vector), (f"r{name}i", s.vector)]  # fmt: skip
    return [(n, c) for n, c in loops if c != 1]


def _reduction(p: Program, by: dict[str, list[str]]) -> Iterator[str]:
    vectors: list[str] = []
    unrolled: list[str] = []
    serial: list[str] = []
    for i, s in enumerate(p.sums):
        loops = sum_loops(s, NAMES[i])
        if len(loops) > 1:
            yield f"{', '.join(n for n, _ in loops)} = " + ", ".join(
                f'hl.RVar("{n}")' for n, _ in loops
            )
        yield from split_loops("update", f"r.{NAMES[i]}", loops)
        for level, group in (("i", vectors), ("u", unrolled), ("o", serial)):
            name = loop_name(loops, f"r.{NAMES[i]}", f"r{NAMES[i]}{level}")
            if name and level == "o" and s.outer == "unrolled":
                unrolled.append(name)
            elif name:
                group.append(name)
    order = vectors + by["i"] + by["u"] + unrolled + by["w"] + serial
    if p.at == "unit":
        order = vectors + by["i"] + by["u"] + unrolled + serial
    if len(order) > 1:
        yield f"update.reorder({', '.join(order)})"
    yield "update.atomic()"
    yield from _marked(p, "update", {**by, "o": []})
    for name in vectors:
        yield f"update.vectorize({name})"
    for name in unrolled:
        yield f"update.unroll({name})"


# -------------------------------------------------------------------- staging


def serial_loop(p: Program) -> str:
    """The innermost serial loop of the sum, around which operands are staged."""
    for i, s in enumerate(p.sums):
        loops = sum_loops(s, NAMES[i])
        name = loop_name(loops, f"r.{NAMES[i]}", f"r{NAMES[i]}o")
        if name and s.outer == "serial":
            return name
    return ""


def staged_at(p: Program, s: Staging) -> str:
    """Where an operand is staged; without a serial loop there is none to stage around."""
    return "part" if s.at == "loop" and not serial_loop(p) else s.at


def staged_counts(p: Program, at: str) -> dict[str, int]:
    """How many values each variable takes in what is staged there; sums are taken in whole steps."""
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


def _stagings(p: Program, target: str) -> Iterator[str]:
    for o in p.operands:
        if o.staging is not None:
            yield from _staging(p, o, o.staging)


def _staging(p: Program, o: Operand, s: Staging) -> Iterator[str]:
    funcs = sums_of(p) if o.name == "A" else ("acc",)
    consumer = funcs[0] if len(funcs) == 1 else f"[{', '.join(funcs)}]"
    name = f"staged_{o.name}"
    made = source_name(o)
    yield f"{name} = {made}" if o.produce else f"{name} = {made}.in_({consumer})"
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
            unit = s.rounding if d == 0 and s.rounding > 0 else 1
            extent = max(1, -(-(span(index, count) - (s.rounding < 0)) // unit) * unit)
            yield f"{name}.bound_extent({dims[d]}, {extent})"
    yield from _copied(p, name, dims, s)
    if s.stages > 1:
        yield f"hb.pipeline_stages({name}, {s.stages})"


def _own_kernel(p: Program, name: str, dims: list[str]) -> Iterator[str]:
    yield f"{name}.compute_root()"
    if p.memory == "amx":
        return
    new = [f'hl.Var("{name}{n}")' for n in "pqrs"]
    if len(dims) == 1:
        yield f"{name}.gpu_tile({dims[0]}, {new[0]}, {new[1]}, 64)"
    else:
        yield f"{name}.gpu_tile({dims[0]}, {dims[1]}, {', '.join(new)}, 32, 4)"


def _copied(p: Program, name: str, dims: list[str], s: Staging) -> Iterator[str]:
    """How the loops of a copy run."""
    warps = 1
    for a in p.axes:
        warps *= a.warps
    outer, inner = f'hl.Var("{name}o")', f'hl.Var("{name}i")'
    row_outer, row_inner = f'hl.Var("{name}p")', f'hl.Var("{name}q")'
    match s.idiom:
        case "vectors":
            for d in dims:
                yield f"{name}.vectorize({d})"
        case "inner":
            yield f"{name}.vectorize({dims[0]})"
        case "split":
            yield f"{name}.split({dims[0]}, {outer}, {inner}, {s.run}).vectorize({inner})"
        case "lanes":
            yield f"{name}.split({dims[0]}, {outer}, {inner}, {s.run}).vectorize({inner})"
            yield f"{name}.gpu_threads({outer})"
        case "threads":
            yield f"{name}.split({dims[0]}, {outer}, {inner}, {s.run}).vectorize({inner})"
            if len(dims) > 1:
                yield f"{name}.split({dims[1]}, {row_outer}, {row_inner}, {warps})"
                yield f"{name}.reorder({inner}, {outer}, {row_outer}, {row_inner})"
                yield f"{name}.gpu_threads({row_inner})"
        case "fused":
            flat = f'hl.Var("{name}f")'
            if len(dims) > 1:
                yield f"{name}.fuse({dims[0]}, {dims[1]}, {flat})"
            else:
                flat = dims[0]
            yield f"{name}.split({flat}, {outer}, {inner}, {s.run}).vectorize({inner})"
            yield f"{name}.split({outer}, {row_outer}, {row_inner}, {warps})"
            yield f"{name}.gpu_threads({row_inner})"
        case "unrolled":
            yield f"{name}.vectorize({dims[0]})"
            for d in dims[1:]:
                yield f"{name}.unroll({d})"
        case _:
            pass


# --------------------------------------------------------------------- script


def script(p: Program, title: str) -> str:
    """A program of its own that compares the selected program with Halide's own run; with
    ``--emulate`` and tests/ on the path the emitted text."""
    kinds = input_kinds(p)
    arrays = "".join(
        f'    "{name}": draw({extents[::-1]}, "{kind}"),\n'
        for name, (kind, extents) in kinds.items()
    )
    only = f", instructions={p.instructions!r}" if p.instructions else ""
    call = "**arrays, " + "".join(f"{n}={v}, " for n, v in scalars(p).items())
    call += f"sizes={p.sizes[::-1]}"
    values = (
        "rng.integers(1, 4, shape)*rng.choice((-1, 1), shape)"
        if p.values == "small"
        else "rng.uniform(-1, 1, shape)"
    )
    return SCRIPT.format(
        title=title, pipeline=pipeline_text(p), seed=p.inputs, arrays=arrays, values=values,
        target=p.target, only=only, call=call, extents=list(p.sizes), scalars=scalars(p),
        result=p.result,
    )  # fmt: skip


SCRIPT = '''"""{title}"""
import sys

import halide as hl
import numpy as np

import halide_bridge as hb


{pipeline}

DTYPES = {{"f16": np.float16, "f32": np.float32, "s8": np.int8, "u8": np.uint8, "s32": np.int32}}
LIMITS = {{"s8": (-128, 127), "u8": (0, 255), "s32": (-1000, 1000)}}
rng = np.random.default_rng({seed})


def bits(values):
    wide = np.asarray(values, np.float32).view(np.uint32)
    return ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(np.uint16)


def real(array):
    return (array.astype(np.uint32) << 16).view(np.float32) if array.dtype == np.uint16 else array


def draw(shape, kind):
    if kind in LIMITS:
        return rng.integers(*LIMITS[kind], shape, endpoint=True).astype(DTYPES[kind])
    values = {values}
    return bits(values) if kind == "bf16" else values.astype(np.float32).astype(DTYPES[kind])


arrays = {{
{arrays}}}
kernel = hb.compile(pipeline(), target="{target}", cache=False{only})
output, parameters = pipeline(scheduled=False)
held = {{name: np.ascontiguousarray(real(array)) for name, array in arrays.items()}}
for q in parameters:
    q.set(hl.Buffer(held[q.name()]) if q.name() in held else {scalars}[q.name()])
truth = np.array(output.realize({extents})).astype(np.float64)
if "--emulate" in sys.argv:
    from emulation import run

    found = run(kernel, {call})
else:
    found = kernel.interpret({call})
found = real(np.asarray(found)).astype(np.float64)
error = np.linalg.norm(found - truth)/(np.linalg.norm(truth) or 1)
print(f"relative error {{error:.1e}}, {{int(np.isnan(found).sum())}} of {{found.size}} are NaN")
'''
