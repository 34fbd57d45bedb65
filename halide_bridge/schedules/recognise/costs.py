"""What an element of a Func costs to compute: what decides whether it is computed anew by each that
reads it.

In operations of a CUDA core: an addition is one. A load that the cache answers keeps a
multiprocessor as busy as four; values that take the special unit or its sequences as long as
``_CALLS`` says.
"""

from __future__ import annotations

from halide_bridge.records import ELEMENT
from selector.ir.nodes import Binary, BinaryOp, Call, Expr, FloatImm, IntImm, Select, Var
from selector.ir.traverse import expr_children, walk_expr

LOAD = 4
_DIVISION = 8
_CALL = 12  # exp, sin, pow, ...
_CHEAP = frozenset({"abs", "likely", "select", "reinterpret", "absd"})
_BRANCHES, _REDUCTION = 16, 64  # in a text: of a branch or a division of integers, of an angle
_FORMS = 3  # of an access: by vectors, by elements, at an edge
MULTIPLY_ADD = 8  # and below


def operations(e: Expr, *, inside: bool = False) -> int:
    """Of one element. The indices of what it reads are not counted: threads share most of them. Nor
    are, ``inside``, conditions that no element decides, such as where an array ends.
    """
    total, waiting = 0, [e]
    while waiting:
        part = waiting.pop()
        total += _one(part)
        if inside and isinstance(part, Select) and not _loads(part.condition):
            waiting += [part.then, part.otherwise]
        elif not (isinstance(part, Call) and ELEMENT in part.name):
            waiting += expr_children(part)
    return total


def distinct(*values: Expr) -> int:
    """Of one element, where what stands in several places is computed once."""
    found, waiting = dict[Expr, None](), [*values]
    while waiting:
        part = waiting.pop()
        if part not in found:
            found[part] = None
            waiting += (
                () if isinstance(part, Call) and ELEMENT in part.name else expr_children(part)
            )
    return sum(map(_one, found))


def written(e: Expr) -> int:
    """How many multiply-adds what is done with loaded elements is as long as, as NVRTC sees it:
    calls and divisions are sequences, angles are reduced in a loop, products of integers take it as
    long as two. Where a condition chooses that no element decides, only one side is computed: a
    branch. Of where elements lie, branches and divisions count, in each form of an access.
    """
    total, waiting = 0, [e]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Call) and ELEMENT in part.name:
            total += _FORMS * sum(_BRANCHES for i in part.args for x in walk_expr(i) if _parts(x))
            continue
        waiting += expr_children(part)
        match part:
            case Call(name=name) if name.startswith(("sin_", "cos_", "tan_")):
                total += _REDUCTION
            case Binary(BinaryOp.MUL, _, _) if part.type.is_integer:
                total += 2 * MULTIPLY_ADD
            case Binary(BinaryOp.DIV | BinaryOp.MOD, _, _) if part.type.is_integer:
                total += _BRANCHES if _parts(part) else _one(part)
            case Select(condition, _, _) if not _loads(condition):
                total += _BRANCHES
            case _:
                total += _one(part)
    return max(1, total // MULTIPLY_ADD)


def _parts(e: Expr) -> bool:
    """Whether it is a branch, or a division of integers that is a sequence."""
    match e:
        case Binary(BinaryOp.DIV | BinaryOp.MOD, _, divisor):
            return e.type.is_integer and not isinstance(divisor, IntImm)
        case _:
            return isinstance(e, Select)


def _loads(e: Expr) -> bool:
    return any(isinstance(part, Call) and ELEMENT in part.name for part in walk_expr(e))


def _one(e: Expr) -> int:
    match e:
        case Call(name=name):
            return LOAD if ELEMENT in name else 1 if name in _CHEAP else _CALL
        case Binary(BinaryOp.DIV | BinaryOp.MOD, _, divisor):
            cheap = isinstance(divisor, IntImm | FloatImm)
            return 2 if cheap else _DIVISION
        case Var() | IntImm() | FloatImm():
            return 0
        case _:
            return 1
