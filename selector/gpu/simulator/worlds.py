"""What differs between launches and blocks, as far as the protocol of a kernel asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from selector.gpu.ir.expressions import BLOCKS
from selector.gpu.ir.nodes import (
    Advance,
    Body,
    For,
    If,
    Kernel,
    Let,
    Node,
    Number,
    State,
    Under,
    expressions,
    walk,
)
from selector.gpu.simulator.moved import Alone
from selector.gpu.simulator.resolved import PLACED
from selector.ir.nodes import Binary, BinaryOp, Expr, IntImm, Var
from selector.ir.traverse import free_vars, walk_expr
from selector.ir.types import BOOL

FEW = 4  # stages, where none are counted


@dataclass(frozen=True, slots=True)
class World:
    """``flags`` that a launch brings, and what is ``assumed`` of numbers that follow from nothing
    here: conditions all ``hold`` or none; loops begin at 0 and have so many ``trips``.
    """

    flags: Mapping[str, int]
    hold: bool
    trips: int
    numbers: Mapping[str, Number]
    starts: frozenset[Expr]  # values at which loops begin
    totals: frozenset[Expr]  # values that say how much work all blocks have, and which that is
    work: int

    def assumed(self, number: Number) -> int:
        """The value of a number."""
        if number.value.type == BOOL:
            return self.hold
        if number.value in self.starts:
            return 0
        return self.work if number.value in self.totals else self.trips


def worlds_of(kernel: Kernel) -> Iterator[World]:
    """All that make a difference."""
    numbers = {n.name: n for n in kernel.declarations if isinstance(n, Number)}
    stages = max((n.stages for n in walk(kernel.body) if isinstance(n, Advance)), default=FEW)
    asked = any(n.value.type == BOOL for n in numbers.values())
    alone = Alone(kernel)
    moving = _flags(tuple(x for x in walk(kernel.body) if alone.is_moved(x)))
    deciding = _flags(_unmoved(kernel.body, alone)) - numbers.keys()
    moving -= numbers.keys() | deciding
    starts = frozenset(numbers[name].value for name in _starts(kernel.body) if name in numbers)
    found = dict(_totals(kernel.body))
    totals = frozenset(numbers[name].value for name in found if name in numbers)
    turns = 2 * max(found.values(), default=1) + 1  # of a block: every team has some
    given = PLACED | set(_declared(kernel.body)) | numbers.keys()
    counted = any(free_vars(n.value) - given for n in numbers.values() if n.value.type != BOOL)
    for trips in sorted({0, 1, stages, stages + 1, 2 * stages + 1}) if counted else (stages,):
        for ready in (1, 0) if deciding else (1,):
            for aligned, hold in ((1, True), (1, False), (0, False)):
                if (hold or asked or (moving and not aligned)) and (aligned or moving):
                    given = dict.fromkeys(moving, aligned) | dict.fromkeys(deciding, ready)
                    yield World(given, hold, trips, numbers, starts, totals, turns * kernel.cluster)


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
                case Under() | For():
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
            found |= {x.name for x in walk_expr(e) if isinstance(x, Var) and x.type == BOOL}
    return found - declared


def _starts(body: Body) -> Iterator[str]:
    """Numbers that loops begin at, or with so many iterations left out."""
    for node in walk(body):
        match node:
            case For(start=Var(name)) | For(start=Binary(BinaryOp.ADD, Var(name))):
                yield name
            case Let(values=values):
                for e in values:
                    match e:
                        case Binary(BinaryOp.ADD, Var(name), Var()):
                            yield name
                        case _:
                            pass
            case _:
                pass


def _totals(body: Body) -> Iterator[tuple[str, int]]:
    """Numbers up to which loops go whose steps are as long as the grid, and how many steps are
    made together, by teams.
    """
    for node in walk(body):
        match node:
            case For(stop=Var(name), step=step) if step == BLOCKS:
                yield name, 1
            case For(stop=Var(name), step=Binary(BinaryOp.MUL, IntImm(teams), blocks)):
                if blocks == BLOCKS:
                    yield name, teams
            case _:
                pass
