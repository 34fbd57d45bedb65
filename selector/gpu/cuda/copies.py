"""Nodes of copies and stores as text of CUDA."""

from __future__ import annotations

from selector.gpu.cuda.expressions import operand, spell, summand
from selector.gpu.ir.expressions import behind, number
from selector.gpu.ir.memory import (
    Array,
    CopyAsync,
    CopyElement,
    CopyRun,
    EngineCopy,
    EngineStore,
    Evaluate,
    LoadShifted,
    LoadVector,
    Point,
    Prefetch,
    Store,
    StoreChunk,
    StoreEight,
    StoreElements,
    StoreNode,
    StorePair,
    StoreQuad,
    StoreRows,
    StoreRun,
    StoreThere,
    StoreVector,
    StoreWords,
)
from selector.gpu.ir.views import View
from selector.ir.nodes import Expr


def pointer(view: View, *, terms: bool = False) -> str:
    """The begin of a view, but for its bytes ``at``; ``terms`` of its index are added one after the
    other.
    """
    start = "" if view.start is None else spell(view.start)
    text = f"({view.memory} + {start})" if start else view.memory
    if view.index is None:
        return text
    return f"{text} + {spell(view.index) if terms else summand(view.index)}"


def address(view: View) -> str:
    """Of a view in shared memory."""
    behind = "" if view.at is None else f" + {operand(view.at)}"
    return f"shared_address({pointer(view)}){behind}"


_VECTORS = {2: "u16", 4: "u32", 8: "uint2", 16: "uint4"}  # by their bytes


def copy_line(node: Point | CopyAsync | CopyElement | LoadShifted) -> str:
    """Of a copy by threads."""
    match node:
        case Point(name, kind, of, by):
            return f"{kind}* const {name} = {pointer(of, terms=bool(by))};"
        case CopyAsync(to, source, cache, wanted):
            function = "copy16" if cache == "past" else "copy16_cached"
            return f"{_if(wanted)}{function}({_listed(to, source)});"
        case CopyElement(to, kind, index, origin, source, inside, wanted):
            value = f"{origin}[{spell(source)}]"
            value = f"{spell(inside)} ? {value} : {kind}{{}}"
            return f"{_if(wanted)}{to}[{spell(index)}] = {value};"
        case LoadShifted(part, valid):
            return f"parts[{part}] = load_shifted(to, from, {spell(valid)});"


def store_line(node: StoreNode) -> str:
    """Of what a thread does alone."""
    match node:
        case Array(name, kind, count, alignment):
            aligned = f"alignas({alignment}) " if alignment else ""
            return f"{aligned}{kind} {name}[{count}];"
        case Store(to, value):
            return f"{spell(to)} = {spell(value)};"
        case StoreChunk(to, source):
            return f"*(uint4*){operand(to)} = *(const uint4*){operand(source)};"
        case LoadVector(to, first, source, bytes_, "anywhere"):
            return f"load_anywhere<{bytes_}>({_listed(behind(to, first), source)});"
        case LoadVector(to, first, source, bytes_, wanted=wanted):
            return _vector_line(behind(to, first), source, bytes_, wanted)
        case StoreVector(to, source, first, bytes_):
            return _vector_line(to, behind(source, number(first)), bytes_)
        case StoreWords(to, words, wanted):
            value = f"make_uint4({_listed(*words)})"
            if wanted is not None:
                value = f"{spell(wanted)} ? {value} : make_uint4(0, 0, 0, 0)"
            return f"*(uint4*)({pointer(to, terms=True)}) = {value};"
        case StoreRows():
            return _rows_line(node)
        case StorePair() | StoreQuad() | StoreEight() | StoreRun():
            return _neighbours_line(node)
        case StoreThere() | Evaluate():
            return _call_line(node)


def _call_line(node: StoreThere | Evaluate) -> str:
    match node:
        case StoreThere(to, value, block):
            return f"store_there(&{spell(to)}, {spell(value)}, {spell(block)});"
        case Evaluate(call):
            return f"{spell(call)};"


def _vector_line(to: Expr, source: Expr, bytes_: int, wanted: Expr | None = None) -> str:
    kind = _VECTORS[bytes_]
    value = f"*(const {kind}*){operand(source)}"
    if wanted is not None:
        value = f"{spell(wanted)} ? {value} : {kind}{{}}"
    return f"*({kind}*){operand(to)} = {value};"


def _neighbours_line(node: StoreElements) -> str:
    """Of elements of an accumulator."""
    to, values = pointer(node.to, terms=True), _listed(*node.values)
    match node:
        case StoreQuad():
            return f"store4_of_two({to}, q, {values});"
        case StoreEight(below=below):
            return f"store8_of_four({to}, {pointer(below, terms=True)}, q, {values});"
        case StoreRun(lanes=lanes):
            return f"store_run<{lanes}>({to}, lane, {values});"
        case StorePair(values=(_,)):
            return f"*(u32*)({to}) = {values};"
        case StorePair(kind=kind):
            return f"store2({f'({kind}*)({to})' if kind else to}, {values});"


def _rows_line(node: StoreRows) -> str:
    to, source = pointer(node.to), pointer(node.source, terms=True)
    rest = _listed(node.stride, node.above, node.rows, node.runs, node.columns)
    return f"store_rows<{node.row_bytes}, {node.run}>({to}, {source}, lane, {rest});"


def engine_line(node: EngineCopy | EngineStore | Prefetch | CopyRun) -> str:
    """Of one by the copy engine."""
    match node:
        case EngineCopy(to, map_, at, barrier, _, blocks):
            verb, mask = ("share", f", {blocks}") if blocks else ("copy", "")
            head = f"tensor_{verb}{len(at)}({address(to)}, &{map_}"
            return f"{head}, {_listed(*at, barrier)}{mask});"
        case EngineStore(source, map_, at):
            head = f"tensor_store{len(at)}({address(source)}, &{map_}"
            return f"{head}, {_listed(*at)});"
        case Prefetch(map_):
            return f"prefetch_map(&{map_});"
        case CopyRun(to, source, bytes_, barrier):
            return f"bulk_copy({_listed(to, source, bytes_, barrier)});"


def _if(wanted: Expr | None) -> str:
    return "" if wanted is None else f"if ({spell(wanted)}) "


def _listed(*values: Expr) -> str:
    return ", ".join(spell(e) for e in values)
