"""Instructions of wgmma, and what a group waits for and tells between them, as one ``asm``
statement: as statements of their own they take the compiler ten times as long.

Accumulators are its results, all registers of each fragment; barriers, parities and descriptors are
its inputs, numbered behind them (PTX ISA: wgmma.mma_async, mbarrier.try_wait, mbarrier.arrive).
"""

from __future__ import annotations

from collections.abc import Mapping

from selector.diagnostics import InternalError
from selector.gpu.cuda.expressions import parity, spell
from selector.gpu.cuda.instructions import PIECES
from selector.gpu.cuda.products import descriptor
from selector.gpu.ir.expressions import FIRST_OF_GROUP, THREAD_OF_GROUP
from selector.gpu.ir.nodes import Arrive, Await, Body, Commit, Drain, Fence, Fused, If, Node, walk
from selector.gpu.ir.products import Descriptor, Fragment, InMemory, Mma, Operand
from selector.ir.nodes import Binary, BinaryOp, Expr, IntImm


def fused_lines(node: Fused, fragments: Mapping[str, Fragment]) -> list[str]:
    """The statement."""
    return _Statement(node.body, fragments).lines()


class _Statement:
    """``inputs``: constraints, by their texts."""

    def __init__(self, body: Body, fragments: Mapping[str, Fragment]) -> None:
        self.body = body
        self.descriptors: dict[str, str] = {}
        names = dict.fromkeys(node.to for node in walk(body) if isinstance(node, Mma))
        self.results: dict[str, str] = {}
        constraints = {kind: constraint for kind, constraint, _ in PIECES.values()}
        for name in names:
            pieces, each = fragments[name].registers
            registers = (f"{name}[{i}][{e}]" for i in range(pieces) for e in range(each))
            self.results |= dict.fromkeys(registers, constraints[fragments[name].kind])
        self.places = {name: i for i, name in enumerate(self.results)}
        self.each = {name: fragments[name].registers[1] for name in names}
        self.inputs: dict[str, str] = {}

    def lines(self) -> list[str]:
        texts = ["{ .reg .b64 a, b; .reg .pred done, first;", *self._first()]
        for node in self.body:
            texts += self._node(node)
        texts.append("}")
        results = ", ".join(f'"+{kind}"({name})' for name, kind in self.results.items())
        given = ", ".join(f'"{kind}"({text})' for text, kind in self.inputs.items())
        lines = (f'  "{text}\\n"' for text in texts)
        return ["asm volatile(", *lines, f"  : {results}", f'  : {given} : "memory");']

    def _first(self) -> list[str]:
        """Inputs of barriers, before all others; whether a thread is the first of its group."""
        waits = [node for node in self.body if isinstance(node, Await)]
        if not waits:
            return []
        for kind in (Await, Arrive):
            for node in walk(self.body):
                if isinstance(node, kind):
                    self._input("r", spell(_place(node.barrier)[0]))
        for node in waits:
            self._input("r", parity(node.phase))
        thread = self._input("r", spell(THREAD_OF_GROUP))
        return [f"setp.eq.u32 first, {thread}, 0;"]

    def _input(self, constraint: str, text: str) -> str:
        self.inputs.setdefault(text, constraint)
        return f"%{len(self.results) + list(self.inputs).index(text)}"

    def _barrier(self, e: Expr) -> str:
        base, offset = _place(e)
        return f"[{self._input('r', spell(base))} + {offset}]"

    def _node(self, node: Node) -> list[str]:
        match node:
            case Descriptor(name):
                self.descriptors[name] = descriptor(node)
                return []
            case Fence("matrix"):
                return ["wgmma.fence.sync.aligned;"]
            case Commit("matrix"):
                return ["wgmma.commit_group.sync.aligned;"]
            case Drain("matrix", pending):
                return [f"wgmma.wait_group.sync.aligned {pending};"]
            case Mma():
                return self._mma(node)
            case Await(_, barrier):
                label = f"ready{_place(barrier)[1] // 8}"
                test = f"mbarrier.try_wait.parity.shared::cta.b64 done, {self._barrier(barrier)}"
                given = self._input("r", parity(node.phase))
                return [f"{label}: {test}, {given}; @!done bra {label};"]
            case If(condition, (Arrive(barrier),), ()) if condition == FIRST_OF_GROUP:
                at = self._barrier(barrier)
                return [f"@first mbarrier.arrive.shared::cta.b64 _, {at};"]
            case _:
                raise InternalError(f"{type(node).__name__} has no form among fused instructions")

    def _mma(self, node: Mma) -> list[str]:
        a, b = (f"add.s64 {x}, {self._matrix(y)};" for x, y in (("a", node.a), ("b", node.b)))
        first = self.places[f"{node.to}[{node.piece}][0]"]
        count = node.record.n // 8 * self.each[node.to]
        registers = ",".join(f"%{first + i}" for i in range(count))
        form = f"wgmma.mma_async.sync.aligned.{node.record}"
        return [f"{a} {b}", f"{form} {{{registers}}}, a, b, 1,1,1,0,0;"]

    def _matrix(self, x: Operand) -> str:
        assert isinstance(x, InMemory)
        return f"{self._input('l', self.descriptors[x.descriptor])}, {x.at // 16}"


def _place(barrier: Expr) -> tuple[Expr, int]:
    """A barrier's array, and bytes from its begin."""
    match barrier:
        case Binary(BinaryOp.ADD, base, Binary(BinaryOp.MUL, IntImm(size), IntImm(number))):
            return base, size * number
        case _:
            return barrier, 0
