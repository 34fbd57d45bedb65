"""Terms to IR: the inverse of ``encode``, plus the operands and instructions that the rules
introduce.

A ``Decoder`` puts back what the symbols of a skeleton stand for. Scalar sums that the rules built
are written as polynomials; a symbol that was left alone comes back as the user's own expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from selector.dataclass import dataclass
from selector.diagnostics import InternalError
from selector.intrinsics import TILE_FILL, TILE_READ, TOEPLITZ, TOEPLITZ_TRANSPOSED, VNNI, find
from selector.ir.access import level, repeated
from selector.ir.affine import Affine
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Broadcast,
    Call,
    Cast,
    Compare,
    CompareOp,
    Expr,
    ExprVar,
    FloatImm,
    IntImm,
    Load,
    Location,
    LocToLoc,
    Not,
    Ramp,
    ReduceOp,
    Select,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.simplify import wrap
from selector.ir.types import BOOL, INT32, Type
from selector.operands.computed_values import Computed

Term = tuple[object, ...]
"""A constructor's name, then its arguments: terms, tuples of terms (Args), or plain values."""

_ZERO = IntImm(0)
_ARITHMETIC = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL)


@dataclass
class Decoder:
    """Decodes terms over the symbols of one skeleton; without any it is the exact inverse of
    ``encode``."""

    symbols: Mapping[str, Expr] = field(default_factory=dict[str, Expr])
    buffers: Mapping[str, str] = field(default_factory=dict[str, str])
    computed: Mapping[str, Computed] = field(default_factory=dict[str, Computed])

    def store(self, term: Term) -> Store:
        """The statement of a Store term."""
        match term:
            case ("Store", str(buffer), tuple(index), tuple(value), tuple(mask)):
                return Store(
                    self.buffer(buffer), self.expr(index), self.expr(value), self.mask(mask)
                )
            case _:
                raise InternalError(f"not a statement: {term[0]}")

    def buffer(self, name: str) -> str:
        return self.buffers.get(name, name)

    def load(self, element: Type, buffer: str, index: Expr, mask: Term) -> Expr:
        condition, known = self.mask(mask), self.computed.get(buffer)
        if known is None:
            return Load(element.with_lanes(index.type.lanes), buffer, index, condition)
        return known.at(index, condition)

    def mask(self, term: Term) -> Expr | None:
        return None if term[0] == "Always" else self.expr(term)

    def expr(self, term: Term) -> Expr:
        """The expression of a term; InternalError names an unknown constructor."""
        return _GROUPS.get(term[0], Decoder.scalar)(self, term)

    def scalar(self, term: Term) -> Expr:
        match term:
            case ("Int", int(value)):
                return IntImm(value)
            case ("Sym", str(name)):
                return self.symbols.get(name, Var(name))
            case ("Lit", str(t), int(value)):
                return IntImm(value, Type.parse(t))
            case ("FLit", str(t), float(value)):
                return FloatImm(value, Type.parse(t))
            case ("Atom", str(t), int(lanes), str(name)):
                return self.symbols.get(name, Var(name, Type.parse(t).with_lanes(lanes)))
            case ("Cast", str(t), tuple(inner)):
                value = self.expr(inner)
                return Cast(Type.parse(t).with_lanes(value.type.lanes), value)
            case ("Bop", str(op), tuple(a), tuple(b)):
                return self.binary(BinaryOp(op), self.expr(a), self.expr(b))
            case ("Cmp", str(op), tuple(a), tuple(b)):
                return Compare(CompareOp(op), *of_one_type(self.expr(a), self.expr(b)))
            case ("Not", tuple(a)):
                return Not(self.expr(a))
            case ("Select", tuple(c), tuple(a), tuple(b)):
                return Select(self.expr(c), self.expr(a), self.expr(b))
            case ("Load", str(t), str(buffer), tuple(inner), tuple(mask)):
                return self.load(Type.parse(t), self.buffer(buffer), self.expr(inner), mask)
            case _:
                return self.vector(term)

    def vector(self, term: Term) -> Expr:
        match term:
            case ("Ramp", tuple(b), tuple(s), int(count)):
                base, stride = self.expr(b), self.expr(s)
                if stride == _ZERO and base.type.element != INT32:
                    return Broadcast(base, count)  # parts of any type, equal ones
                lanes = base.type.lanes
                return Ramp(*of_one_type(base, repeated(stride, lanes)), count)
            case ("RampV", tuple(b), tuple(s), int(count)):
                return Ramp(*of_one_type(self.expr(b), self.expr(s)), count)
            case ("Always", int(lanes)):
                return Broadcast(IntImm(1, BOOL), lanes)
            case ("Broadcast", tuple(inner), int(count)):
                return Broadcast(self.expr(inner), count)
            case ("Reduce", str(op), tuple(inner), int(lanes)):
                return VectorReduce(ReduceOp(op), self.expr(inner), lanes)
            case ("Apply", str(t), int(lanes), str(name), tuple(args)):
                kind = Type.parse(t).with_lanes(lanes)
                return Call(kind, name, tuple(self.expr(a) for a in args))  # type: ignore[arg-type]
            case ("Move", str(source), str(destination), tuple(inner)):
                return LocToLoc(Location(source), Location(destination), self.expr(inner))
            case ("Materialize", tuple(inner)):
                return ExprVar(self.expr(inner))
            case ("TileFill", tuple(inner)):
                value = self.expr(inner)
                return Call(value.type, TILE_FILL, (value,))
            case ("TileRead", tuple(inner)):
                value = self.expr(inner)
                return Call(value.type, TILE_READ, (value,))
            case _:
                return self.tensor(term)

    def tensor(self, term: Term) -> Expr:
        match term:
            case ("Matrix", str(t), str(buffer), tuple(b), tuple(so), int(no), tuple(si), int(ni),
                  tuple(mask)):  # fmt: skip
                row = level(self.expr(b), self.expr(si), ni)
                index = level(row, self.expr(so), no)
                return self.load(Type.parse(t), self.buffer(buffer), index, mask)
            case ("Toeplitz" | "ToeplitzT" as name, str(t), int(k), int(n), int(stride),
                  int(dilation), int(phases), tuple(inner)):  # fmt: skip
                numbers = tuple(IntImm(v) for v in (k, n, stride, dilation, phases))
                call = TOEPLITZ if name == "Toeplitz" else TOEPLITZ_TRANSPOSED
                kind = Type.parse(t).with_lanes(k * n)
                return Call(kind, call, (*numbers, self.expr(inner)))
            case ("Vnni", str(t), int(k), int(n), int(packing), tuple(inner)):
                numbers = tuple(IntImm(v) for v in (k, n, packing))
                kind = Type.parse(t).with_lanes(-(-k // packing) * packing * n)
                return Call(kind, VNNI, (*numbers, self.expr(inner)))
            case ("MultiplyAdd", str(name), int(m), int(n), int(k), tuple(c), tuple(a), tuple(b)):
                record = find(name)
                assert record is not None, name
                operands = (self.expr(c), *(self.operand(x) for x in (a, b)))
                sizes = (IntImm(m), IntImm(n), IntImm(k))
                return Call(record.c_type.with_lanes(m * n), name, (*sizes, *operands))
            case _:
                raise InternalError(f"no expression for the term {term[0]}")

    def operand(self, term: Term) -> Expr:
        """An operand of an instruction: in memory, or a value that is made before."""
        found = self.expr(term)
        match term:
            case ("Matrix" | "Load", _, str(buffer), *_) if self.buffer(buffer) in self.computed:
                return ExprVar(found)
            case _:
                return found

    def binary(self, op: BinaryOp, a: Expr, b: Expr) -> Expr:
        """A binary operator; sums of bases that the rules formed are simplified."""
        for zero, other in ((a, b), (b, a)):
            if zero == _ZERO and other.type != INT32 and op in (BinaryOp.ADD, BinaryOp.MUL):
                return other if op is BinaryOp.ADD else zero  # of any type, as strides of copies
        found = Binary(op, *of_one_type(a, b))
        simplified = self.symbols and op in _ARITHMETIC and found.type == INT32
        return Affine.of(found).to_expr() if simplified else found


# Constructors that come often and late in the lists.
_GROUPS: dict[object, Callable[[Decoder, Term], Expr]] = {
    **dict.fromkeys(("Ramp", "RampV", "Broadcast", "Always", "Reduce"), Decoder.vector),
    **dict.fromkeys(("Matrix", "Toeplitz", "ToeplitzT", "MultiplyAdd"), Decoder.tensor),
}


def of_one_type(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Both sides of an operator. Rules write numbers as int32: beside another type of integers they
    are numbers of that one, whose sums and products wrap around in the same way.
    """
    s, t = a.type.element, b.type.element
    if s == t:
        return a, b
    return (_numbers(a, t), b) if s == INT32 else (a, _numbers(b, s))


def _numbers(e: Expr, t: Type) -> Expr:
    match e:
        case IntImm(value, kind) if kind == INT32 and t.is_integer:
            return IntImm(wrap(value, t), t)
        case Broadcast(value, count):
            return Broadcast(_numbers(value, t), count)
        case Ramp(base, stride, count):
            return Ramp(_numbers(base, t), _numbers(stride, t), count)
        case Binary(op, a, b) if op in _ARITHMETIC:
            return Binary(op, _numbers(a, t), _numbers(b, t))
        case _:
            raise InternalError(f"the rules put a value of type {e.type} beside one of type {t}")
