"""Plans as JSON, for artifacts. Types and expressions are in the text form; nothing is pickled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, astuple
from typing import Any, assert_never

from selector.diagnostics import Where
from selector.ir.nodes import BufferParam, Dim, Expr, Role, ScalarParam
from selector.ir.parser import parse_expr
from selector.ir.printer import print_expr
from selector.ir.remarks import Everywhere, Promise, Requirement
from selector.ir.types import Type
from selector.runtime.plan import (
    Argument,
    BufferArgument,
    CopyCost,
    CopyLimit,
    Intermediate,
    Launch,
    MapArgument,
    MapsReady,
    Part,
    Plan,
    TextSize,
    ValueArgument,
)

Json = dict[str, Any]


def plan_to_json(plan: Plan) -> Json:
    """Everything of a plan but its source."""
    return {
        "name": plan.name,
        "target": plan.target,
        "buffers": [_buffer_to_json(b) for b in plan.buffers],
        "scalars": [{"name": s.name, "type": str(s.type)} for s in plan.scalars],
        "requirements": [
            {
                "buffer": r.buffer,
                "dim": r.dim,
                "minimum": print_expr(r.minimum),
                "maximum": print_expr(r.maximum),
            }
            for r in plan.requirements
        ],
        "intermediates": [
            {"name": i.name, "type": str(i.type), "elements": print_expr(i.elements)}
            for i in plan.intermediates
        ],
        "launches": [_launch_to_json(launch) for launch in plan.launches],
        "patience": plan.patience,
        "promises": [_promise_to_json(p) for p in plan.promises],
        **({"size": asdict(plan.size)} if plan.size is not None else {}),
    }


def _promise_to_json(p: Promise) -> Json:
    found: Json = {"condition": print_expr(p.condition), "message": p.message}
    if p.exactly is not None:
        found["loops"] = [[n, print_expr(low), print_expr(c)] for n, low, c in p.exactly.loops]
        found["inside"] = print_expr(p.exactly.condition)
    return found


def plan_from_json(data: Json, source: str) -> Plan:
    """The plan again. KeyError, TypeError, ValueError or ``ParseError`` if ``data`` is none."""
    scalars = tuple(ScalarParam(s["name"], Type.parse(s["type"])) for s in data["scalars"])
    read = _Reader({s.name: s.type for s in scalars})
    return Plan(
        name=_text(data["name"]),
        target=_text(data["target"]),
        source=source,
        buffers=tuple(read.buffer(b) for b in data["buffers"]),
        scalars=scalars,
        requirements=tuple(
            Requirement(
                _text(r["buffer"]), int(r["dim"]), read.expr(r["minimum"]), read.expr(r["maximum"])
            )
            for r in data["requirements"]
        ),
        intermediates=tuple(
            Intermediate(_text(i["name"]), Type.parse(i["type"]), read.expr(i["elements"]))
            for i in data["intermediates"]
        ),
        launches=tuple(read.launch(entry) for entry in data["launches"]),
        patience=None if data.get("patience") is None else float(data["patience"]),
        promises=tuple(read.promise(p) for p in data.get("promises", ())),
        size=_size(data["size"]) if "size" in data else None,
    )


class _Reader:
    """Reads expressions; scalar parameters have the types that the plan gives them."""

    def __init__(self, types: Mapping[str, Type]) -> None:
        self._types = types

    def expr(self, text: str) -> Expr:
        return parse_expr(_text(text), types=self._types)

    def buffer(self, data: Json) -> BufferParam:
        dims = tuple(
            Dim(self.expr(low), self.expr(extent), self.expr(stride))
            for low, extent, stride in data["dims"]
        )
        return BufferParam(_text(data["name"]), Type.parse(data["type"]), dims, Role(data["role"]))

    def promise(self, data: Json) -> Promise:
        exactly = None
        if "inside" in data:
            loops = ((_text(n), self.expr(low), self.expr(e)) for n, low, e in data["loops"])
            exactly = Everywhere(tuple(loops), self.expr(data["inside"]))
        return Promise(self.expr(data["condition"]), _text(data["message"]), exactly)

    def launch(self, data: Json) -> Launch:
        x, y, z = (self.expr(e) for e in data["grid"])
        return Launch(
            _text(data["entry"]),
            (x, y, z),
            int(data["threads"]),
            int(data["shared_bytes"]),
            tuple(self.argument(a) for a in data["arguments"]),
            bool(data.get("once", False)),
            int(data.get("persistent", 0)),
            int(data.get("cluster", 1)),
            bool(data.get("early", False)),
            int(data.get("crowd", 0)),
            tuple(_copy(entry) for entry in data.get("copies", ())),
        )

    def argument(self, data: Json) -> Argument:
        if "buffer" in data:
            return BufferArgument(_text(data["buffer"]))
        if "map" in data:
            return MapArgument(
                _text(data["map"]),
                Type.parse(data["type"]),
                tuple(self.expr(e) for e in data["extents"]),
                tuple(self.expr(e) for e in data["strides"]),
                tuple(int(n) for n in data["box"]),
                bool(data.get("rounds", False)),
                tuple(int(n) for n in data.get("steps", ())),
            )
        if "maps_ready" in data:
            names = data["maps_ready"]
            return MapsReady(() if names is True else tuple(_text(name) for name in names))
        return ValueArgument(self.expr(data["value"]), Type.parse(data["type"]))


def _copy_data(copy: CopyCost) -> list[Any]:
    *numbers, limit = astuple(copy)
    return [*numbers, limit.value]


def _copy(data: Any) -> CopyCost:
    kernel, to, source, threads, of, width, conflicts, share, limit = data
    names = (_text(kernel), _text(to), _text(source))
    numbers = (int(threads), int(of), int(width), int(conflicts))
    return CopyCost(*names, *numbers, float(share), CopyLimit(limit))


def _size(data: Json) -> TextSize:
    part = data["largest"]
    if part is not None:
        where = Where(**{name: _text(value) for name, value in part["where"].items()})
        loops = tuple(_text(name) for name in part["loops"])
        part = Part(where, loops, int(part["copies"]), int(part["characters"]))
    return TextSize(int(data["characters"]), int(data["loops"]), part)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {value!r}")
    return value


def _buffer_to_json(buffer: BufferParam) -> Json:
    return {
        "name": buffer.name,
        "type": str(buffer.type),
        "role": buffer.role.value,
        "dims": [
            [print_expr(d.min), print_expr(d.extent), print_expr(d.stride)] for d in buffer.dims
        ],
    }


def _launch_to_json(launch: Launch) -> Json:
    return {
        "entry": launch.entry,
        "grid": [print_expr(e) for e in launch.grid],
        "threads": launch.threads,
        "shared_bytes": launch.shared_bytes,
        "arguments": [_argument_to_json(a) for a in launch.arguments],
        **({"once": True} if launch.once else {}),
        **({"persistent": launch.persistent} if launch.persistent else {}),
        **({"cluster": launch.cluster} if launch.cluster > 1 else {}),
        **({"early": True} if launch.early else {}),
        **({"crowd": launch.crowd} if launch.crowd else {}),
        **({"copies": [_copy_data(c) for c in launch.copies]} if launch.copies else {}),
    }


def _argument_to_json(argument: Argument) -> Json:
    match argument:
        case BufferArgument(name):
            return {"buffer": name}
        case ValueArgument(value, element):
            return {"value": print_expr(value), "type": str(element)}
        case MapArgument(name, element, extents, strides, box, rounds, steps):
            return {
                "map": name,
                "type": str(element),
                "extents": [print_expr(e) for e in extents],
                "strides": [print_expr(e) for e in strides],
                "box": list(box),
                **({"rounds": True} if rounds else {}),
                **({"steps": list(steps)} if steps else {}),
            }
        case MapsReady(names):
            return {"maps_ready": list(names) or True}
        case _:
            assert_never(argument)
