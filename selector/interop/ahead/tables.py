"""The tables of one program in C++: what ``runtime.prepare`` works out from a plan, as data, and
its expressions as functions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import assert_never

from selector.dataclass import dataclass
from selector.interop.ahead.expressions import Names, c_type, names_of
from selector.ir.nodes import Expr, IntImm, Role, Var
from selector.ir.remarks import Promise
from selector.ir.types import Kind, Type
from selector.runtime import arguments
from selector.runtime.arrays import accepted_dtypes, numpy_dtype
from selector.runtime.classes import SizeClass
from selector.runtime.plan import (
    Argument,
    BufferArgument,
    Launch,
    MapArgument,
    MapsReady,
    Plan,
    ValueArgument,
)
from selector.runtime.sizes import constant_extents
from selector.runtime.tensor_map import TensorMap
from selector.targets import find_target

_CODES = {Kind.INT: 0, Kind.UINT: 1, Kind.FLOAT: 2, Kind.BFLOAT: 4}  # DLDataTypeCode
_BOOL = 6
_BYTES_A_LINE = 24


@dataclass(frozen=True, slots=True)
class Program:
    """What is exported: a plan, its machine code (none for a CPU), the sizes that it is for."""

    plan: Plan
    cubin: bytes | None = None
    size_class: SizeClass | None = None


@dataclass(slots=True)
class _Numbers:
    """Expressions that are worked out in every call, each at its place."""

    exprs: list[Expr] = field(default_factory=list[Expr])

    def place(self, exprs: Sequence[Expr]) -> int:
        self.exprs += exprs
        return len(self.exprs) - len(exprs)


def fields_table(plan: Plan) -> str:
    """The arrays of a call: what they are checked against."""
    rows: list[str] = []
    for b in arguments.inputs_then_outputs(plan):
        types = " or ".join(accepted_dtypes(b.type))
        extents = [-1 if n is None else n for n in constant_extents(b)]
        strides = [d.stride.value if isinstance(d.stride, IntImm) else -1 for d in b.dims]
        rows.append(
            f"{{{quoted(b.name)}, {quoted(types)}, {array_code(b.type)}, "
            f"{8 * b.type.bytes}, {len(b.dims)}, {_flag(b.role is Role.OUTPUT)}, "
            f"{_braced(extents)}, {_braced(strides)}}},"
        )
    return _array("Field", "fields", rows)


def program_text(number: int, program: Program) -> tuple[str, str, str]:
    """What a program needs declared, its definitions, and its row in the table of all."""
    plan, n = program.plan, number
    names, numbers = Names(names_of(plan)), _Numbers()
    parts = [_required(plan, n, names), _promises(plan, n)]
    planned = () if program.cubin is None else plan.launches
    launches = [_launch(plan, each, f"{n}_{i}", numbers) for i, each in enumerate(planned)]
    parts += [text for text, _ in launches]
    parts.append(_array("Launch", f"launches_{n}", [row for _, row in launches]))
    scratch = [f"{{{numbers.place((i.elements,))}, {i.type.bytes}}}," for i in plan.intermediates]
    parts.append(_array("Scratch", f"scratch_{n}", scratch))
    parts.append(_class(program, n))
    target = find_target(plan.target)
    declared, run, cubin = "", "nullptr", "nullptr"
    if program.cubin is None:
        declared, text, run = _host_call(plan, n, numbers)
        parts.append(text)
    else:
        cubin = f"cubin_{n}"
        parts.append(_bytes(cubin, program.cubin))
    body = [f"  n[{i}] = {names.text(e)};" for i, e in enumerate(numbers.exprs)]
    parts.append(_function("void", f"sizes_{n}", "int64_t *n", body))
    row = (
        f"{{{quoted(target.name)}, {target.capability}, {_flag(target.name.endswith('a'))}, "
        f"{cubin}, required_{n}, {len(plan.requirements)}, needs_{n}, promises_{n}, sizes_{n}, "
        f"{len(numbers.exprs)}, launches_{n}, {len(launches)}, scratch_{n}, {len(scratch)}, "
        f"{f'class_{n}' if program.size_class else 'nullptr'}, {run}}},"
    )
    return declared, "\n".join(filter(None, parts)), row


def host_symbol(number: int, tiles: str) -> str:
    """The entry point of a program for the CPU, in its build with such tiles."""
    return f"program_{number}_{tiles}"


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _required(plan: Plan, n: int, names: Names) -> str:
    """Which elements are read and written, to be compared with what there is."""
    order = [b.name for b in arguments.inputs_then_outputs(plan)]
    buffers = {b.name: b for b in plan.buffers}
    body: list[str] = []
    rows: list[str] = []
    for i, r in enumerate(plan.requirements):
        rows.append(f"{{{order.index(r.buffer)}, {r.dim}}},")
        first = buffers[r.buffer].dims[r.dim].min
        values = (r.minimum, r.maximum, first)
        body += [f"  n[{3 * i + j}] = {names.text(e)};" for j, e in enumerate(values)]
    function = _function("void", f"needs_{n}", "int64_t *n", body)
    return _array("Required", f"required_{n}", rows) + "\n" + function


def _promises(plan: Plan, n: int) -> str:
    """A function that gives the message of the first promise that is broken, or nothing."""
    names = Names(names_of(plan), exact=True)
    body: list[str] = []
    for promise in plan.promises:
        body.append(f"  if (!({names.text(promise.condition)})) {{")
        body += _exactly(promise, names)
        body.append("  }")
    return _function("const char *", f"promises_{n}", "", [*body, "  return nullptr;"])


def _exactly(promise: Promise, names: Names) -> list[str]:
    broken = f"return {quoted(promise.message)};"
    if promise.exactly is None:
        return [f"    {broken}"]
    lines: list[str] = []
    for depth, (name, low, extent) in enumerate(promise.exactly.loops):
        i = f"i{depth}"
        lines.append(
            f"    for (int64_t {i} = {names.text(low)}, end{depth} = {i} + {names.text(extent)}; "
            f"{i} < end{depth}; ++{i})"
        )
        names = replace(names, known={**names.known, name: i})
    return [*lines, f"      if (!({names.text(promise.exactly.condition)})) {broken}"]


def _launch(plan: Plan, launch: Launch, label: str, numbers: _Numbers) -> tuple[str, str]:
    wanted: list[str] = []
    rows = [_argument(plan, launch, a, label, numbers, wanted) for a in launch.arguments]
    text = "\n".join([*wanted, _array("Argument", f"arguments_{label}", rows)])
    row = (
        f"{{{quoted(launch.entry)}, {numbers.place(launch.grid)}, {launch.threads}, "
        f"{launch.shared_bytes}, {_flag(launch.once)}, {launch.persistent}, {launch.cluster}, "
        f"{_flag(launch.early)}, {launch.crowd}, arguments_{label}, {len(rows)}}},"
    )
    return text, row


def _argument(
    plan: Plan, launch: Launch, a: Argument, label: str, numbers: _Numbers, wanted: list[str]
) -> str:
    order = [b.name for b in arguments.inputs_then_outputs(plan)]
    order += [i.name for i in plan.intermediates]
    parameters = [s.name for s in plan.scalars]
    match a:
        case BufferArgument(name):
            return f"Argument::address({order.index(name)}),"
        case ValueArgument(Var(name, _), t) if name in parameters:
            return f"Argument::number({parameters.index(name)}, {numpy_dtype(t).itemsize}),"
        case ValueArgument(value, t):
            return f"Argument::value({numbers.place((value,))}, {numpy_dtype(t).itemsize}),"
        case MapArgument(name):
            return _map(a, order.index(name), name in [b.name for b in arguments.outputs_of(plan)],
                        numbers)  # fmt: skip
        case MapsReady(names):
            positions = [
                p
                for p, other in enumerate(launch.arguments)
                if isinstance(other, MapArgument) and (not names or other.name in names)
            ]
            own = f"wanted_{label}_{len(wanted)}"
            wanted.append(_array("int", own, [f"{p}," for p in positions]))
            return f"Argument::ready({own}, {len(positions)}),"
        case _:
            assert_never(a)


def _map(a: MapArgument, index: int, stored: bool, numbers: _Numbers) -> str:
    """What the driver is told besides what follows from the sizes (``runtime.tensor_map``)."""
    ones = (1,) * len(a.extents)
    shape = TensorMap(a.type, ones, (16,) * len(a.strides), a.box, rounds=a.rounds, steps=a.steps)
    possible, kind, _, _, box, steps, swizzle, _ = shape.described()
    return (
        f"Argument::map({index}, {numbers.place((*a.extents, *a.strides))}, "
        f"{{{_flag(possible)}, {kind}, {len(ones)}, {a.type.bytes}, {swizzle}, {_flag(stored)}, "
        f"{_braced(box or ones)}, {_braced(steps or ones)}}}),"
    )


def _class(program: Program, n: int) -> str:
    """The extents that those of the class round to, of all arrays in order; 0 for any."""
    if program.size_class is None:
        return ""
    shapes = dict(program.size_class.shapes)
    rows: list[str] = []
    for b in arguments.inputs_then_outputs(program.plan):
        own = shapes.get(b.name, (None,) * len(b.dims))
        rows += [f"{e or 0}," for e in reversed(own)]
    return _array("int64_t", f"class_{n}", rows)


def _host_call(plan: Plan, n: int, numbers: _Numbers) -> tuple[str, str, str]:
    """The call of a function for the CPU, whose one launch has addresses and numbers alone: its
    builds, the function that calls the one for this machine, and that one's name.
    """
    (launch,) = plan.launches
    order = [b.name for b in arguments.inputs_then_outputs(plan)]
    parameters = [s.name for s in plan.scalars]
    types: list[str] = []
    values: list[str] = []
    for a in launch.arguments:
        match a:
            case BufferArgument(name):
                types.append("void *")
                values.append(f"v[{order.index(name)}].data")
            case ValueArgument(value, t):
                types.append(number_type(t))
                if isinstance(value, Var) and value.name in parameters:
                    values.append(f"s[{parameters.index(value.name)}].as<{types[-1]}>()")
                else:
                    values.append(f"{types[-1]}(n[{numbers.place((value,))}])")
            case _:
                raise AssertionError(f"a function for the CPU takes {a}")
    made: list[str] = []
    builds = builds_of(plan)
    for tiles in builds:
        symbol = host_symbol(n, tiles)
        made.append(f'extern "C" int NAME({symbol})({", ".join(types) or "void"});')
    call = f"({', '.join(values)})"
    if len(builds) == 1:
        body = [f"  return NAME({host_symbol(n, builds[0])}){call};"]
    else:
        hardware, software = (host_symbol(n, tiles) for tiles in builds)
        body = [
            f"  return tiles_permitted() ? NAME({hardware}){call}",
            f"                           : NAME({software}){call};",
        ]
    return "\n".join(made), _function("int", f"run_{n}", "const int64_t *n", body), f"run_{n}"


def builds_of(plan: Plan) -> tuple[str, ...]:
    """How the C of a program is compiled: for tile registers and for arrays, where it has tiles."""
    from selector.runtime.cpu_builds import uses_tiles

    return ("hardware", "software") if uses_tiles(plan.source) else ("none",)


def array_code(t: Type) -> int:
    """The kind of an array's elements (DLDataTypeCode)."""
    return _BOOL if t.is_bool else _CODES[t.kind]


def number_type(t: Type) -> str:
    """The C type by which a number travels: halves as their bits."""
    return "uint16_t" if t.is_float and t.bits == 16 else c_type(t)


def _function(result: str, name: str, more: str, body: Iterable[str]) -> str:
    given = ("const View *v", "const Number *s", *filter(None, (more,)))
    head = ", ".join(f"[[maybe_unused]] {parameter}" for parameter in given)
    return "\n".join([f"{result} {name}({head}) {{", *body, "}"])


def _array(kind: str, name: str, rows: Sequence[str]) -> str:
    """A table; one that is empty is a null pointer, as C++ has no arrays of nothing."""
    if not rows:
        return f"constexpr const {kind} *{name} = nullptr;"
    inside = "\n".join(f"  {row}" for row in rows)
    return f"const {kind} {name}[] = {{\n{inside}\n}};"


def _bytes(name: str, data: bytes) -> str:
    rows = [data[i : i + _BYTES_A_LINE] for i in range(0, len(data), _BYTES_A_LINE)]
    lines = "\n".join(",".join(map(str, row)) + "," for row in rows)
    return f"alignas(16) const unsigned char {name}[] = {{\n{lines}\n}};"


def _braced(values: Iterable[object]) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def _flag(value: bool) -> str:
    return "true" if value else "false"
