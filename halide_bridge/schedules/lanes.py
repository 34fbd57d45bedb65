"""How many neighbours a thread computes at once: those that fill a vector of 16 bytes."""

from __future__ import annotations

from collections.abc import Iterator, Set
from math import gcd

from halide_bridge.records import ELEMENT
from halide_bridge.schedules.recognise.facts import Body
from selector.ir.affine import Affine
from selector.ir.nodes import Binary, BinaryOp, Call, Expr, IntImm, Var
from selector.ir.traverse import free_vars, substitute, walk_expr
from selector.lowering.boundaries import unclamped
from selector.lowering.written_out import MOST
from selector.targets import VECTOR_BYTES

APART = 4  # elements from one neighbour to the next: those between are loaded with them
AGAIN = 4  # times at most that a thread computes with what it has read


def lanes_of(
    body: Body,
    along: str,
    stored: int = 1,
    *,
    pixels: bool = False,
    channel: tuple[str, int] = ("", 1),
    rows: Set[str] = frozenset(),
) -> int:
    """Of a thread whose neighbours are those along a variable; 1 where it reads no neighbours.
    ``stored``: bytes of an element that it stores along it; ``pixels``: neighbours may be some
    elements of each pixel, too. ``channel``: a variable that a thread has so many values of.
    ``rows``: variables without which nothing is read but what is the same for all rows, in the
    cache: its vectors may be several.
    """
    pixels = pixels or channel[1] > 1
    read = [
        (part.type.bytes if not rows or _mentions(part.args, rows) else 1, near)
        for e in body.expressions
        for part in walk_expr(e)
        if isinstance(part, Call)
        and ELEMENT in part.name
        and (near := _near(part.args, along) or (pixels and _of_pixels(part.args, along, channel)))
    ]
    if not read:
        return 1
    lanes = gcd(
        max(1, VECTOR_BYTES // max(stored, *(b for b, _ in read))), *(near for _, near in read)
    )
    while lanes > 1 and lanes * channel[1] * body.operations > MOST:
        lanes //= 2
    return lanes


def _mentions(indices: tuple[Expr, ...], names: Set[str]) -> bool:
    return any(free_vars(i) & names for i in indices)


def _near(indices: tuple[Expr, ...], along: str) -> int:
    """How many neighbours along a variable read elements that lie near each other in memory, from
    each of its multiples on; 0 for none.
    """
    if not indices or any(along in free_vars(i) for i in indices[1:]):
        return 0
    form = Affine.of(unclamped(indices[0], along))
    step = form.coefficient(Var(along)).constant
    if step is not None and 1 <= step <= APART:
        return VECTOR_BYTES
    for atoms, factor in form:
        match atoms:
            case (Binary(BinaryOp.MOD, value, IntImm(value=turn)),) if factor == 1:
                first = Affine.of(value).rest(Var(along)).constant
                alike = Affine.of(value).coefficient(Var(along)).constant == 1
                if alike and first is not None and turn > 0:
                    return gcd(turn, first)
            case _:
                pass
    return 0


def turn_of(body: Body, along: str, length: int | None) -> int:
    """After how many neighbours along a variable of a certain length the same are read again, a few
    times: a thread that computes all of these reads them once. 0 if there is no such number.
    """
    turns = {
        turn
        for e in body.expressions
        for part in walk_expr(e)
        if isinstance(part, Call) and ELEMENT in part.name and part.args
        for atoms, _ in Affine.of(part.args[0])
        for turn in _turns(atoms, along)
    }
    if len(turns) != 1 or length is None:
        return 0
    (turn,) = turns
    again = 0 < turn < length <= AGAIN * turn and length % turn == 0
    return turn if again and turn % VECTOR_BYTES == 0 else 0


def _turns(atoms: tuple[Expr, ...], along: str) -> Iterator[int]:
    match atoms:
        case (Binary(BinaryOp.MOD, value, IntImm(value=turn)),) if value == Var(along):
            yield turn
        case _:
            pass


def _of_pixels(indices: tuple[Expr, ...], along: str, channel: tuple[str, int]) -> int:
    """The same where the first dimension is that of the elements of a pixel."""
    name, count = channel
    first = [Affine.of(substitute(i, {name: IntImm(n)})) for i in indices[:1] for n in range(count)]
    if len(indices) < 2 or not all(0 <= (f.constant or 0) < APART for f in first):
        return 0
    apart = all(f.constant is not None for f in first)
    alone = not any(along in free_vars(i) for i in indices[2:])
    step = Affine.of(unclamped(indices[1], along)).coefficient(Var(along)).constant
    return VECTOR_BYTES if apart and alone and step == 1 else 0
