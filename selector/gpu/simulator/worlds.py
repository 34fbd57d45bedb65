"""What differs between launches and blocks, as far as the protocol of a kernel asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from selector.dataclass import dataclass
from selector.gpu.ir.expressions import BLOCKS, GIVEN
from selector.gpu.ir.nodes import (
    Advance,
    Body,
    For,
    If,
    Kernel,
    Let,
    Local,
    Node,
    State,
    expressions,
    walk,
)
from selector.gpu.ir.values import asked
from selector.gpu.simulator.moved import Alone
from selector.gpu.simulator.resolved import PLACED
from selector.ir.nodes import Binary, BinaryOp, Call, Expr, IntImm, Var
from selector.ir.traverse import expr_children, free_vars
from selector.ir.types import BOOL

FEW = 4  # stages, where none are counted


@dataclass(frozen=True, slots=True)
class World:
    """``flags`` that a launch brings, and what is ``assumed`` of values that follow from nothing
    here: conditions all ``hold`` or none; loops begin at 0 and have so many ``trips``.
    """

    flags: Mapping[str, int]
    hold: bool
    trips: int
    starts: frozenset[Expr]  # values at which loops begin
    totals: frozenset[Expr]  # values that say how much work all blocks have, and which that is
    work: int

    def assumed(self, given: Expr) -> int:
        """What a value is that the kernel is given."""
        if given.type == BOOL:
            return self.hold
        if given in self.starts:
            return 0
        return self.work if given in self.totals else self.trips


def worlds_of(kernel: Kernel) -> Iterator[World]:
    """All that make a difference."""
    values = {x for node in walk(kernel.body) for e in expressions(node) for x in _given(e)}
    stages = max((n.stages for n in walk(kernel.body) if isinstance(n, Advance)), default=FEW)
    asked = any(e.type == BOOL for e in values)
    alone = Alone(kernel)
    moving = _flags(tuple(x for x in walk(kernel.body) if alone.is_moved(x)))
    deciding = _flags(_unmoved(kernel.body, alone))
    moving -= deciding
    starts = frozenset(_starts(kernel.body))
    found = dict(_totals(kernel.body))
    turns = 2 * max(found.values(), default=1) + 1  # of a block: every team has some
    placed = PLACED | set(_declared(kernel.body))
    counted = any(free_vars(e) - placed for e in values if e.type != BOOL)
    for trips in sorted({0, 1, stages, stages + 1, 2 * stages + 1}) if counted else (stages,):
        for ready in (1, 0) if deciding else (1,):
            for aligned, hold in ((1, True), (1, False), (0, False)):
                if (hold or asked or (moving and not aligned)) and (aligned or moving):
                    flags = dict.fromkeys(moving, aligned) | dict.fromkeys(deciding, ready)
                    work = turns * kernel.cluster
                    yield World(flags, hold, trips, starts, frozenset(found), work)


def _given(e: Expr) -> Iterator[Expr]:
    """The values of the program in an expression."""
    return (x for x in asked(e) if isinstance(x, Expr))


def _declared(body: Body) -> Iterator[str]:
    for node in walk(body):
        match node:
            case Let(names=names) | State(names=names):
                yield from names
            case For(var=name):
                yield name
            case _:
                pass


def _unmoved(body: Body, alone: Alone) -> Body:
    """What is left without what single threads move."""
    found: list[Node] = []
    for node in body:
        if not alone.is_moved(node):
            match node:
                case Local() | For():
                    node = replace(node, body=_unmoved(node.body, alone))
                case If(condition, then, otherwise):
                    node = If(condition, _unmoved(then, alone), _unmoved(otherwise, alone))
                case _:
                    pass
            found.append(node)
    return tuple(found)


def _flags(body: Body) -> set[str]:
    """Conditions that the kernel does not declare."""
    found: set[str] = set()
    declared: set[str] = set()
    for node in walk(body):
        if isinstance(node, Let | State):
            declared |= set(node.names)
        for e in expressions(node):
            found |= _conditions(e)
    return found - declared


def _conditions(e: Expr) -> set[str]:
    """Those that are variables."""
    match e:
        case Var(name, t):
            return {name} if t == BOOL else set()
        case Call(_, name) if name == GIVEN:
            return set()
        case _:
            return set[str]().union(*map(_conditions, expr_children(e)))


def _starts(body: Body) -> Iterator[Expr]:
    """Values that loops begin at, or with so many iterations left out."""
    for node in walk(body):
        match node:
            case For(start=Binary(BinaryOp.ADD, Call() as e)) | For(start=Call() as e):
                yield e
            case Let(values=values):
                for e in values:
                    match e:
                        case Binary(BinaryOp.ADD, Call() as first, Var()):
                            yield first
                        case _:
                            pass
            case _:
                pass


def _totals(body: Body) -> Iterator[tuple[Expr, int]]:
    """Values up to which loops go whose steps are as long as the grid, and how many steps are made
    together, by teams.
    """
    for node in walk(body):
        match node:
            case For(stop=Call() as e, step=step) if step == BLOCKS:
                yield e, 1
            case For(stop=Call() as e, step=Binary(BinaryOp.MUL, IntImm(teams), blocks)):
                if blocks == BLOCKS:
                    yield e, teams
            case _:
                pass
