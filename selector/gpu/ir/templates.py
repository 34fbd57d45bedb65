"""How each node reads: one template a node, by which ``text`` prints and parses it.

``{field}`` stands for a field, ``[ word {field}]`` for a clause that is left out where the field is
None, 0 or empty. Every optional clause begins with a word of its own, and of fields side by side
only the last may hold blanks. A node's bodies follow in braces, each after the first by its word.
"""

from __future__ import annotations

import re
from functools import cache

from selector.dataclass import dataclass
from selector.gpu.ir import memory, nodes, products, tensor

TEMPLATES: dict[type, str] = {
    nodes.Kernel: "kernel {name} threads {threads} cluster {cluster}[ resident {resident}]"
    "[ shared {shared} aligned {alignment}][ parameters {parameters}]",
    nodes.Memory: "memory {name} of {kind} at {offset} stages {stages} bytes {bytes} "
    "extents {extents} = {layout}[ each {unit} apart {apart}]",
    nodes.Let: "let {kind} {names} = {values}[ note {note}]",
    nodes.State: "state {kind} {names} = {values}[ note {note}]",
    nodes.Local: "local",
    nodes.For: "for {how} {var}[ from {start}] to {stop}[ by {step}][ while {also}]",
    nodes.If: "if {condition}",
    nodes.Leave: "leave {what}[ note {note}]",
    nodes.Assign: "set {name} = {value}",
    nodes.Advance: "advance {how}[ phase {phase}] over {stages}[ by {by}]",
    nodes.Init: "init {barrier} arrivals {arrivals}",
    nodes.Retire: "retire {barrier}",
    nodes.Arrive: "arrive {barrier}[ bytes {bytes}][ after {after}][ at {block}]",
    nodes.Await: "await {how} {barrier} phase {phase}[ within {within}]",
    nodes.Sync: "sync {scope}[ barrier {barrier}][ threads {threads}][ within {within}]"
    "[ note {note}]",
    nodes.ResetArrivals: "reset_arrivals",
    nodes.Fence: "fence {what}[ note {note}]",
    nodes.Commit: "commit {queue}",
    nodes.Drain: "drain {queue} pending {pending}[ half {half}]",
    memory.Map: "map {name} of {of} type {type} extents {extents} strides {strides} box {box}"
    "[ become {become}][ steps {steps}]",
    memory.Prefetch: "prefetch {map}",
    memory.EngineCopy: "engine to {to} from {map} at {at} arrives {barrier} bytes {bytes}"
    "[ blocks {blocks}]",
    memory.EngineStore: "engine_store {source} to {map} at {at}",
    memory.Point: "point {name} of {kind} at {of}[ by {by}]",
    memory.CopyAsync: "copy_async {cache} to {to} from {source}[ wanted {wanted}]",
    memory.CopyElement: "copy_element {to} of {kind} index {index} from {pointer} index {source}"
    " inside {inside}[ wanted {wanted}]",
    memory.CopyRun: "copy_run to {to} from {source} bytes {bytes} arrives {barrier}",
    memory.LoadShifted: "load_shifted {part} bytes {valid}",
    memory.Array: "array {name} of {kind} elements {count}[ aligned {alignment}]",
    memory.Store: "store {to} = {value}",
    memory.StoreChunk: "store_chunk to {to} from {source}",
    memory.LoadVector: "load_vector to {to} first {first} from {source} bytes {bytes}[ lie {lie}]"
    "[ wanted {wanted}]",
    memory.StoreVector: "store_vector to {to} from {source} first {first} bytes {bytes}",
    memory.StorePair: "store_pair to {to}[ of {kind}] = {values}",
    memory.StoreQuad: "store_quad to {to} = {values}",
    memory.StoreEight: "store_eight to {to} below {below} = {values}",
    memory.StoreRun: "store_run to {to} = {values} lanes {lanes}",
    memory.StoreWords: "store_words to {to} = {words}[ wanted {wanted}]",
    memory.StoreRows: "store_rows to {to} from {source} of {row_bytes} stride {stride} rows {rows}"
    " columns {columns} run {run} above {above} runs {runs}",
    memory.StoreThere: "store_there {to} = {value} at {block}",
    memory.Evaluate: "evaluate {call}",
    nodes.Comment: "comment {text}",
    nodes.Fused: "fused",
    nodes.Registers: "registers {how} {count}",
    nodes.Dependents: "dependents {what}",
    products.Fragment: "fragment {name} of {kind} registers {registers} = {layout}",
    products.SetTile: "set_tile {to} piece {piece} = {values}",
    products.MatrixRows: "rows {name} of {view} from {first} each {step}[ apart {apart}]",
    products.LoadFragment: "load {registers} by {how}[ from {base}][ at {at}]"
    "[ elements {elements}]",
    products.Descriptor: "descriptor {name} of {view} leading {leading} stride {stride}"
    "[ swizzle {swizzle}][ version {version}]",
    products.Mma: "mma {how} {record} to {to} piece {piece} left {a} right {b}",
    products.Pin: "pin {name}",
    nodes.Touch: "touch {how} at {at} bytes {bytes}[ wanted {wanted}]",
    nodes.Read: "read {rows} each {step} matrices {matrices}",
    tensor.TensorAlloc: "tensor_alloc at {at} columns {columns}",
    tensor.TensorMemory: "tensor {name} at {at} columns {columns}",
    tensor.TensorTile: "tensor_tile {name} of {base} columns {columns} = {start}",
    tensor.TensorFree: "tensor_free {memory} columns {columns}",
    tensor.TensorBusy: "tensor_busy {to} piece {first} pieces {pieces} add {add}"
    " reads {descriptors} from {start} to {end}",
    tensor.TensorLoad: "tensor_load {fragment} of {base} at {at} pieces {pieces}",
    products.Busy: "busy {fragments}[ reads {descriptors} from {first} to {last}]",
}
BODIES: dict[type, tuple[tuple[str, str], ...]] = {  # the word before each, and the field
    nodes.Kernel: (("", "declarations"), ("body", "body")),
    nodes.Local: (("", "body"),),
    nodes.For: (("", "body"),),
    nodes.If: (("", "then"), ("else", "otherwise")),
    nodes.Fused: (("", "body"),),
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
