"""What pipelined loops and runs of statements ask of the emitter of the kernel they stand in, which
writes them, and is asked by them to write what stands inside.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

from selector.emit.context import KernelContext
from selector.emit.placement import Placement
from selector.emit.threads import ThreadCode
from selector.emit.tiles import TileEmitter
from selector.emit.units import Unit
from selector.emit.warpgroups.products import GroupEmitter
from selector.emit.warpgroups.window_products import WindowEmitter
from selector.gpu.ir.expressions import Number
from selector.ir.nodes import For, Stmt, Store
from selector.lowering.kernels import Kernel


class LastingLoop(Protocol):
    """The pipelined loop of a kernel whose blocks do the work of several."""

    loop: For

    def consume(self, groups: Unit) -> None: ...


class Emitter(Protocol):
    """``selector.emit.kernel.KernelEmitter`` says what each of them is."""

    kernel: Kernel
    context: KernelContext
    tiles: TileEmitter
    groups: GroupEmitter
    windows: WindowEmitter
    threads: ThreadCode
    placement: Placement
    exchanged: set[str]
    last_loop: Stmt | None
    in_consumers: bool
    loop_depth: int
    lasting: LastingLoop | None

    def statement(self, s: Stmt, unit: Unit, *, in_warp: bool) -> None: ...

    def statements(self, stmts: Iterable[Stmt], unit: Unit, *, in_warp: bool) -> None: ...

    def sum_rows(self, stmts: tuple[Store, ...], unit: Unit) -> None: ...

    def loop_head(self, s: For, skip: Number = 0) -> AbstractContextManager[None]: ...

    def touched(self, s: Stmt) -> tuple[set[str], set[str]]: ...

    def before(self, s: Stmt, unit: Unit) -> None: ...

    def begin_again(self, stmts: Iterable[Stmt], unit: Unit) -> None: ...

    def is_argument_fill(self, s: Store) -> bool: ...

    def fill_bands(self, unit: Unit) -> bool: ...
