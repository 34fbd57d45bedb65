"""What the constructors of ``rules/00_ir.egg`` are worth at a lane; ``meaning`` has their types.

A lane is cut into digits at the lanes of a ramp's or a broadcast's base, as in
``selector.ir.lanes``.
"""

from __future__ import annotations

import z3

from selector.workbench.prove.context import Cls, Node
from selector.workbench.prove.formulas import Band, Value
from selector.workbench.prove.meaning import packing_of
from selector.workbench.prove.sizes import ONE, ZERO, Digits, Poly, Unproved, lane_number
from selector.workbench.prove.strings import BOOL, INT32
from selector.workbench.prove.values import RANGE, UNSIGNED_ZERO, Attempt

_ARITHMETIC = ("+", "-", "*", "/", "%", "min", "max")


def node_value(at: Attempt, e: Cls, node: Node, d: Digits) -> Value:  # noqa: C901 (a line a node)
    """The value of a node of a class at a lane."""
    match node.name, node.args:
        case "Int", (Poly() as v,):
            return at.z(v)
        case "Lit", (str(_), Poly() as v):
            return at.z(v)
        case "FLit", (_, str(v)):
            if v.startswith("?"):
                return z3.Int(f"float {v}")
            return z3.IntVal(int(float(v))) if float(v) in (0, 1) else z3.Int(f"float {v}")
        case "Sym", _:
            return at.arbitrary(e, ())
        case "Atom" | "Apply", _:
            return at.arbitrary(e, d)
        case "Cast", (str(t), int(x)):
            return at.cast(t, x, at.value(x, d))
        case "Bop", (str(op), int(a), int(b)):
            zeros = [x for x in (a, b) if at.context.is_zero(x)]
            if zeros and at.context.string(op) == "+":
                return at.value(b if a in zeros else a, d)
            if zeros and at.context.string(op) == "*":
                return at.z(ZERO)
            return binary(at, e, op, at.value(a, d), at.value(b, d))
        case "Cmp", (str(op), int(a), int(b)):
            return comparison(at, a, at.context.string(op), at.value(a, d), at.value(b, d))
        case "Not", (int(a),):
            return z3.Not(at.value(a, d))
        case "Select", (int(c), int(a), int(b)):
            return z3.If(at.value(c, d), at.value(a, d), at.value(b, d))
        case "Load", (str(t), str(buffer), int(i), int(p)):
            return _loaded(at, t, buffer, at.value(i, d), at.value(p, d))
        case "Always", _:
            return z3.BoolVal(True)
        case "Ramp" | "RampV", (int(b), int(s), Poly()):
            inner, outer = at.cut(d, at.context.lane_count(b))
            if at.context.is_zero(s):
                return at.value(b, inner)
            step = at.scalar(s) if node.name == "Ramp" else at.value(s, inner)
            return at.value(b, inner) + at.z(lane_number(outer)) * step
        case "Broadcast", (int(x), Poly()):
            return at.value(x, at.cut(d, at.context.lane_count(x))[0])
        case "Reduce", (str(op), int(x), Poly()):
            return _reduced(at, op, e, x, d)
        case "Move", (_, _, int(x)):
            return at.value(x, d)
        case "Materialize" | "TileFill" | "TileRead", (int(x),):
            return at.value(x, d)
        case _:
            return _operand_value(at, node, d)


def _loaded(at: Attempt, t: str, buffer: str, index: Value, predicate: Value) -> Value:
    zero = z3.BoolVal(False) if at.context.string(t) == BOOL else z3.IntVal(0)
    return z3.If(predicate, at.memory(t, buffer, index), zero)


_TURNED = {">": "<", ">=": "<="}


def comparison(at: Attempt, of: Cls, op: str, x: Value, y: Value) -> Value:
    """A comparison of values of the type of a class: of indices as numbers; of others it is known
    that ``x > y`` is ``y < x``, and ``x != y`` not ``x == y``."""
    if x.sort() == y.sort() == z3.IntSort():
        if at.lane is not None:
            return compared(op, x, y)
        if at.context.string(of) == INT32 and not op.startswith("?"):
            at.fact(z3.BoolVal(True), RANGE)
            return compared(op, x, y)
    if op == "!=":
        return z3.Not(comparison(at, of, "==", x, y))
    if op in _TURNED:
        return comparison(at, of, _TURNED[op], y, x)
    return at.function("compare", at.word(op), x, y, truth=True)


def compared(op: str, x: Value, y: Value) -> Value:
    """A comparison of numbers; one that a rule leaves open is ``<``."""
    match op:
        case "==":
            return x == y
        case "!=":
            return x != y
        case "<=":
            return x <= y
        case ">":
            return x > y
        case ">=":
            return x >= y
        case _:
            return x < y


def binary(at: Attempt, e: Cls, op: str, a: Value, b: Value) -> Value:
    """An operator on values of the type of a class."""
    op = at.context.string(op)
    if op in _ARITHMETIC and at.context.string(e) == BOOL:
        raise Unproved(f"{op} of truth values")
    match op:
        case "&&":
            return z3.And(a, b)
        case "||":
            return z3.Or(a, b)
        case "*":
            return at.times(e, a, b)
        case "+":
            return at.plus(e, a, b)
        case "-":
            if at.is_number(e):
                return a - b
            found = at.function("minus", at.word(e), a, b)
            at.fact(z3.Implies(b == 0, found == a), UNSIGNED_ZERO)
            return found
        case "/" | "%" if at.lane is not None or at.context.string(e) == INT32:
            q, r = z3.Int(f"div {len(at.quotients)}"), z3.Int(f"mod {len(at.quotients)}")
            at.euclid(a, b, q, r)
            at.fact(z3.BoolVal(True), RANGE)
            return q if op == "/" else r
        case "min" | "max":
            return _extreme(at, e, op, a, b)
        case _ if at.lane is not None and op.startswith("?") and a.sort() == z3.IntSort():
            return a - b
        case _:
            truth = at.context.string(e) == BOOL
            return at.function("binary", at.word(op), at.word(e), a, b, truth=truth)


def _extreme(at: Attempt, e: Cls, op: str, a: Value, b: Value) -> Value:
    """The smaller or larger value: of indices as numbers."""
    if at.lane is not None or at.context.string(e) == INT32:
        at.fact(z3.BoolVal(True), RANGE)
        return z3.If(a <= b if op == "min" else a >= b, a, b)
    found = at.function("binary", at.word(op), at.word(e), a, b)
    at.fact(z3.Implies(a == b, found == a))
    return found


def _reduced(at: Attempt, op: str, e: Cls, x: Cls, d: Digits) -> Value:
    if at.context.string(op) != "add":
        return at.function("reduce", at.word(op), z3.IntVal(x), at.z(lane_number(d)))
    terms = at.context.lane_count(x).over(at.context.lane_count(e))
    if terms is None:
        raise Unproved("how many terms a reduction has")
    return at.total(terms, lambda k: at.value(x, (*at.term(k, terms), *d)))


def _operand_value(at: Attempt, node: Node, d: Digits) -> Value:
    match node.name, node.args:
        case "Matrix", (str(t), str(buffer), int(base), int(so), _, int(si), Poly() as ni, int(p)):
            inner, outer = at.cut(d, ni)
            index = at.scalar(base) + at.z(lane_number(outer)) * at.scalar(so)
            index = index + at.z(lane_number(inner)) * at.scalar(si)
            return _loaded(at, t, buffer, index, at.value(p, d))
        case "Toeplitz", (_, _, Poly() as n, Poly() as st, Poly() as step, Poly() as ph, int(taps)):
            columns, rows = at.cut(d, n)
            return banded(at, rows, columns, (st, step, ph), taps)
        case "ToeplitzT", (_, Poly() as k, _, Poly() as st, Poly() as step, Poly() as ph, int(x)):
            rows, columns = at.cut(d, k)
            return banded(at, rows, columns, (st, step, ph), x)
        case "Vnni", (_, Poly() as k, Poly() as n, Poly() as g, int(x)):
            low, rest = at.cut(d, g)
            column, high = at.cut(rest, n)
            row = lane_number(low) + lane_number(high) * g
            there = at.z(row) < at.z(k)
            value = at.value(x, (*column, *at.term(row, k)))
            return z3.If(there, value, z3.IntVal(0))
        case "MultiplyAdd", (str(f), Poly() as m, Poly() as n, Poly() as k, int(c), int(a), int(b)):
            column, row = at.cut(d, n)
            packing = packing_of(at.context, f) or ONE
            total = product_sum(at, c, (a, b), (m, n, k), packing, (row, column))
            return at.plus(c, at.value(c, d), total)
        case name, _:
            raise AssertionError(name)


def banded(
    at: Attempt, rows: Digits, columns: Digits, steps: tuple[Poly, Poly, Poly], taps: Cls
) -> Value:
    """T[t, (q, p)] = taps[p, (t - stride*q) / dilation]: ``functions.toeplitz``."""
    stride, dilation, phases = steps
    phase, output = at.cut(columns, phases)
    row, first = lane_number(rows), lane_number(output) * stride
    count = at.sizes.resolved(at.context.lane_count(taps)).over(at.sizes.resolved(phases))
    if count is None:
        raise Unproved("how many taps a band has")
    tap, rest = at.divided(row - first, dilation)
    inside = z3.And(at.z(rest) == 0, at.z(tap) >= 0, at.z(tap) < at.z(count))
    at.bands.append(Band(row, first, dilation, count, inside))
    value = at.value(taps, (*at.digits((tap, count)), *phase))
    return z3.If(inside, value, z3.IntVal(0))


def product_sum(
    at: Attempt,
    kind: Cls | str,
    factors: tuple[Cls, Cls],
    shape: tuple[Poly, Poly, Poly],
    packing: Poly,
    place: tuple[Digits, Digits],
) -> Value:
    """sum_k kind(A[m, k]) * kind(B[k, n]), B in groups of ``packing`` k."""
    (a, b), (_, _, depth), (row, column) = factors, shape, place
    groups = at.sizes.quotient(depth + packing - ONE, packing)[0]

    def term(k: Poly) -> Value:
        digits = at.term(k, depth)
        left = at.value(a, (*digits, *row))
        if packing == ONE:
            right = at.value(b, (*column, *digits))
        else:
            high, low = at.divided(k, packing)
            inside = at.term(low, packing)
            right = at.value(b, (*inside, *column, *at.term(high, groups)))
        return at.times(kind, at.cast(kind, a, left), at.cast(kind, b, right))

    return at.total(depth, term)
