"""What a module says besides its parameters and its loops: ranges that are needed, promises, where
names come from, what is asked of grids.
"""

from __future__ import annotations

from selector.dataclass import dataclass
from selector.ir.kinds import GridKind
from selector.ir.nodes import Expr


@dataclass(frozen=True, slots=True)
class Requirement:
    """The algorithm reads or writes ``[minimum, maximum]`` of dimension ``dim`` of ``buffer``."""

    buffer: str
    dim: int
    minimum: Expr
    maximum: Expr


@dataclass(frozen=True, slots=True)
class Everywhere:
    """A condition on the variables of loops (name, first value, number of values), outermost first,
    in all their iterations.
    """

    loops: tuple[tuple[str, Expr, Expr], ...]
    condition: Expr

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (*(e for _, low, extent in self.loops for e in (low, extent)), self.condition)


@dataclass(frozen=True, slots=True)
class Promise:
    """What the user has promised of the parameters; ``message`` says what is broken where it is not
    kept. Where ``condition`` is true it is; where that is false, ``exactly`` says whether, if it is
    known.
    """

    condition: Expr
    message: str
    exactly: Everywhere | None = None

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.condition, *(self.exactly.exprs if self.exactly is not None else ()))


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a Func or buffer comes from, for messages: the user's name and ``file:line``."""

    name: str
    func: str
    location: str


@dataclass(frozen=True, slots=True)
class GridDirective:
    """What is asked of the grid of the kernel that computes ``func``."""

    kind: GridKind
    func: str
    blocks: int
