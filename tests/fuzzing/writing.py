"""A drawn program as Python text: what is built is what is printed.

``pipeline_text`` gives a function ``pipeline(scheduled)``: the algorithm, and unless it is not
wanted its schedule (``schedule.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fuzzing import forms
from fuzzing.program import LOWEST, NAMES, Index, Mask, Operand, Program, Sum, Term
from fuzzing.reference import input_kinds, scalars
from fuzzing.schedule import schedule

TYPES = {
    "f16": "hl.Float(16)", "bf16": "bf16", "f32": "hl.Float(32)", "s8": "hl.Int(8)",
    "u8": "hl.UInt(8)", "s16": "hl.Int(16)", "u16": "hl.UInt(16)", "s32": "hl.Int(32)",
    "s64": "hl.Int(64)",
    "e4m3": "hl.UInt(8)", "e5m2": "hl.UInt(8)",
}  # fmt: skip
EDGES = {
    "zero": "hl.BoundaryConditions.constant_exterior({0}, hl.cast({1}, 0))",
    "repeat": "hl.BoundaryConditions.repeat_edge({0})",
    "three": "hl.BoundaryConditions.constant_exterior({0}, hl.cast({1}, 3))",
    "mirror": "hl.BoundaryConditions.mirror_image({0})",
    "reflect": "hl.BoundaryConditions.mirror_interior({0})",
    "wrap": "hl.BoundaryConditions.repeat_image({0})",
}


def term_text(t: Term) -> str:
    text = t.var
    if t.div > 1:
        text = f"({text}/{t.div})"
    if t.mod:
        text = f"({text} % {t.mod})"
    return text if t.factor == 1 else f"{t.factor}*{text}"


def index_text(p: Program, index: Index) -> str:
    """Of variables of sums as they are, which begin where they do."""
    begin = {f"r.{NAMES[i]}": s.begin for i, s in enumerate(p.sums)}
    offset = index.offset
    parts: list[str] = []
    for t in index.terms:
        first = begin.get(t.var, 0)
        if t.div == 1 and t.mod == 0:
            offset -= t.factor * first
        elif first:
            t = replace(t, var=f"({t.var} - {first})".replace("- -", "+ "))
        parts.append(term_text(t))
    if offset or not parts:
        parts.append(str(offset))
    return " + ".join(parts).replace("+ -", "- ")


def condition_text(p: Program, m: Mask) -> str:
    """``condition >= 0`` as one writes it: what is subtracted stands on one side, alone."""
    smaller = tuple(replace(t, factor=-t.factor) for t in m.condition.terms if t.factor < 0)
    larger = tuple(t for t in m.condition.terms if t.factor > 0)
    offset = m.condition.offset
    if not smaller:  # 5 <= x, not x > 4: Halide's own order
        left, right = Index((), -offset - (not m.closed)), Index(larger)
    else:
        left, right = Index(smaller), Index(larger, offset + (not m.closed))
    sides = [index_text(p, left), index_text(p, right)]
    if m.type != "s32":
        sides = [f"hl.cast({TYPES[m.type]}, {side})" for side in sides]
    text = f" {'<=' if m.closed else '<'} ".join(sides)
    return f"hl.likely({text})" if m.likely else text


def pipeline_text(p: Program) -> str:
    """The function ``pipeline``; unscheduled it gives the parameters, too."""
    lines = ["def pipeline(scheduled=True):"]
    for line in forms.pipeline(p) if p.form else _sum_of_products(p):
        lines.append(f"    {line}")
    return "\n".join(lines) + "\n"


def _sum_of_products(p: Program) -> Iterator[str]:
    yield from _algorithm(p)
    yield "if not scheduled:"
    yield from _unscheduled(p)
    yield from schedule(p) if p.schedule == "drawn" else _autoscheduled(p)


def _algorithm(p: Program) -> Iterator[str]:
    names = p.variables
    if "bf16" in (p.a.type, p.b.type, p.result):  # Halide's own code for it is slow
        yield "bf16 = hl.BFloat(16) if scheduled else hl.Float(32)"
    at = ", ".join(names)
    yield f"{at} = " + ", ".join(f'hl.Var("{n}")' for n in names)
    for o in {o.name: o for o in p.operands}.values():
        yield f'{o.name} = hl.ImageParam({TYPES[o.stored]}, {len(o.index)}, "{o.name}")'
        yield from _source(o)
    yield from _extra_inputs(p)
    yield from _declared(p) if p.declared else ()
    yield f'r = hl.RDom([{", ".join(_range(s, NAMES[i]) for i, s in enumerate(p.sums))}], "r")'
    for m in p.masks:
        if m.kind == "where":
            yield f"r.where({condition_text(p, m)})"
    for f in p.accumulators:
        yield f'{f} = hl.Func("{f}")'
        yield from _sums(p, f, at)
    if p.alone:
        yield "out = acc"
        return
    yield 'out = hl.Func("out")'
    sums = [f"{f}[{at}]" for f in p.accumulators]
    if p.pair:
        sums = [f"acc[{at}][0]", f"-acc[{at}][1]"]
    value = " + ".join(sums).replace("+ -", "- ")
    value = _finished(p, f"({value})" if len(sums) > 1 else value)
    if not p.after:
        yield f"out[{at}] = {value}"
        return
    rest = ", ".join(names[1:])
    yield 'kept = hl.Func("kept")'
    yield f"kept[{at}] = {value}"
    neighbour = f"kept[{names[0]} + 1{', ' + rest if rest else ''}]"
    yield f"out[{at}] = kept[{at}] + {neighbour}*2"


def _range(s: Sum, name: str) -> str:
    """Begin and extent of a variable of the sum."""
    begin = f"first_{name}" if s.given else str(s.begin)
    return f"({begin}, {'A.dim(0).extent()' if s.dynamic else s.extent})"


def _sums(p: Program, f: str, at: str) -> Iterator[str]:
    """A sum: what it begins with, and its updates."""
    wide, sign = TYPES[p.accumulator], "-" if p.minus else "+"
    start = {"zero": "0", "one": "1", "bias": f"start[{p.variables[0]}]"}[p.start]
    start = f"hl.cast({wide}, {start})"
    product = _product(p, "C" if f == "more" else p.b.source)
    own = f"{f}[{at}]"
    if not p.pair:
        yield f"{own} = {start}"
        yield f"{own} {sign}= {product}"
    else:
        lowest = LOWEST if p.beside else 0
        other = f"{own}[1] + {_product(p, 'C')}"
        if p.beside:
            element = f"{p.a.source}[{', '.join(index_text(p, i) for i in p.a.index)}]"
            other = f"hl.max({own}[1], hl.cast({wide}, {element}))"
        yield f"{own} = ({start}, hl.cast({wide}, {lowest}))"
        yield f"{own} = ({own}[0] {sign} {product}, {other})"
    if f == "acc":
        yield from _updates(p)


def _updates(p: Program) -> Iterator[str]:
    """Those of ``acc`` after its sum."""
    names = list(p.variables)
    if p.second == "update" and "second" not in p.updates:
        yield f"acc[{', '.join(names)}] += {_product(p, 'C')}"
    for name in p.updates:
        places = {"column": ["0", *names[1:]], "row": [*names[:-1], "0"]}
        own = f"acc[{', '.join(places.get(name, names))}]"
        if name == "running":
            yield f'n = hl.RDom([(1, {p.sizes[-1] - 1})], "n")'
            own, before = (f"acc[{', '.join([*names[:-1], n])}]" for n in ("n", "n - 1"))
            values = (f"{own}[0] + {before}[0]", f"{own}[1]")
            yield f"{own} = ({', '.join(values)})" if p.pair else f"{own} += {before}"
            continue
        value = f"{own}[0]" if p.pair else own
        wide = TYPES[p.accumulator]
        after = {
            "second": f"{value} + {_product(p, 'C')}",
            "relu": f"hl.max({value}, hl.cast({wide}, 0))",
            "double": f"{value}*2",
            "column": f"{value} + 1",
            "row": f"hl.cast({wide}, 3)",
        }[name]
        yield f"{own} = ({after}, {own}[1])" if p.pair else f"{own} = {after}"


def _declared(p: Program) -> Iterator[str]:
    for name, (_, extents) in input_kinds(p).items():
        dims = "".join(f".dim({d}).set_bounds(0, {n})" for d, n in enumerate(extents))
        yield f"{name}{dims}"


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
        if o.before is not None:
            yield f'first_{o.name} = hl.Func("first_{o.name}")'
            yield f"first_{o.name}[{args}] = {source}[{args}]"
            source = f"first_{o.name}"
        if not o.inline:
            yield f'made_{o.name} = hl.Func("made_{o.name}")'
            yield f"made_{o.name}[{args}] = {_made(o, source, args.split(', '))}"


def _made(o: Operand, source: str, at: list[str]) -> str:
    """What is computed of elements of the array, or of its copy."""
    element = f"{source}[{', '.join(at)}]"
    neighbour = f"{source}[{', '.join([f'{at[0]} + 1', *at[1:]])}]"
    value = {
        "cast": element, "scale": f"{element}*0.5 + 1", "relu": f"hl.max({element}, 0)",
        "pair": f"{element}*hl.cast({TYPES[o.type]}, 2) + {neighbour}",
        "e4m3": f"hb.e4m3({element})", "e5m2": f"hb.e5m2({element})",
    }[o.produce]  # fmt: skip
    return f"hl.cast({TYPES[o.type]}, {value})"


def _extra_inputs(p: Program) -> Iterator[str]:
    if _has(p, "start"):
        yield f'start = hl.ImageParam({TYPES[p.accumulator]}, 1, "start")'
    if _has(p, "C"):
        yield f'C = hl.ImageParam({TYPES[p.b.stored]}, {len(p.b.index)}, "C")'
    if _has(p, "alpha"):
        held = "f32" if p.accumulator == "f16" else p.accumulator  # Halide sets no Param of float16
        yield f'alpha = hl.Param({TYPES[held]}, "alpha")'
    for name in (n for n in scalars(p) if n != "alpha"):
        yield f'{name} = hl.Param(hl.Int(32), "{name}")'
    if _has(p, "scale"):
        yield f'scale = hl.ImageParam({TYPES[p.accumulator]}, 1, "scale")'
    for name, kind, dims in (("bias", p.accumulator, 1), ("rest", "f16", len(p.axes))):
        if _has(p, name):
            yield f'{name} = hl.ImageParam({TYPES[kind]}, {dims}, "{name}")'


def _product(p: Program, factors: str) -> str:
    wide = TYPES[p.accumulator]
    texts: list[str] = []
    for o, kind, name in ((p.a, "left", p.a.source), (p.b, "right", factors)):
        at = [index_text(p, i) for i in o.index]
        element = f"{name}[{', '.join(at)}]"
        if o.inline:
            wide_name = f"wide_{o.name}" if o.edges else o.name
            element = _made(o, f"first_{o.name}" if o.before else wide_name, at)
        for m in p.masks:
            if m.kind == kind:
                element = (
                    f"hl.select({condition_text(p, m)}, {element}, hl.cast({TYPES[o.type]}, 0))"
                )
        zero = o.name in p.zero_points
        element = f"hl.cast({wide}, {element})"
        texts.append(f"({element} - zero_{o.name})" if zero else element)
    if p.factor == "left":
        texts[0] = f"({texts[0]}*2)"
    product = "*".join(reversed(texts) if p.swapped else texts)
    if p.factor in ("product", "param", "place", "column"):
        of = {
            "product": "2",
            "column": "scale[x]",
            "param": f"hl.cast({wide}, alpha)",
            "place": f"hl.cast({wide}, x % 4 - 1)",
        }
        product = f"{product}*{of[p.factor]}"
    elif p.factor == "negative":
        product = f"-({product})"
    for m in p.masks:
        if m.kind == "select":
            product = f"hl.select({condition_text(p, m)}, {product}, hl.cast({wide}, 0))"
    return product


def _finished(p: Program, value: str) -> str:
    """What is stored of a sum."""
    names = p.variables
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
    cast = "hl.saturating_cast" if p.saturated else "hl.cast"
    return value if p.result == p.accumulator else f"{cast}({TYPES[p.result]}, {value})"


def _autoscheduled(p: Program) -> Iterator[str]:
    for name, a in zip(p.variables, p.axes, strict=True):
        if a.bounded:
            yield f"out.bound({name}, 0, {a.size})"
    sizes = f", sizes={p.sizes[::-1]}" if p.schedule == "sized" else ""
    only = f", instructions={p.instructions!r}" if p.instructions else ""
    yield f'pipeline.schedule = hb.autoschedule(out, target="{p.target}"{sizes}{only})'
    yield "return out"


def _unscheduled(p: Program) -> Iterator[str]:
    for f in (*p.accumulators, *(("kept",) if p.after else ())):
        if not p.alone:
            yield f"    {f}.compute_root()"
    yield f"    return out, ({', '.join([*input_kinds(p), *scalars(p)])},)"


def _has(p: Program, name: str) -> bool:
    """Whether a parameter besides A and B is there."""
    match name:
        case "start":
            return p.start == "bias"
        case "C":
            return bool(p.second)
        case "alpha":
            return p.factor == "param"
        case "scale":
            return p.factor == "column"
        case _:
            return any(e.startswith(name) for e in p.epilogue)
