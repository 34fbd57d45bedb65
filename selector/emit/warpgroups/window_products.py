"""Convolutions of a warpgroup: wgmma whose A is windows of a raw row, whose B is a band.

A's rows are windows of a row in shared memory, 8 elements of 16 bits apart. A descriptor without
a swizzle reads them where they lie: a core matrix is 8 windows of 16 bytes, 128 bytes in a row, the
next 8 windows follow it (stride offset 128), and the next 16 bytes of all windows are one window
further (leading offset 16). So rows of A overlap, and A is never formed.

The statements of a nest of constant loops are taken together. Those that read the same window, for
accumulators that lie side by side, become one instruction of up to 256 columns (``core_bands``): a
row of an image serves every row of outputs that its taps reach. All instructions of a nest are one
``asm`` statement: as statements of their own they take the compiler ten times as long.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product

from selector.diagnostics import ScheduleError, Where
from selector.emit.banded import BandTables
from selector.emit.context import KernelContext, slice_offset
from selector.emit.warpgroups.core_bands import COLUMNS, CORE_BYTES, CoreBands, Entry
from selector.emit.warpgroups.windows import is_window
from selector.emit.writer import comment
from selector.ir.affine import Affine
from selector.ir.nodes import For, IntImm, Stmt, Store, Var
from selector.ir.printer import print_expr
from selector.ir.traverse import stmt_children
from selector.lowering.fragments import BLOCK_BYTES
from selector.lowering.normalize import sequence
from selector.lowering.tiles import Access, Accumulate, Banded

GROUP_M, WIDEST = 64, 256
STEP_BYTES = 2 * BLOCK_BYTES  # of depth, in one instruction

Loops = tuple[tuple[str, int, int], ...]  # (variable, first value, number)


@dataclass(frozen=True, slots=True)
class Nested:
    """An accumulate statement and the constant loops around it."""

    statement: Accumulate
    loops: Loops


@dataclass(slots=True)
class WindowProduct:
    """One wgmma: accumulator pieces ``first`` ... of ``n`` columns += windows that start ``offset``
    bytes into ``buffer``, times step ``step`` of the depth of ``entry`` and those that follow it.
    """

    accumulator: str
    first: int
    n: int
    buffer: str
    symbolic: Affine  # bytes
    offset: int
    step: int
    entry: Entry

    @property
    def window(self) -> tuple[object, ...]:
        """What products share that can be one instruction."""
        return (self.accumulator, self.buffer, self.symbolic, self.offset, self.step)


class WindowEmitter:
    """Writes runs and nests of such statements."""

    def __init__(self, context: KernelContext, tables: BandTables) -> None:
        self.context = context
        self.tables = tables
        self.bands = CoreBands(context, tables)

    # ------------------------------------------------------------------ before the body

    def prepare(self, body: Stmt) -> None:
        """Lay out the bands of all such statements of a kernel."""
        following: dict[Entry, Entry] = {}
        seen: dict[Entry, None] = {}
        for run in _runs(body):
            products = self._ordered(self._nested(run, ()))
            seen |= dict.fromkeys(p.entry for p in products)
            for a, b in pairwise(products):
                if a.window == b.window and b.first == a.first + a.n // COLUMNS:
                    following.setdefault(a.entry, b.entry)
        self.bands.lay(_chains(list(seen), following))

    # ------------------------------------------------------------------ from statements to products

    def _nested(self, stmts: tuple[Stmt, ...], loops: Loops) -> list[Nested]:
        found: list[Nested] = []
        for s in stmts:
            match s:
                case For(name, IntImm(low), IntImm(extent), _, body):
                    found += self._nested(sequence(body), (*loops, (name, low, extent)))
                case Store():
                    statement = self.context.as_accumulate(s)
                    assert statement is not None
                    found.append(Nested(statement, loops))
                case _:
                    raise AssertionError("a nest holds loops and products")
        return found

    def _ordered(self, nested: list[Nested]) -> list[WindowProduct]:
        """All products, by the windows that they read."""
        numbers: dict[tuple[object, ...], int] = {}
        found = [p for n in nested for p in self._products(n)]
        for p in found:
            numbers.setdefault((p.accumulator, p.buffer, p.symbolic), len(numbers))
        return sorted(
            found,
            key=lambda p: (
                numbers[p.accumulator, p.buffer, p.symbolic],
                p.offset,
                p.step,
                p.first,
            ),
        )

    def _products(self, n: Nested) -> Iterator[WindowProduct]:
        s, a, b = n.statement, n.statement.a, n.statement.b
        assert isinstance(a, Access)
        assert isinstance(b, Banded)
        self._check(s, a)
        region = self.context.accumulators[s.accumulator].regions[
            slice_offset(s.offset, self.context, s.accumulator)
        ]
        variables = [Var(name) for name, _, _ in n.loops]
        steps = [a.base.coefficient(v).constant for v in variables]
        base = a.base
        for v in variables:
            base = base.rest(v)
        taps = self.tables.loops(b)
        places = [[name for name, _, _ in n.loops].index(t) for t in taps if t in self._names(n)]
        if (
            None in steps
            or len(places) != len(taps)
            or any(base.mentions(v.name) for v in variables)
        ):
            raise ScheduleError(
                f"the taps of `{b.buffer}` for `{s.accumulator}` depend on a loop around others",
                "the bands that meet one window are laid side by side, so that the loops over rows "
                "of taps have to be innermost, with constant extents",
                f"reorder the update of `{s.accumulator}`",
                Where(func=s.accumulator),
            )
        symbolic, start, size = base - base.offset, base.offset, a.type.bytes
        row = a.row_stride.constant or 0
        for values in product(*(range(low, low + extent) for _, low, extent in n.loops)):
            at = start + sum(v * (c or 0) for v, c in zip(values, steps, strict=True))
            entry = Entry(b, tuple(values[i] for i in places))
            for i in range(s.m // GROUP_M):
                for step in range(entry.blocks // 2):
                    yield WindowProduct(
                        s.accumulator, region.fragment(i, 0), COLUMNS, a.buffer, symbolic * size,
                        (at + GROUP_M * i * row) * size + STEP_BYTES * step, step, entry,
                    )  # fmt: skip

    def _names(self, n: Nested) -> list[str]:
        return [name for name, _, _ in n.loops]

    def _check(self, s: Accumulate, a: Access) -> None:
        """Windows 16 bytes apart that start at multiples of 16 bytes, and numbers to their ends."""
        per, rows = BLOCK_BYTES // a.type.bytes, self.context.windows[a.buffer]
        plain = a.predicate is None and a.depth_stride.constant == 1 and s.n == COLUMNS
        aligned = a.row_stride.constant == per and all(c % per == 0 for _, c in a.base)
        if not plain or not aligned or a.type.bytes != 2:
            raise ScheduleError(
                f"`{a.buffer}` cannot be read by {s.instruction.name} as windows",
                f"windows lie {per} elements apart and start at multiples of 16 bytes; these are "
                f"{print_expr(a.row_stride.to_expr())} apart, {s.n} outputs each",
                "vectorize 512 neighbouring outputs; or place the accumulators in "
                "MemoryType.WMMAAccumulator",
                Where(func=s.accumulator),
            )
        steps = -(-s.k * a.type.bytes // STEP_BYTES)
        whole = all(c % rows.pitch == 0 for m, c in a.base if m)
        needed = a.base.offset % rows.pitch + per * (s.m - 1) + STEP_BYTES // a.type.bytes * steps
        if not whole or needed > rows.columns:
            raise ScheduleError(
                f"the windows of `{a.buffer}` reach {needed} elements into its rows, of which "
                f"{rows.columns} are staged",
                f"{s.instruction.name} reads whole steps of {s.instruction.k} elements: what lies "
                "past a window meets zeros, and has to be a number",
                f"bound_extent(..., {needed}) on the staged copy's rows",
                Where(func=s.accumulator),
            )

    def _merged(self, products: list[WindowProduct]) -> list[WindowProduct]:
        found: list[WindowProduct] = []
        for p in products:
            last = found[-1] if found else None
            if (
                last is not None
                and last.window == p.window
                and last.entry.blocks == p.entry.blocks
                and p.first == last.first + last.n // COLUMNS
                and last.n + p.n <= WIDEST
                and self._place(p) == self._place(last) + last.n // COLUMNS * p.entry.bytes
            ):
                last.n += p.n
            else:
                found.append(replace(p))
        return found

    def _place(self, p: WindowProduct) -> int:
        return self.bands.places[p.entry] + 2 * CORE_BYTES * p.step

    # ------------------------------------------------------------------ text

    def emit(self, stmts: tuple[Stmt, ...]) -> None:
        """A run of products and nests of them."""
        products = self._merged(self._ordered(self._nested(stmts, ())))
        names = list(dict.fromkeys(p.accumulator for p in products))
        w = self.context.writer
        with w.block(""):
            w.line(comment(f"{', '.join(names)}: {len(products)} instructions"))
            registers, constraint = self._registers(names)
            numbers = {name: i for i, name in enumerate(registers)}
            count = len(registers)
            windows: dict[Hashable, int] = {}
            bands: dict[Hashable, int] = {}
            inputs: list[str] = []
            for p in products:
                for known, key, text in (
                    (windows, (p.buffer, p.symbolic), self._window_text(p)),
                    (bands, p.entry.bytes, self._band_text(p)),
                ):
                    if key not in known:
                        known[key] = count + len(inputs)
                        inputs.append(text)
            w.line("asm volatile(")
            w.line('  "{ .reg .b64 a, b;\\n"')
            before: tuple[str, int, int] | None = None
            for p in products:
                tile = (p.accumulator, p.first, p.n)
                if tile != before:
                    w.line('  "wgmma.fence.sync.aligned;\\n"')
                before = tile
                a = f"add.s64 a, %{windows[p.buffer, p.symbolic]}, {p.offset // 16};"
                b = f"add.s64 b, %{bands[p.entry.bytes]}, {self._place(p) // 16};"
                w.line(f'  "{a} {b}\\n"')
                w.line(f'  "{self._instruction(p, numbers)}\\n"')
            w.line('  "wgmma.commit_group.sync.aligned;\\n"')
            w.line('  "wgmma.wait_group.sync.aligned 0; }"')
            outputs = ", ".join(f'"+{constraint}"({name})' for name in registers)
            w.line(f"  : {outputs}")
            given = ", ".join(f'"l"({text})' for text in inputs)
            w.line(f'  : {given} : "memory");')

    def _registers(self, names: list[str]) -> tuple[list[str], str]:
        found: list[str] = []
        half = False
        for name in names:
            accumulator = self.context.accumulators[name]
            half = accumulator.half
            found += [
                f"{accumulator.register}[{i}][{e}]"
                for i in range(accumulator.fragments)
                for e in range(2 if half else 4)
            ]
        return found, "r" if half else "f"

    def _instruction(self, p: WindowProduct, numbers: dict[str, int]) -> str:
        accumulator = self.context.accumulators[p.accumulator]
        each = 2 if accumulator.half else 4
        first = numbers[f"{accumulator.register}[{p.first}][0]"]
        registers = ",".join(f"%{first + i}" for i in range(p.n // COLUMNS * each))
        kinds = {"float16": "f16", "bfloat16": "bf16"}
        operands = kinds[str(p.entry.operand.type)]
        total = "f16" if accumulator.half else "f32"
        form = f"m64n{p.n}k16.{total}.{operands}.{operands}"
        return f"wgmma.mma_async.sync.aligned.{form} {{{registers}}}, a, b, 1,1,1,0,0;"

    def _window_text(self, p: WindowProduct) -> str:
        start = f"shared_address({self.context.storages[p.buffer].pointer})"
        if p.symbolic.terms:
            start += f" + {self.context.scalar.index(p.symbolic.to_expr())}"
        return f"core_descriptor({start}, {BLOCK_BYTES}, {CORE_BYTES})"

    def _band_text(self, p: WindowProduct) -> str:
        return (
            f"core_descriptor(shared_address({self.bands.pointer}), {CORE_BYTES}, {p.entry.bytes})"
        )


def _runs(s: Stmt) -> Iterator[tuple[Stmt, ...]]:
    """The runs of such statements in a body."""
    if is_window(s):
        yield (s,)
        return
    run: list[Stmt] = []
    for x in stmt_children(s):
        if is_window(x):
            run.append(x)
            continue
        if run:
            yield tuple(run)
            run = []
        yield from _runs(x)
    if run:
        yield tuple(run)


def _chains(entries: list[Entry], following: dict[Entry, Entry]) -> list[list[Entry]]:
    """Entries in an order in which as many as possible are followed by the one that should."""
    led = set(following.values())
    chains: list[list[Entry]] = []
    placed: set[Entry] = set()
    for head in (*(e for e in entries if e not in led), *entries):
        chain: list[Entry] = []
        at: Entry | None = head
        while at is not None and at not in placed:
            chain.append(at)
            placed.add(at)
            at = following.get(at)
        if chain:
            chains.append(chain)
    return chains
