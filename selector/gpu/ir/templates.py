"""How each node reads: one template a node, by which ``text`` prints and parses it.

``{field}`` stands for a field, ``[ word {field}]`` for a clause that is left out where the field is
None, 0 or empty. Every optional clause begins with a word of its own, and of fields side by side
only the last may hold blanks. A node's bodies follow in braces, each after the first by its word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

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
    Map,
    Point,
    Prefetch,
    Store,
    StoreChunk,
    StorePair,
    StoreQuad,
    StoreRows,
    StoreVector,
    StoreWords,
)
from selector.gpu.ir.nodes import (
    Advance,
    Arrive,
    Assign,
    Await,
    Comment,
    Commit,
    Dependents,
    Drain,
    Fence,
    For,
    Fused,
    If,
    Init,
    Kernel,
    Leave,
    Let,
    Local,
    Memory,
    Registers,
    ResetArrivals,
    Retire,
    State,
    Sync,
)
from selector.gpu.ir.products import (
    Busy,
    Descriptor,
    Fragment,
    LoadFragment,
    MatrixRows,
    Mma,
    Pin,
    SetTile,
)
from selector.gpu.ir.tensor import (
    TensorAlloc,
    TensorBusy,
    TensorFree,
    TensorLoad,
    TensorMemory,
    TensorTile,
)
from selector.gpu.ir.touched import Read, Touch

TEMPLATES: dict[type, str] = {
    Kernel: "kernel {name} threads {threads} cluster {cluster}[ resident {resident}]"
    "[ shared {shared} aligned {alignment}][ parameters {parameters}]",
    Memory: "memory {name} of {kind} at {offset} stages {stages} bytes {bytes} extents {extents}"
    " = {layout}[ each {unit} apart {apart}]",
    Let: "let {kind} {names} = {values}[ note {note}]",
    State: "state {kind} {names} = {values}[ note {note}]",
    Local: "local",
    For: "for {how} {var}[ from {start}] to {stop}[ by {step}][ while {also}]",
    If: "if {condition}",
    Leave: "leave {what}[ note {note}]",
    Assign: "set {name} = {value}",
    Advance: "advance {how}[ phase {phase}] over {stages}[ by {by}]",
    Init: "init {barrier} arrivals {arrivals}",
    Retire: "retire {barrier}",
    Arrive: "arrive {barrier}[ bytes {bytes}][ after {after}][ at {block}]",
    Await: "await {how} {barrier} phase {phase}[ within {within}]",
    Sync: "sync {scope}[ barrier {barrier}][ threads {threads}][ within {within}][ note {note}]",
    ResetArrivals: "reset_arrivals",
    Fence: "fence {what}[ note {note}]",
    Commit: "commit {queue}",
    Drain: "drain {queue} pending {pending}[ half {half}]",
    Map: "map {name} of {of} type {type} extents {extents} strides {strides} box {box}",
    Prefetch: "prefetch {map}",
    EngineCopy: "engine to {to} from {map} at {at} arrives {barrier} bytes {bytes}"
    "[ blocks {blocks}]",
    EngineStore: "engine_store {source} to {map} at {at}",
    Point: "point {name} of {kind} at {of}[ by {by}]",
    CopyAsync: "copy_async {cache} to {to} from {source}[ wanted {wanted}]",
    CopyElement: "copy_element {to} of {kind} index {index} from {pointer} index {source}"
    " inside {inside}[ wanted {wanted}]",
    CopyRun: "copy_run to {to} from {source} bytes {bytes} arrives {barrier}",
    LoadShifted: "load_shifted {part} bytes {valid}",
    Array: "array {name} of {kind} elements {count}[ aligned {alignment}]",
    Store: "store {to} = {value}",
    StoreChunk: "store_chunk to {to} from {source}",
    LoadVector: "load_vector to {to} first {first} from {source} bytes {bytes}[ lie {lie}]",
    StoreVector: "store_vector to {to} from {source} first {first} bytes {bytes}",
    StorePair: "store_pair to {to}[ of {kind}] = {values}",
    StoreQuad: "store_quad to {to} = {values}",
    StoreWords: "store_words to {to} = {words}[ wanted {wanted}]",
    StoreRows: "store_rows to {to} from {source} of {row_bytes} stride {stride} rows {rows}"
    " columns {columns}[ run {run} above {above} runs {runs}]",
    Evaluate: "evaluate {call}",
    Comment: "comment {text}",
    Fused: "fused",
    Registers: "registers {how} {count}",
    Dependents: "dependents {what}",
    Fragment: "fragment {name} of {kind} registers {registers} = {layout}",
    SetTile: "set_tile {to} piece {piece} = {values}",
    MatrixRows: "rows {name} of {view} from {first} each {step}[ apart {apart}]",
    LoadFragment: "load {registers} by {how}[ from {base}][ at {at}][ elements {elements}]",
    Descriptor: "descriptor {name} of {view} leading {leading} stride {stride}[ swizzle {swizzle}]"
    "[ version {version}]",
    Mma: "mma {how} {record} to {to} piece {piece} left {a} right {b}",
    Pin: "pin {name}",
    Touch: "touch {how} at {at} bytes {bytes}[ wanted {wanted}]",
    Read: "read {rows} each {step} matrices {matrices}",
    TensorAlloc: "tensor_alloc at {at} columns {columns}",
    TensorMemory: "tensor {name} at {at} columns {columns}",
    TensorTile: "tensor_tile {name} of {base} columns {columns} = {start}",
    TensorFree: "tensor_free {memory} columns {columns}",
    TensorBusy: "tensor_busy {to} piece {first} pieces {pieces} add {add}"
    " reads {descriptors} from {start} to {end}",
    TensorLoad: "tensor_load {fragment} of {base} at {at} pieces {pieces}",
    Busy: "busy {fragments}[ reads {descriptors} from {first} to {last}]",
}
BODIES: dict[type, tuple[tuple[str, str], ...]] = {  # the word before each, and the field
    Kernel: (("", "declarations"), ("body", "body")),
    Local: (("", "body"),),
    For: (("", "body"),),
    If: (("", "then"), ("else", "otherwise")),
    Fused: (("", "body"),),
}

_PART = re.compile(r"\[(?P<clause>[^\]]*)\]|(?P<plain>[^\[]+)")
_FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of a template: text with places for fields; ``optional``: left out without them."""

    parts: tuple[str, ...]  # text, field, text, field ... text
    optional: bool

    @property
    def fields(self) -> tuple[str, ...]:
        return self.parts[1::2]


@cache
def clauses(kind: type) -> tuple[Clause, ...]:
    """The template of a node in its parts."""
    found: list[Clause] = []
    for match in _PART.finditer(TEMPLATES[kind]):
        optional = match["clause"] is not None
        found.append(Clause(tuple(_FIELD.split(match["clause"] or match["plain"])), optional))
    return tuple(found)


@cache
def pattern(kind: type) -> re.Pattern[str]:
    """What lines of a node look like."""
    text = ""
    for clause in clauses(kind):
        part = "".join(
            f"(?P<{piece}>.*?)" if i % 2 else re.escape(piece)
            for i, piece in enumerate(clause.parts)
        )
        text += f"(?:{part})?" if clause.optional else part
    return re.compile(text)
