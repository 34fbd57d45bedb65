"""Where the buffers of a program live in a kernel, and C's names of types."""

from __future__ import annotations

from enum import Enum

from selector.dataclass import dataclass
from selector.diagnostics import EmitError
from selector.gpu.codegen.warpgroups.panels import Panels
from selector.gpu.cuda.expressions import TYPES, spell
from selector.gpu.ir.expressions import place, plus, quotient, remainder, times
from selector.gpu.ir.layouts import Dealt
from selector.gpu.ir.views import View
from selector.ir.nodes import BufferParam, Expr
from selector.ir.types import Type


class Space(Enum):
    """The memory that a pointer points into."""

    GLOBAL = "global"
    SHARED = "shared"
    LOCAL = "local"
    REGISTERS = "registers"  # blocks of operands, see ``register_tiles``


@dataclass(frozen=True, slots=True)
class Storage:
    """Where a buffer of the IR lives in the kernel: C pointer, space, and what bounds it."""

    base: str
    type: Type
    space: Space
    param: BufferParam | None = None
    elements: Expr | None = None
    pitches: tuple[Expr, ...] = ()
    rounded_rows: bool = False  # filled by copies that reach to the next multiple of 16 bytes
    panels: Panels | None = None
    strips: Dealt | None = None
    start: Expr | None = None  # elements from the base: the stage of a pipeline
    own: bool = False  # what launches pass to each other, of no caller

    @property
    def pointer(self) -> str:
        """The element that the program calls 0."""
        return self.base if self.start is None else f"({self.base} + {spell(self.start)})"

    @property
    def view(self) -> View:
        """The same of shared memory."""
        return View(self.base, self.start)

    def at(self, index: Expr) -> View:
        """The same from an element on."""
        return View(self.base, self.start, index=index)

    def place(self, index: Expr) -> Expr:
        """Where the element that the program calls ``index`` lies."""
        if self.panels is not None:
            return self.panels.index(index)
        if self.strips is None:
            return index
        pitch, step, per = self.strips.pitch, self.strips.step, self.strips.per
        column = place("strip_column", pitch, step, per, index=remainder(index, pitch))
        return plus(times(quotient(index, pitch), pitch), column)


def c_type(t: Type) -> str:
    """The C++ name of a scalar type."""
    if t not in TYPES:
        raise EmitError(f"a value of type {t} has no form in a kernel")
    return TYPES[t]
