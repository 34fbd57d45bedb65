"""What the constructors of ``rules/00_ir.egg`` are: lanes, type, and what they ask of arguments.

``selector.eqsat.decode`` and the interpreter say the same in NumPy, and tests compare the two. A
new constructor without a meaning here is an error that says so.
"""

from __future__ import annotations

from typing import cast

from selector.diagnostics import UserError
from selector.ir.types import Type, limits
from selector.workbench.prove.context import Cls, Context, Node, Say
from selector.workbench.prove.sizes import ONE, Poly, number
from selector.workbench.prove.strings import BOOL, INT32, is_literal


def well_formed(context: Context, say: Say, e: Cls, node: Node) -> None:
    """State the lanes and the type of a node; ``say`` what its arguments have to be."""
    match node.name, node.args:
        case "Int", _:
            context.lanes(e, ONE)
            context.integer(e)
        case "Sym", _:
            _has(context, e, ONE, INT32)
        case "Lit", (str(t), Poly() as value):
            _fits(say, context.string(t), value)
            _has(context, e, ONE, t)
        case "FLit", (str(t), _):
            _has(context, e, ONE, t)
        case "Atom", (str(t), Poly() as n, _):
            say.size(n)
            _has(context, e, n, t)
        case "Apply", (str(t), Poly() as n, *_):
            say.size(n)
            _has(context, e, n, t)
        case _:
            _lane_wise(context, say, e, node)


def _fits(say: Say, t: str, value: Poly) -> None:
    """A type has a number; all have 0 and 1."""
    if is_literal(t) and Type.parse(t).is_integer:
        least, most = limits(Type.parse(t))
        say.holds(">=", value, number(least))
        say.holds("<=", value, number(most))
    else:
        say.demand(value.constant in (0, 1), f"a number of type {t.lstrip('?')}")


def _has(context: Context, e: Cls, lanes: Poly, t: Cls | str) -> None:
    """A class has so many lanes, and the type of another one or the one of that name."""
    context.lanes(e, lanes)
    context.same_type(e, t)


def _lane_wise(context: Context, say: Say, e: Cls, node: Node) -> None:
    lanes = context.lane_count
    match node.name, node.args:
        case "Cast", (str(t), int(x)):
            _has(context, e, lanes(x), t)
        case "Bop", (str(op), int(a), int(b)):
            say.lanes(b, lanes(a))
            context.lanes(e, lanes(a))
            say.combined(op, e, a, b)
            if context.string(op) in ("&&", "||"):
                say.same_type(a, BOOL)
            if context.string(op) in ("/", "%") and _is_numeral(context, b):
                say.same_type(a, INT32)
        case "Cmp", (_, int(a), int(b)):
            say.lanes(b, lanes(a))
            say.same_type(a, b)
            _has(context, e, lanes(a), BOOL)
        case "Not", (int(a),):
            say.same_type(a, BOOL)
            _has(context, e, lanes(a), BOOL)
        case "Select", (int(c), int(a), int(b)):
            say.same_type(c, BOOL)
            say.same_type(a, b)
            say.lanes(c, lanes(a))
            say.lanes(b, lanes(a))
            _has(context, e, lanes(a), a)
        case "Load", (str(t), _, int(i), int(p)):
            say.same_type(i, INT32)
            say.same_type(p, BOOL)
            say.lanes(p, lanes(i))
            _has(context, e, lanes(i), t)
        case _:
            _vector(context, say, e, node)


def _is_numeral(context: Context, e: Cls) -> bool:
    """Whether rules divide by it: what they write as ``Int`` takes the type of what it is added to
    or multiplied with, but nothing of another type than int32 is divided by one."""
    copies = [cast(Cls, n.args[0]) for n in context.having(e, "Broadcast")]
    return any(context.having(x, "Int") for x in (e, *copies))


def _vector(context: Context, say: Say, e: Cls, node: Node) -> None:
    lanes = context.lane_count
    match node.name, node.args:
        case "Always", (Poly() as n,):
            say.size(n)
            _has(context, e, n, BOOL)
        case "Ramp" | "RampV", (int(b), int(s), Poly() as n):
            say.size(n)
            if node.name == "Ramp":
                say.strided(b, s)
                say.lanes(s, ONE)
            else:
                say.integer(b)
                say.same_type(b, s)
                say.lanes(s, lanes(b))
            _has(context, e, lanes(b) * n, b)
        case "Broadcast", (int(x), Poly() as n):
            say.size(n)
            _has(context, e, lanes(x) * n, x)
        case "Reduce", (_, int(x), Poly() as n):
            say.size(n)
            say.holds("|", n, lanes(x))
            _has(context, e, n, x)
        case "Move", (_, _, int(x)):
            _has(context, e, lanes(x), x)
        case "Materialize" | "TileFill" | "TileRead", (int(x),):
            _has(context, e, lanes(x), x)
        case _:
            _operand(context, say, e, node)


def _operand(context: Context, say: Say, e: Cls, node: Node) -> None:
    match node.name, node.args:
        case "Matrix", (str(t), _, int(base), int(so), Poly() as no, int(si), Poly() as ni, int(p)):
            say.size(no, ni)
            for scalar in (base, so, si):
                say.lanes(scalar, ONE)
                say.same_type(scalar, INT32)
            say.same_type(p, BOOL)
            say.lanes(p, no * ni)
            _has(context, e, no * ni, t)
        case "Toeplitz" | "ToeplitzT", (
            str(t), Poly() as k, Poly() as n, Poly() as st, Poly() as d, Poly() as ph, int(taps)
        ):  # fmt: skip
            say.size(k, n, st, d, ph)
            say.same_type(taps, t)
            say.holds("|", ph, n)
            say.holds("|", ph, context.lane_count(taps))
            outputs, count = (
                _outputs(context, n, ph),
                _outputs(context, context.lane_count(taps), ph),
            )
            say.holds(">=", k, d * (count - ONE) + st * (outputs - ONE) + ONE)
            _has(context, e, k * n, t)
        case "Vnni", (str(t), Poly() as k, Poly() as n, Poly() as g, int(x)):
            say.size(k, n, g)
            say.same_type(x, t)
            say.lanes(x, k * n)
            groups, _ = context.sizes.quotient(k + g - ONE, g)
            say.size(groups)
            _has(context, e, groups * g * n, t)
        case "MultiplyAdd", (
            str(f), Poly() as m, Poly() as n, Poly() as k, int(c), int(a), int(b)
        ):  # fmt: skip
            _instruction(context, say, f, (m, n, k), (c, a, b))
            _has(context, e, m * n, c)
        case name, _:
            raise UserError(
                f"the constructor {name} has no meaning to prove with",
                hint="say its lanes and its type in selector/workbench/prove/meaning.py, and its "
                "value in lane_values.py beside it",
            )


def _outputs(context: Context, n: Poly, phases: Poly) -> Poly:
    return context.sizes.quotient(n, phases)[0]


def _instruction(
    context: Context,
    say: Say,
    f: str,
    shape: tuple[Poly, Poly, Poly],
    operands: tuple[Cls, Cls, Cls],
) -> None:
    """An instruction has operands of its types, a block that it divides, and its order of B."""
    m, n, k = shape
    c, a, b = operands
    say.size(m, n, k)
    say.lanes(c, m * n)
    say.lanes(a, m * k)
    say.demand(packing_of(context, f) is not None, f"in which order {f} reads B")
    packing = packing_of(context, f) or ONE
    groups, _ = context.sizes.quotient(k + packing - ONE, packing)
    say.lanes(b, groups * packing * n)
    units = [u for u in context.target.units if context.string(u.name) == context.string(f)]
    say.demand(bool(units), f"an instruction {f} of the target")
    for unit in units[:1]:
        for operand, t in zip((a, b, c), unit.types, strict=True):
            say.same_type(operand, t)
        if unit.apart is not None:
            say.holds("=", m, unit.m)
            say.holds("=", n, unit.n)
            say.demand(_is_windows(context, a, unit.apart), "windows that lie so far apart")
            say.demand(_is_band(context, b), "a band as second factor")
        elif not _takes_any(context, f):
            say.holds("|", unit.m, m)
            say.holds("|", unit.n, n)


def packing_of(context: Context, f: str) -> Poly | None:
    """How many k lie side by side in an instruction's B, if a fact says so."""
    known = {context.string(name): g for name, g in context.target.packings.items()}
    parts = {context.string(u.name): ONE for u in context.target.units if u.apart is not None}
    return (known | parts).get(context.string(f))


def _takes_any(context: Context, f: str) -> bool:
    """Whether tiles are configured. Instructions that read groups are (``TensorInstruction``)."""
    packing = packing_of(context, f)
    grouped = packing is not None and any(
        relation == ">" and context.sizes.resolved(a - b) == context.sizes.resolved(packing) - ONE
        for relation, a, b in context.sizes.facts
    )
    return grouped or context.string(f) in map(context.string, context.target.configurable)


def _is_windows(context: Context, a: Cls, apart: Poly) -> bool:
    return any(
        context.literal(cast(Cls, n.args[3])) == context.sizes.resolved(apart)
        and context.literal(cast(Cls, n.args[5])) == ONE
        for n in context.having(a, "Matrix")
    )


def _is_band(context: Context, b: Cls) -> bool:
    """A Toeplitz matrix, maybe in a temporary."""
    inner = [cast(Cls, n.args[0]) for n in context.having(b, "Materialize")]
    return any(context.having(x, "Toeplitz") for x in (b, *inner))
