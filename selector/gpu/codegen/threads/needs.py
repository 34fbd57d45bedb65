"""When all lanes of a thread's vector statement (``threads.vectors``) do as one of them does."""

from __future__ import annotations

from dataclasses import field

from selector.dataclass import dataclass
from selector.gpu.codegen.threads.lanes import LANE
from selector.ir.affine import Affine
from selector.ir.nodes import Binary, BinaryOp, Expr, Not
from selector.ir.traverse import free_vars
from selector.lowering.predicates import slack


class Unknown(Exception):  # noqa: N818
    """It cannot be told when all lanes are inside."""


@dataclass(slots=True)
class Needs:
    """When a statement goes as vectors: what has to be at least zero in all ``lanes``, by all but
    its constant, and further tests.
    """

    lanes: int
    least: dict[Affine, int] = field(default_factory=dict[Affine, int])
    tests: dict[Expr, None] = field(default_factory=dict[Expr, None])

    def everywhere(self, room: Affine) -> None:
        """Not negative for any lane."""
        factor, rest = room.coefficient(LANE).constant, room.rest(LANE)
        if factor is None or rest.mentions(LANE.name):
            raise Unknown
        low = rest.offset + min(0, factor * (self.lanes - 1))
        rest = rest - rest.offset
        if rest.terms:
            self.least[rest] = min(low, self.least.get(rest, low))
        elif low < 0:
            raise Unknown

    def update(self, others: Needs) -> None:
        """Those of others as well."""
        for room, least in others.least.items():
            self.least[room] = min(least, self.least.get(room, least))
        self.tests.update(others.tests)

    def implies(self, others: Needs) -> bool:
        """Whether others are met wherever these are."""
        rooms = all(
            room in self.least and self.least[room] <= least for room, least in others.least.items()
        )
        return rooms and others.tests.keys() <= self.tests.keys()

    def holds(self, condition: Expr, *, wanted: bool = True, alike: Needs | None = None) -> None:
        """In all lanes, or in none; parts that are ``alike`` for all lanes may be told apart."""
        match condition:
            case Not(value):
                self.holds(value, wanted=not wanted, alike=alike)
            case Binary(BinaryOp.AND | BinaryOp.OR as op, a, b) if wanted == (op is BinaryOp.AND):
                self.holds(a, wanted=wanted, alike=alike)
                self.holds(b, wanted=wanted, alike=alike)
            case _ if alike is not None and LANE.name not in free_vars(condition):
                alike.holds(condition, wanted=wanted)
            case _ if (room := slack(condition)) is not None:
                self.everywhere(room if wanted else -room - 1)
            case _ if LANE.name not in free_vars(condition):
                self.tests[condition if wanted else Not(condition)] = None
            case _:
                raise Unknown
