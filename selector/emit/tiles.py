"""Tensor statements of one warp: fill, runs of accumulates, and read-out with its epilogue.

The register layout of an m16n8 accumulator (PTX ISA, "Matrix Fragments for mma.m16n8k16"): lane =
4*g + q holds elements (g, 2q), (g, 2q+1), (g+8, 2q), (g+8, 2q+1). An element-wise expression around
an accumulator is evaluated per element at the lane number that the element has in the program, so
any epilogue runs in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from selector.diagnostics import EmitError
from selector.emit.banded import BandTables
from selector.emit.context import (
    LANE_PAIR,
    LANE_ROW,
    Accumulator,
    KernelContext,
    Region,
    slice_offset,
)
from selector.emit.instructions import matrix_form
from selector.emit.operands import BlockFetcher
from selector.emit.scalar import Space, c_type
from selector.ir.affine import Affine, to_affine
from selector.ir.lanes import Digits, lane
from selector.ir.nodes import Call, Expr, FloatImm, IntImm, Load, Select, Store, Var
from selector.ir.traverse import expr_children, map_expr
from selector.ir.types import Type
from selector.lowering.fragments import Fetch, MatrixOp, expand, schedule
from selector.lowering.predicates import TRUE, conjunction, holds_everywhere
from selector.lowering.tiles import DEPTH, ROW, Accumulate, Banded, Operand, first_lane

FETCH_TOGETHER = 4
FETCH_AHEAD = 8  # a GEMM of 1024 with four warps a block: 12.8 us instead of 17.4 on an H200


class TileEmitter:
    """Writes the tensor statements of a warp into the kernel's source."""

    def __init__(self, context: KernelContext, tables: BandTables) -> None:
        self.context = context
        self.tables = tables

    # ------------------------------------------------------------------ accumulate

    def accumulate(self, statements: list[Accumulate], finished: Sequence[Store] = ()) -> None:
        """A run of accumulate statements: one scope of fetches and instructions.

        Pieces of code that wait in ``context.interleaved`` are written among the instructions, and
        each of the read-outs ``finished`` once its tiles are complete, so that their registers are
        free for what follows.
        """
        statements = [replace(s, a=self._settle(s.a), b=self._settle(s.b)) for s in statements]
        everywhere = self._unmasked(statements)
        w = self.context.writer
        if everywhere is None or everywhere == TRUE:
            self._run(statements, finished)
        else:
            with w.block(f"if ({self.context.scalar.expr(everywhere)})"):
                self._run([_without_predicates(s) for s in statements])
            with w.block("else"):
                self._run(statements)
            for s in finished:
                self.read_out(s)
        self.context.interleaved = []

    def _settle(self, operand: Operand) -> Operand:
        """Reading past the depth into a band's zeros is allowed where numbers are known to lie
        there.
        """
        if isinstance(operand, Banded) or not operand.meets_band:
            return operand
        storage = self.context.storages[operand.buffer]
        known = storage.space is Space.GLOBAL or storage.rounded_rows
        return replace(operand, meets_band=known)

    def _unmasked(self, statements: list[Accumulate]) -> Expr | None:
        result: Expr | None = TRUE
        for s in statements:
            for operand, rows, depth in ((s.a, s.m, s.k), (s.b, s.n, s.k)):
                if isinstance(operand, Banded) or operand.predicate is None or result is None:
                    continue
                one = holds_everywhere(operand.predicate, {ROW: rows, DEPTH: depth})
                result = None if one is None else conjunction(result, one)
        return result

    def _run(self, statements: list[Accumulate], finished: Sequence[Store] = ()) -> None:
        ops = expand(statements)
        w = self.context.writer
        names = ", ".join(dict.fromkeys(s.accumulator for s in statements))
        with w.block(""):
            w.line(f"// {names}: {len(ops)} instructions")
            fetcher = BlockFetcher(self.context, self.tables)
            issued = 0
            pieces = _positions(self.context.interleaved, len(ops))
            read_outs = self._complete(ops, statements, finished)
            budget = self._register_budget(statements)
            for event in schedule(ops, FETCH_TOGETHER, budget, FETCH_AHEAD):
                match event:
                    case Fetch(blocks):
                        fetcher.fetch(blocks)
                    case MatrixOp():
                        self._issue(statements[event.statement], event, fetcher)
                        issued += 1
                        for piece in pieces.get(issued, ()):
                            piece()
                        for s in read_outs.get(issued, ()):
                            self.read_out(s)

    def _complete(
        self, ops: list[MatrixOp], statements: list[Accumulate], finished: Sequence[Store]
    ) -> dict[int, list[Store]]:
        """After how many instructions each read-out goes; their order stays."""
        last: dict[tuple[str, int], int] = {}
        for number, op in enumerate(ops, start=1):
            s = statements[op.statement]
            last[s.accumulator, slice_offset(s.offset, self.context, s.accumulator)] = number
        places: dict[int, list[Store]] = {}
        place = 1
        for s in finished:
            for source in tile_reads(s.value):
                lanes = source.type.lanes
                for region, _ in self._regions(source.buffer, first_lane(source.index), lanes):
                    place = max(place, last.get((source.buffer, region.offset), 0))
            places.setdefault(place, []).append(s)
        return places

    def _register_budget(self, statements: list[Accumulate]) -> int:
        places = {(s.accumulator, s.offset): s.m * s.n // 32 for s in statements}
        return max(24, 176 - sum(places.values()))

    def _issue(self, s: Accumulate, op: MatrixOp, fetcher: BlockFetcher) -> None:
        form = matrix_form(s.instruction, len(op.b))
        self.context.wrappers[form.name] = form.source
        accumulator = self.context.accumulators[s.accumulator]
        region = accumulator.regions[slice_offset(s.offset, self.context, s.accumulator)]
        registers = [fetcher.register(b) for b in (*op.a, *op.b)]
        target = f"{accumulator.register}[{region.fragment(*op.tile)}]"
        self.context.writer.line(f"{form.name}({', '.join([target, *registers])});")

    # ------------------------------------------------------------------ fill and read out

    def fill(self, s: Store) -> None:
        """``accumulator[...] = tile.fill(e)``."""
        assert isinstance(s.value, Call)
        accumulator = self.context.accumulators[s.buffer]
        element = s.value.type.element
        for region, outer in self._regions(s.buffer, first_lane(s.index), s.value.type.lanes):
            for i, j in _tiles(region):
                values = [
                    self.context.scalar.expr(
                        lane(s.value.args[0], _digits(region, (i, j, e), outer))
                    )
                    for e in range(4)
                ]
                name = f"{accumulator.register}[{region.fragment(i, j)}]"
                if element.bits == 16:
                    values = [
                        f"pack16({values[0]}, {values[1]})",
                        f"pack16({values[2]}, {values[3]})",
                    ]
                text = " ".join(f"{name}[{e}] = {v};" for e, v in enumerate(values))
                self.context.writer.line(text)

    def read_out(self, s: Store) -> None:
        """``out[index] = f(tile.read(accumulator), ...)``: guarded lane by lane only where the tile
        is ragged.
        """
        source = tile_reads(s.value)[0]
        regions = self._regions(source.buffer, first_lane(source.index), source.type.lanes)
        plan = _ReadOut(s, source, regions, [_index_form(s.index, r, o) for r, o in regions])
        whole = self._everywhere(plan)
        paired = self._pair_flag(plan)
        tests = [] if whole in (None, TRUE) else [self.context.scalar.expr(whole)]
        tests += [] if paired in (None, "true") else [paired]
        w = self.context.writer
        if whole is None:
            self._write_tiles(plan, guarded=True, wide=False)
        elif not tests:
            self._write_tiles(plan, guarded=False, wide=paired is not None)
        else:
            with w.block(f"if ({' && '.join(tests)})"):
                self._write_tiles(plan, guarded=False, wide=paired is not None)
            with w.block("else"):
                self._write_tiles(plan, guarded=s.predicate is not None, wide=False)

    def _everywhere(self, plan: _ReadOut) -> Expr | None:
        """A uniform condition under which every lane is stored; None if none is known."""
        p = plan.store.predicate
        if p is None:
            return TRUE
        if p.type.lanes == 1:
            return p
        region, _ = plan.regions[0]
        digits = ((Var("$n"), region.n), (Var("$m"), region.m), (Var("$region"), len(plan.regions)))
        return holds_everywhere(lane(p, digits), dict(digits))

    def _pair_flag(self, plan: _ReadOut) -> str | None:
        """The uniform condition for storing two neighbours at once; "true" if always, None if
        never.
        """
        buffer = plan.store.buffer
        storage = self.context.storages[buffer]
        for (region, _), form in zip(plan.regions, plan.forms, strict=True):
            if form is None or region.swapped or form.n.constant != 1:
                return None
            if not self.context.is_multiple(form.base + form.m * LANE_ROW, 2, buffer):
                return None
        return self.context.aligned_flag(buffer, 2) if storage.space is Space.GLOBAL else "true"

    def _write_tiles(self, plan: _ReadOut, *, guarded: bool, wide: bool) -> None:
        w = self.context.writer
        with w.block(""):
            pointers: dict[Affine, str] = {}
            for (region, outer), form in zip(plan.regions, plan.forms, strict=True):
                text = self._texts(plan, region, outer, guarded=guarded)
                for i, j in _tiles(region):
                    for half in (0, 2):
                        pair = [
                            self._write_one(plan, region, (i, j, e), outer, form, pointers, text)
                            for e in (half, half + 1)
                        ]
                        if wide:
                            w.line(f"store2({pair[0][0]}, {pair[0][1]}, {pair[1][1]});")
                            continue
                        for e, (target, value) in zip((half, half + 1), pair, strict=True):
                            test = f"if ({text.guard(region, (i, j, e))}) " if guarded else ""
                            w.line(f"{test}*({target}) = {value};")

    def _write_one(
        self,
        plan: _ReadOut,
        region: Region,
        element: tuple[int, int, int],
        outer: Digits,
        form: _IndexForm | None,
        pointers: dict[Affine, str],
        text: _Texts,
    ) -> tuple[str, str]:
        """(address, value) of one element."""
        value = text.value(region, element)
        if form is None:
            index = to_affine(lane(plan.store.index, _digits(region, element, outer)))
            return self._pointer(plan.store, index - index.offset, index.offset, pointers), value
        symbolic, offset = form.at(region, element)
        return self._pointer(plan.store, symbolic, offset, pointers), value

    def _pointer(self, s: Store, symbolic: Affine, offset: int, pointers: dict[Affine, str]) -> str:
        """Address of an element: a pointer for each symbolic part, constants as offsets from it."""
        storage = self.context.storages[s.buffer]
        if symbolic not in pointers:
            name = f"p{len(pointers)}"
            text = self.context.scalar.expr(symbolic.to_expr())
            kind = c_type(storage.type)
            self.context.writer.line(f"{kind}* const {name} = {storage.pointer} + {text};")
            pointers[symbolic] = name
        return f"{pointers[symbolic]} + {offset}" if offset else pointers[symbolic]

    def _texts(self, plan: _ReadOut, region: Region, outer: Digits, *, guarded: bool) -> _Texts:
        """Value and guard of a block's elements, with marks for what differs between them."""
        n, m = Var("$n"), Var("$m")
        digits = ((n, region.n), (m, region.m), *outer)
        expected = to_affine(lane(plan.source.index, digits))
        buffers: list[str] = []

        def mark_reads(x: Expr) -> Expr:
            match x:
                case Call(t, "tile.read", (Load(_, buffer, index, wanted),)):
                    if to_affine(index) != expected:
                        raise EmitError(
                            f"`{buffer}` is read in an order other than the one it is kept in",
                            hint="read all accumulators of a statement with the same index",
                        )
                    buffers.append(buffer)
                    value = Var(self.context.names.verbatim(f"@{buffer}@"), t)
                    return value if wanted is None else Select(wanted, value, _zero(t))
                case _:
                    return map_expr(x, mark_reads)

        names, scalar = self.context.names, self.context.scalar
        names.bind("$n", "@n@")
        names.bind("$m", "@m@")
        value = scalar.expr(mark_reads(lane(plan.store.value, digits)))
        p, guard = plan.store.predicate, ""
        if guarded and p is not None:
            guard = scalar.expr(p if p.type.lanes == 1 else lane(p, digits))
        return _Texts(value, guard, {b: self.context.accumulators[b] for b in buffers})

    # ------------------------------------------------------------------ regions

    def _regions(self, buffer: str, index: Affine, lanes: int) -> list[tuple[Region, Digits]]:
        """The accumulator blocks that ``lanes`` elements from ``index`` on cover, with their outer
        digit.
        """
        accumulator = self.context.accumulators[buffer]
        start = slice_offset(index, self.context, buffer)
        inside = [r for r in accumulator.regions.values() if start <= r.offset < start + lanes]
        inside.sort(key=lambda r: r.offset)
        size = inside[0].m * inside[0].n if inside else 0
        same = all(r.m == inside[0].m and r.n == inside[0].n for r in inside)
        if not inside or not same or size * len(inside) != lanes or inside[0].offset != start:
            raise EmitError(
                f"`{buffer}` is used in pieces that are not whole tensor tiles",
                f"{lanes} elements from element {start}; its tiles start at "
                f"{', '.join(str(r) for r in sorted(accumulator.regions))}",
                "vectorize its initialisation and its use by the same factors as its update",
            )
        return [(r, ((IntImm(number), len(inside)),)) for number, r in enumerate(inside)]


def _positions(pieces: list[Callable[[], None]], ops: int) -> dict[int, list[Callable[[], None]]]:
    """After how many instructions each piece goes: the first after a quarter, the last before the
    end.
    """
    first, last = max(1, ops // 4), max(1, ops * 7 // 8)
    places: dict[int, list[Callable[[], None]]] = {}
    for number, piece in enumerate(pieces):
        place = first + (last - first) * number // max(1, len(pieces) - 1)
        places.setdefault(place, []).append(piece)
    return places


def _without_predicates(s: Accumulate) -> Accumulate:
    a = s.a if isinstance(s.a, Banded) else replace(s.a, predicate=None)
    b = s.b if isinstance(s.b, Banded) else replace(s.b, predicate=None)
    return replace(s, a=a, b=b)


def _tiles(region: Region) -> list[tuple[int, int]]:
    rows, columns = region.tiles
    return [(i, j) for i in range(rows) for j in range(columns)]


def _place(region: Region, element: tuple[int, int, int]) -> tuple[Affine, Affine]:
    """(row, column) of element e of tile (i, j) in the stored block, for this lane."""
    i, j, e = element
    return _ROW + (16 * i + 8 * (e // 2)), _COLUMN + (8 * j + e % 2)


_ROW = Affine.of(LANE_ROW)
_COLUMN = Affine.of(LANE_PAIR) * 2


def _digits(region: Region, element: tuple[int, int, int], outer: Digits) -> Digits:
    """The lane number of element e of tile (i, j), as digits (n, m, region)."""
    row, column = (part.to_expr() for part in _place(region, element))
    m, n = (column, row) if region.swapped else (row, column)
    return ((n, region.n), (m, region.m), *outer)


@dataclass(frozen=True, slots=True, eq=False)
class _IndexForm:
    """A store index that is affine in the block's coordinates: ``base + m * row + n * column``."""

    base: Affine
    m: Affine
    n: Affine
    lane: Affine  # the index of this lane's first element
    shifted: dict[tuple[int, int], tuple[Affine, int]]

    def at(self, region: Region, element: tuple[int, int, int]) -> tuple[Affine, int]:
        """The index of an element as (symbolic part, constant)."""
        i, j, e = element
        row, column = 16 * i + 8 * (e // 2), 8 * j + e % 2
        m, n = (column, row) if region.swapped else (row, column)
        steps = self.m.constant, self.n.constant
        key = (0 if steps[0] is not None else m, 0 if steps[1] is not None else n)
        if key not in self.shifted:
            index = self.lane + self.m * key[0] + self.n * key[1]
            self.shifted[key] = (index - index.offset, index.offset)
        symbolic, offset = self.shifted[key]
        return symbolic, offset + (steps[0] or 0) * m + (steps[1] or 0) * n


@dataclass(frozen=True, slots=True)
class _ReadOut:
    """A read-out statement: the accumulator load that gives its order, its blocks, their index
    forms.
    """

    store: Store
    source: Load
    regions: list[tuple[Region, Digits]]
    forms: list[_IndexForm | None]


@dataclass(frozen=True, slots=True)
class _Texts:
    """Templates: ``@m@`` and ``@n@`` stand for the coordinates, ``@name@`` for an accumulator's
    register.
    """

    value_text: str
    guard_text: str
    accumulators: dict[str, Accumulator]

    def value(self, region: Region, element: tuple[int, int, int]) -> str:
        text = _fill_in(self.value_text, region, element)
        for name, accumulator in self.accumulators.items():
            text = text.replace(f"@{name}@", _register(accumulator, region, element))
        return text

    def guard(self, region: Region, element: tuple[int, int, int]) -> str:
        return _fill_in(self.guard_text, region, element)


def _zero(t: Type) -> Expr:
    return FloatImm(0.0, t) if t.is_float else IntImm(0, t)


def _fill_in(text: str, region: Region, element: tuple[int, int, int]) -> str:
    i, j, e = element
    down, across = 16 * i + 8 * (e // 2), 8 * j + e % 2
    row = f"(g + {down})" if down else "g"
    column = f"(q * 2 + {across})" if across else "(q * 2)"
    m, n = (column, row) if region.swapped else (row, column)
    return text.replace("@m@", m).replace("@n@", n)


def _register(accumulator: Accumulator, region: Region, element: tuple[int, int, int]) -> str:
    i, j, e = element
    name = f"{accumulator.register}[{region.fragment(i, j)}]"
    return f"half_of({name}[{e // 2}], {e % 2})" if accumulator.half else f"{name}[{e}]"


def _index_form(index: Expr, region: Region, outer: Digits) -> _IndexForm | None:
    n, m = Var("$n"), Var("$m")
    affine = to_affine(lane(index, ((n, region.n), (m, region.m), *outer)))
    base, by_m, by_n = affine.rest(n).rest(m), affine.coefficient(m), affine.coefficient(n)
    if any(p.mentions(v.name) for p in (base, by_m, by_n) for v in (n, m)):
        return None
    at_m, at_n = (_COLUMN, _ROW) if region.swapped else (_ROW, _COLUMN)
    return _IndexForm(base, by_m, by_n, base + by_m * at_m + by_n * at_n, {})


def tile_reads(value: Expr) -> list[Load]:
    """The accumulator loads of a read-out."""
    found: list[Load] = []
    stack = [value]
    while stack:
        top = stack.pop()
        match top:
            case Call(_, "tile.read", (Load() as load,)):
                found.append(load)
            case _:
                stack.extend(expr_children(top))
    return found
