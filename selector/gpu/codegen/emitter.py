"""What pipelined loops and runs of statements ask of the emitter of the kernel they stand in, which
writes them, and is asked by them to write what stands inside.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from selector.dataclass import dataclass
from selector.gpu.codegen.context import KernelContext
from selector.gpu.codegen.pipelines.staged import StagedLoop
from selector.gpu.codegen.placement import Placement
from selector.gpu.codegen.products.tiles import TileEmitter
from selector.gpu.codegen.threads.plain import ThreadCode
from selector.gpu.codegen.units import Unit
from selector.gpu.codegen.warpgroups.products import GroupEmitter
from selector.gpu.codegen.warpgroups.window_products import WindowEmitter
from selector.gpu.ir.expressions import Number
from selector.ir.nodes import For, Stmt, Store
from selector.lowering.kernels import Kernel


class PersistentLoop(Protocol):
    """The pipelined loop of a kernel whose blocks do the work of several."""

    @property
    def work(self) -> StagedLoop: ...

    def consume(self, groups: Unit) -> None: ...


@dataclass(slots=True)
class Pipelines:
    """Where the emitter is among the pipelined loops of a kernel. ``last``: the last loop that a
    group which feeds the others takes part in; ``fed``: operands are staged ahead without such a
    group; ``in_consumers``: that group has gone another way; ``depth``: of the loops around;
    ``persistent``: the loop of a kernel whose blocks do the work of several.
    """

    last: Stmt | None = None
    fed: bool = False
    in_consumers: bool = False
    depth: int = 0
    persistent: PersistentLoop | None = None


class Emitter(Protocol):
    """``selector.gpu.codegen.kernel.KernelEmitter`` says what each of them is."""

    kernel: Kernel
    context: KernelContext
    tiles: TileEmitter
    groups: GroupEmitter
    windows: WindowEmitter
    threads: ThreadCode
    placement: Placement
    exchanged: set[str]
    pipelines: Pipelines

    def statement(self, s: Stmt, unit: Unit, *, in_warp: bool) -> None: ...

    def statements(self, stmts: Iterable[Stmt], unit: Unit, *, in_warp: bool) -> None: ...

    def region(
        self, loops: list[tuple[str, int]], s: Stmt, unit: Unit
    ) -> AbstractContextManager[Unit]: ...

    def sum_rows(self, stmts: tuple[Store, ...], unit: Unit) -> None: ...

    def loop_head(self, s: For, skip: Number = 0) -> AbstractContextManager[None]: ...

    def touched(self, s: Stmt) -> tuple[set[str], set[str]]: ...

    def before(self, s: Stmt, unit: Unit) -> None: ...

    def begin_again(self, stmts: Iterable[Stmt], unit: Unit) -> None: ...

    def is_argument_fill(self, s: Store) -> bool: ...

    def fill_bands(self, unit: Unit) -> bool: ...
