"""IR to terms of ``rules/00_ir.egg``; ``decode`` is the inverse.

The encoding keeps everything: ``decode(encode(e)) == e`` for every expression without ``Let`` and
``Shuffle``, which ``abstract`` has replaced by symbols.
"""

from __future__ import annotations

from functools import lru_cache
from typing import assert_never

from selector.diagnostics import InternalError
from selector.ir.nodes import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Expr,
    ExprVar,
    FloatImm,
    IntImm,
    Let,
    Load,
    LocToLoc,
    Not,
    Ramp,
    Select,
    Shuffle,
    Store,
    Var,
    VectorReduce,
)
from selector.ir.types import INT32


@lru_cache(maxsize=4096)
def text(value: str) -> str:
    """A string literal of egglog."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def real(value: float) -> str:
    """A float literal of egglog, exact."""
    shown = repr(value)
    return shown if "." in shown or "e" not in shown else shown.replace("e", ".0e")


def encode(e: Expr) -> str:
    """The term of an expression. InternalError on ``Let`` and ``Shuffle``."""
    match e:
        case IntImm(value, t):
            return f"(Int {value})" if t == INT32 else f"(Lit {text(str(t))} {value})"
        case FloatImm(value, t):
            return f"(FLit {text(str(t))} {real(value)})"
        case Var(name, t):
            if t == INT32:
                return f"(Sym {text(name)})"
            return f"(Atom {text(str(t.element))} {t.lanes} {text(name)})"
        case Cast(t, value):
            return f"(Cast {text(str(t.element))} {encode(value)})"
        case Binary(op, a, b):
            return f"(Bop {text(op.value)} {encode(a)} {encode(b)})"
        case Compare(op, a, b):
            return f"(Cmp {text(op.value)} {encode(a)} {encode(b)})"
        case Not(value):
            return f"(Not {encode(value)})"
        case Select(c, a, b):
            return f"(Select {encode(c)} {encode(a)} {encode(b)})"
        case Load(t, buffer, index, predicate):
            mask = encode_mask(predicate, t.lanes)
            return f"(Load {text(str(t.element))} {text(buffer)} {encode(index)} {mask})"
        case Let() | Shuffle():
            raise InternalError(f"no term for {type(e).__name__}: abstract it first")
        case _:
            return _encode_vector(e)


def _encode_vector(e: Ramp | Broadcast | VectorReduce | Call | LocToLoc | ExprVar) -> str:
    match e:
        case Ramp(base, stride, count):
            name = "Ramp" if base.type.lanes == 1 else "RampV"
            return f"({name} {encode(base)} {encode(stride)} {count})"
        case Broadcast(value, count):
            return f"(Broadcast {encode(value)} {count})"
        case VectorReduce(op, value, lanes):
            return f"(Reduce {text(op.value)} {encode(value)} {lanes})"
        case Call(t, name, args):
            arguments = f"(vec-of {' '.join(map(encode, args))})" if args else "(vec-empty)"
            return f"(Apply {text(str(t.element))} {t.lanes} {text(name)} {arguments})"
        case LocToLoc(source, destination, value):
            return f"(Move {text(source.value)} {text(destination.value)} {encode(value)})"
        case ExprVar(value):
            return f"(Materialize {encode(value)})"
        case _:
            assert_never(e)


def encode_mask(predicate: Expr | None, lanes: int) -> str:
    """The term of a predicate; none is the one that holds everywhere."""
    return f"(Always {lanes})" if predicate is None else encode(predicate)


def encode_store(s: Store) -> str:
    """The term of a statement."""
    mask = encode_mask(s.predicate, s.value.type.lanes)
    return f"(Store {text(s.buffer)} {encode(s.index)} {encode(s.value)} {mask})"
