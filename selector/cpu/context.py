"""What the parts of the C emitter share while one function is written."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import field

from selector.cpu.scalar import CScalarEmitter
from selector.dataclass import dataclass
from selector.gpu.codegen.scalars.names import Names
from selector.gpu.codegen.scalars.storage import Storage
from selector.gpu.cuda.expressions import spell
from selector.ir.affine import to_affine
from selector.ir.nodes import Binary, BinaryOp, Call, Expr, For, IntImm, Load, Var
from selector.ir.traverse import walk_expr
from selector.lowering.ranges import Ranges
from selector.targets import Target

_OPERATORS = frozenset(
    ("bitwise_or", "bitwise_xor", "bitwise_and", "bitwise_not", "shift_right", "element")
)  # calls that C has signs for


class Writer:
    """Collects lines; ``block`` indents. The text ends with a newline."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str = "") -> None:
        self._lines.append("  " * self._depth + text if text else "")

    def lines(self, text: str) -> None:
        for part in text.splitlines():
            self.line(part)

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Generator[None]:
        """``head {`` ... ``tail`` with the lines between indented."""
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line(tail)

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


@dataclass(slots=True)
class CContext:
    """The state of one C function being emitted.

    ``safe`` are loads and ``holding`` conditions that a test ahead of the code being written
    covers; ``guarded`` is set inside both versions of such code.
    """

    name: str
    target: Target
    names: Names
    ranges: Ranges = field(default_factory=Ranges)
    storages: dict[str, Storage] = field(default_factory=dict[str, Storage])
    safe: frozenset[Load] = frozenset()
    holding: frozenset[Expr] = frozenset()
    guarded: bool = False
    parallel: bool = False  # inside a parallel region
    can_fail: bool = False  # memory is allocated
    constants: list[str] = field(default_factory=list[str])  # text ahead of the function
    writer: Writer = field(default_factory=Writer)

    @property
    def scalar(self) -> CScalarEmitter:
        return CScalarEmitter(self.names, self.storages, self.safe, self.holding, self.ranges)

    def conjunction(self, tests: tuple[Expr, ...]) -> str:
        return self.scalar.condition(*tests)

    def either(
        self, tests: tuple[Expr, ...], then: Callable[[], None], otherwise: Callable[[], None]
    ) -> None:
        """What is written where all tests hold, of which there may be none, and where not."""
        if not tests:
            then()
            return
        with self.writer.block(f"if ({self.conjunction(tests)})"):
            then()
        with self.writer.block("else"):
            otherwise()

    @contextmanager
    def inside(self, bounds: Mapping[str, tuple[Expr, Expr]]) -> Generator[None]:
        """The loops of these variables are around what is written."""
        outer = self.ranges
        self.ranges = outer.extended(bounds)
        yield
        self.ranges = outer

    @contextmanager
    def covered(self, safe: frozenset[Load], holding: frozenset[Expr]) -> Generator[None]:
        """A test ahead covers these loads and conditions."""
        outer = self.safe, self.holding, self.guarded
        self.safe, self.holding, self.guarded = self.safe | safe, self.holding | holding, True
        yield
        self.safe, self.holding, self.guarded = outer

    @contextmanager
    def fresh_guard(self) -> Generator[None]:
        """Code inside has tests of its own."""
        outer, self.guarded = self.guarded, False
        yield
        self.guarded = outer

    @contextmanager
    def stored(self, name: str, storage: Storage) -> Generator[None]:
        """A buffer lives in ``storage``."""
        outer = self.storages.get(name)
        self.storages[name] = storage
        yield
        if outer is None:
            del self.storages[name]
        else:
            self.storages[name] = outer


def loop_head(s: For, c: CContext) -> str:
    """``for (...)`` over the iterations of a loop."""
    return _head(s, *_limits(s, c), c)


def shared_head(s: For, c: CContext) -> str:
    """The same of a loop that threads share: OpenMP takes no statements in a head, which macros
    are; such limits are written ahead of it.
    """

    def named(limit: Expr, what: str) -> Expr:
        if not any(map(_is_called, walk_expr(limit))):
            return limit
        name = c.names.fresh(f"{c.names.get(s.name)}_{what}")
        c.writer.line(f"const int {name} = {spell(limit, c.scalar.words)};")
        return Var(name)

    low, stop = _limits(s, c)
    return _head(s, named(low, "first"), named(stop, "end"), c)


def _is_called(e: Expr) -> bool:
    """Whether C has a function or a macro for an operation."""
    match e:
        case Binary(op):
            return op in (BinaryOp.MIN, BinaryOp.MAX)
        case Call(_, name):
            return name not in _OPERATORS
        case _:
            return False


def _limits(s: For, c: CContext) -> tuple[Expr, Expr]:
    low, number = c.scalar.number(s.min), c.scalar.number
    return low, number(s.extent if low == IntImm(0) else (to_affine(s.min) + s.extent).to_expr())


def _head(s: For, low: Expr, stop: Expr, c: CContext) -> str:
    name, words = c.names.get(s.name), c.scalar.words
    first, end = spell(low, words), spell(stop, words)
    return f"for (int {name} = {first}; {name} < {end}; ++{name})"
