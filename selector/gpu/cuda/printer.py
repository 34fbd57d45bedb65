"""The kernel IR as text of CUDA: one form for each node, and no decisions."""

from __future__ import annotations

from selector.dataclass import dataclass
from selector.gpu.cuda.copies import copy_line, engine_line, store_line
from selector.gpu.cuda.expressions import TYPES, operand, parity, spell
from selector.gpu.cuda.fused import fused_lines
from selector.gpu.cuda.products import ProductNode, product_lines, tensor_line
from selector.gpu.ir.expressions import both, less, plus
from selector.gpu.ir.memory import (
    CopyAsync,
    CopyElement,
    CopyRun,
    EngineCopy,
    EngineStore,
    LoadShifted,
    Map,
    Point,
    Prefetch,
    Store,
    StoreNode,
)
from selector.gpu.ir.nodes import (
    SHARED_ALIGNMENT,
    Advance,
    Arrive,
    Assign,
    Await,
    Body,
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
    Node,
    Registers,
    ResetArrivals,
    Retire,
    State,
    Sync,
)
from selector.gpu.ir.parameters import Parameter
from selector.gpu.ir.products import Fragment
from selector.gpu.ir.tensor import TensorAlloc, TensorFree, TensorMemory, TensorTile
from selector.ir.nodes import Expr

INDENT = "  "

_FENCES = {
    "proxy": "async_fence",
    "barriers": "barriers_made",
    "matrix": "group_fence",
    "tensor_before": "tensor_before",
    "tensor_after": "tensor_after",
}
_QUEUES = {"copies": "copy", "stores": "bulk", "matrix": "group"}
_SYNCS = {"warp": "__syncwarp", "block": "__syncthreads", "cluster": "cluster_sync",
          "cluster_data": "cluster_meet"}  # fmt: skip
_AWAITS = {"spinning": "barrier_wait", "asleep": "barrier_await"}
_ARRIVES = {"": "barrier_arrive", "copies": "barrier_arrive_copies", "matrix": "tensor_commit"}
_LEAVES = {"loop": "break;", "iteration": "continue;", "kernel": "return;"}
_PRAGMAS = {
    "rolled": ("#pragma unroll 1",),
    "unrolled": ("#pragma unroll",),
    "fours": ("#pragma unroll 4",),
    "plain": (),
}
_DEPENDENTS = {"allow": "next_may_start();", "await": "await_launches();"}
# Alone, on the line of what they stand under.
_SHORT = (Init, Retire, Arrive, Await, Drain, Leave, Prefetch, CopyRun, Store)
_APART = (Local, If, Fused, Comment, Map)  # what is no list of statements


@dataclass(frozen=True, slots=True)
class Printed:
    """The lines of a kernel. ``nodes``: each with its first line; ``loops``: each with its first
    line, below its pragma, and the one behind its last.
    """

    kernel: Kernel
    lines: tuple[str, ...]
    nodes: tuple[tuple[int, Node], ...]
    loops: tuple[tuple[int, int, For], ...]

    def __str__(self) -> str:
        return "".join([f"{line}\n" for line in self.lines])


def print_kernel(kernel: Kernel, wrappers: dict[str, str] | None = None) -> str:
    """The definition of a kernel; ``wrappers`` as for ``print_body``."""
    return str(printed(kernel, {} if wrappers is None else wrappers))


def printed(kernel: Kernel, wrappers: dict[str, str]) -> Printed:
    """The same with what its lines are from."""
    parameters = ", ".join(map(_parameter, kernel.parameters))
    head = f'extern "C" __global__ void {_bounds(kernel)} {kernel.name}({parameters}) {{'
    printer = _Printer(wrappers)
    printer.lines += [head, *(f"{INDENT}{line}" for line in _shared(kernel))]
    printer.body((*kernel.declarations, *kernel.body), INDENT)
    printer.lines.append("}")
    return Printed(kernel, tuple(printer.lines), tuple(printer.nodes), tuple(printer.loops))


def _bounds(kernel: Kernel) -> str:
    least = f", {kernel.resident}" if kernel.resident else ""
    bounds = f"__launch_bounds__({kernel.threads}{least})"
    return f"__cluster_dims__({kernel.cluster}, 1, 1) {bounds}" if kernel.cluster > 1 else bounds


def _parameter(parameter: Parameter) -> str:
    name = parameter.name
    match parameter.way:
        case "map":
            return f"const __grid_constant__ TensorMap {name}"
        case "value":
            return f"const {TYPES[parameter.type]} {name}"
        case "read":
            return f"const {TYPES[parameter.type]}* __restrict__ {name}"
        case "write":
            return f"{TYPES[parameter.type]}* __restrict__ {name}"
        case _:
            return f"{TYPES[parameter.type]}* {name}"


def _shared(kernel: Kernel) -> tuple[str, ...]:
    """The declaration of shared memory: no block's begins at a multiple of more than 128 bytes."""
    if not kernel.shared:
        return ()
    if kernel.alignment <= SHARED_ALIGNMENT:
        return (f"extern __shared__ __align__({SHARED_ALIGNMENT}) unsigned char smem[];",)
    last = kernel.alignment - 1
    return (
        f"extern __shared__ __align__({kernel.alignment}) unsigned char memory[];",
        f"unsigned char* const smem = memory + (-shared_address(memory) & {last});",
    )


def print_body(body: Body, indent: str = "", wrappers: dict[str, str] | None = None) -> str:
    """The lines of a body. ``wrappers``: takes the sources of the instructions' wrappers that it
    calls, by name.
    """
    printer = _Printer({} if wrappers is None else wrappers)
    printer.body(body, indent)
    return "".join(f"{line}\n" for line in printer.lines)


class _Printer:
    """Collects lines and ``wrappers``. ``fragments``: those declared so far; ``nodes`` and
    ``loops`` as for ``Printed``.
    """

    def __init__(self, wrappers: dict[str, str]) -> None:
        self.wrappers = wrappers
        self.fragments: dict[str, Fragment] = {}
        self.lines: list[str] = []
        self.nodes: list[tuple[int, Node]] = []
        self.loops: list[tuple[int, int, For]] = []

    def body(self, body: Body, indent: str) -> None:
        for node in body:
            if isinstance(node, For):
                self.loop(node, indent)
                continue
            self.nodes.append((len(self.lines), node))
            if isinstance(node, _APART):
                self.node(node, indent)
            else:
                self.lines += [indent + text for text in self.statements(node)]

    def loop(self, loop: For, indent: str) -> None:
        self.lines += [indent + text for text in _PRAGMAS[loop.how]]
        begin = len(self.lines)
        self.nodes.append((begin, loop))
        var, stop = loop.var, loop.stop
        first = "" if loop.start is None else f"int {var} = {spell(loop.start)}"
        on = f"++{var}" if loop.step is None else f"{var} += {spell(loop.step)}"
        test = less(var, stop) if loop.also is None else both(loop.also, less(var, stop))
        self.block(f"for ({first}; {spell(test)}; {on})", loop.body, indent)
        self.loops.append((begin, len(self.lines), loop))

    def node(self, node: Local | If | Fused | Comment | Map, indent: str) -> None:
        match node:
            case Local(body):
                self.block("", body, indent)
            case If(condition, then, otherwise):
                self.block(f"if ({spell(condition)})", then, indent)
                self.otherwise(otherwise, indent)
            case Fused():
                texts = fused_lines(node, self.fragments)
                self.lines += [indent + text for text in texts]
            case Comment(text):
                self.lines.append(f"{indent}// {text}")
            case Map():
                pass

    def block(self, head: str, body: Body, indent: str) -> None:
        """``head { ... }``, or a short statement behind the head."""
        if len(body) == 1 and isinstance(body[0], _SHORT) and not _remote(body[0]):
            self.nodes.append((len(self.lines), body[0]))
            (text,) = self.statements(body[0])
            self.lines.append(f"{indent}{head} {text}")
            return
        self.lines.append(f"{indent}{head} {{" if head else f"{indent}{{")
        self.body(body, indent + INDENT)
        self.lines.append(f"{indent}}}")

    def otherwise(self, body: Body, indent: str) -> None:
        match body:
            case ():
                pass
            case (If(condition, then, otherwise),):
                self.block(f"else if ({spell(condition)})", then, indent)
                self.otherwise(otherwise, indent)
            case _:
                self.block("else", body, indent)

    def statements(self, node: Node) -> list[str]:
        """Of a node that no other stands in."""
        if isinstance(node, ProductNode):
            return product_lines(node, self.fragments, self.wrappers)
        if isinstance(node, StoreNode):
            return [store_line(node)]
        match node:
            case Let(kind, names, values, note) | State(kind, names, values, note):
                constant = "const " if isinstance(node, Let) else ""
                return [f"{constant}{self.declared(kind, names, values)}{_noted(note)}"]
            case Memory() | TensorAlloc() | TensorMemory() | TensorTile() | TensorFree():
                return [self.memory(node)]
            case Leave(what, note):
                return [_LEAVES[what] + _noted(note)]
            case Assign(name, value):
                if value == plus(name, 1):
                    return [f"++{name};"]
                return [f"{name} = {spell(value)};"]
            case Advance():
                return self.advance(node)
            case Registers() | Dependents() | ResetArrivals():
                return [self.launched(node)]
            case EngineCopy() | EngineStore() | Prefetch() | CopyRun():
                return [engine_line(node)]
            case Point() | CopyAsync() | CopyElement() | LoadShifted():
                return [copy_line(node)]
            case _:
                return [self.synchronised(node)]

    def launched(self, node: Registers | Dependents | ResetArrivals) -> str:
        match node:
            case ResetArrivals():
                return "arrivals_reset();"
            case Registers(how, count):
                return f"{how}_registers<{count}>();"
            case Dependents(what):
                return _DEPENDENTS[what]

    def memory(self, node: Memory | TensorAlloc | TensorMemory | TensorTile | TensorFree) -> str:
        if not isinstance(node, Memory):
            return tensor_line(node)
        start = f"smem + {node.offset}" + (
            "" if node.unit is None else f" + {operand(node.unit)} * {node.apart}"
        )
        start = start if node.kind == "unsigned char" else f"({node.kind}*)({start})"
        return f"{node.kind}* const {node.name} = {start};"

    def declared(self, kind: str, names: tuple[str, ...], values: tuple[Expr, ...]) -> str:
        pairs = zip(names, values, strict=True)
        return f"{kind} {', '.join(f'{name} = {spell(value)}' for name, value in pairs)};"

    def advance(self, node: Advance) -> list[str]:
        last = node.stages - 1
        if node.by is not None:
            return [
                f"slot += {spell(node.by)};",
                f"{node.phase} += slot / {node.stages};",
                f"slot %= {node.stages};",
            ]
        if node.how == "branch":
            return [f"if (++slot == {node.stages}) {{ slot = 0; ++{node.phase}; }}"]
        counted = [f"if (slot == {last}) ++{node.phase};"] if node.phase else []
        return [*counted, f"slot = slot == {last} ? 0 : slot + 1;"]

    def synchronised(self, node: Node) -> str:
        match node:
            case Init(barrier, arrivals):
                return f"barrier_init({spell(barrier)}, {spell(arrivals)});"
            case Retire(barrier):
                return f"barrier_end({spell(barrier)});"
            case Arrive(barrier, bytes_, after, block):
                at = spell(barrier)
                if bytes_ is not None:
                    return f"barrier_expect({at}, {spell(bytes_)});"
                if block is not None:
                    return f"barrier_arrive_at({at}, {spell(block)});"
                return f"{_ARRIVES[after]}({at});"
            case Await(how, barrier, phase, within):
                name, limit = _limited(_AWAITS[how], within)
                return f"{name}({spell(barrier)}, {parity(phase)}{limit});"
            case Sync(scope, barrier, threads, note, within):
                if barrier is None:
                    return f"{_SYNCS[scope]}();{_noted(note)}"
                name, limit = _limited("group_sync", within)
                return f"{name}({spell(barrier)}, {threads}{limit});{_noted(note)}"
            case Fence(what, note):
                return f"{_FENCES[what]}();{_noted(note)}"
            case Commit() | Drain():
                return self.queued(node)
            case _:
                raise AssertionError(f"{type(node).__name__} has no text of its own")

    def queued(self, node: Commit | Drain) -> str:
        match node:
            case Commit(queue):
                return f"{_QUEUES[queue]}_commit();"
            case Drain("tensor"):
                return "tensor_loaded();"
            case Drain(queue, pending, half):
                return f"{_QUEUES[queue]}_wait{'_read' if half else ''}<{pending}>();"


def _remote(node: Node) -> bool:
    return isinstance(node, Arrive) and node.block is not None


def _limited(name: str, within: int) -> tuple[str, str]:
    """The form of a wait that ends after so many nanoseconds, and its last argument."""
    return (f"{name}_within", f", {within}ull") if within else (name, "")


def _noted(note: str) -> str:
    return f"  // {note}" if note else ""
