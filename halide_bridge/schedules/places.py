"""Directives for every Func of a plain pipeline, at the place that it was given."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from halide_bridge.schedules import online, reductions
from halide_bridge.schedules.along import along_dims, first_kernel
from halide_bridge.schedules.asked import clone, from_zero, in_line
from halide_bridge.schedules.bands import Pass, banded
from halide_bridge.schedules.blocks import Blocks, blocks_for, by_blocks
from halide_bridge.schedules.candidates import tile_of
from halide_bridge.schedules.channels import by_threads
from halide_bridge.schedules.contraction import Contraction, Operand, contract
from halide_bridge.schedules.histograms import bins_of, by_copies
from halide_bridge.schedules.kernels import (
    LANES,
    ROWS,
    Grid,
    aligned,
    fused,
    update_kernel,
)
from halide_bridge.schedules.layer_operands import by_layer, keeps_start
from halide_bridge.schedules.plan import Plan
from halide_bridge.schedules.recognise.channels import channels_of
from halide_bridge.schedules.recognise.facts import SMALL, Place, Placement, leaves_out, place
from halide_bridge.schedules.recognise.inner_sums import place_inner_sums
from halide_bridge.schedules.recognise.layers import Layer
from halide_bridge.schedules.recognise.products import Factor, Product, starts_at_zero
from halide_bridge.schedules.recognise.program import Member, Program
from halide_bridge.schedules.recognise.resampling import Resampling, resampling_of
from halide_bridge.schedules.recognise.reuse import place_windows_apart, reuse_of
from halide_bridge.schedules.recognise.rows import associative, chooses
from halide_bridge.schedules.recognise.windows import Window, reads_pixels
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.resampling import BLOCKS, Taps, by_taps
from halide_bridge.schedules.scans import by_scan, scan_of
from halide_bridge.schedules.sizes import is_argument
from halide_bridge.schedules.sliding import slid
from halide_bridge.schedules.steps import by_steps, steps_of
from halide_bridge.schedules.sweeps import Sweeps
from halide_bridge.schedules.tables import stage_tables
from halide_bridge.schedules.transforms import by_transforms, transforms_of
from halide_bridge.schedules.transposed import by_tiles, tiles_of
from halide_bridge.schedules.windows import Made, Windows, schedule_windows
from halide_bridge.schedules.words import where_to, why_not
from selector.families import layers, transforms, windows
from selector.ir.nodes import Var
from selector.targets import VECTOR_BYTES


class Scheduling:
    """One pipeline's; ``script`` has the directives after ``run``."""

    def __init__(self, program: Program, placement: Placement, plan: Plan) -> None:
        self.program, self.placement, self.plan = program, placement, plan
        self.script = Script(program.variables)
        self._lines: list[str] = []
        for member in program:
            if member.label in plan.apart:
                placement.places[member.name] = Place.KERNEL
                placement.reader.pop(member.name, None)
        over = plan.machine.multiprocessors if plan.spread else 0
        tiled = {
            reader for m in program if m.label in plan.tensor
            and (reader := placement.reader.get(m.name)) and self._tiled_alike(m, reader)
        }  # fmt: skip
        self.sweeps = Sweeps(self.script, placement, plan.known, frozenset(tiled), over)
        place_inner_sums(placement, plan.apart | plan.stored | plan.tensor.keys())
        place_windows_apart(placement, plan.tensor)
        for member in program:
            reader = placement.reader.get(member.name)
            if member.label in plan.tensor and reader and not self._tiled_alike(member, reader):
                placement.places[member.name] = Place.KERNEL
                del placement.reader[member.name]

        for member in program:
            if member.label in plan.made:
                found = plan.tensor[member.label][0]
                assert isinstance(found, Window)
                placement.places[found.image] = Place.BLOCK
        for slide in plan.slides.values():
            placement.places.update(dict.fromkeys(slide.stages, Place.ROWS))
            for name in slide.stages:
                placement.reader.pop(name, None)
        for found, _ in plan.online.values():
            for name in found.inside:
                held = name in found.members
                placement.places[name] = Place.BLOCK if held else Place.INSIDE
                placement.reader.pop(name, None)

    @staticmethod
    def of(program: Program, plan: Plan) -> Scheduling:
        return Scheduling(program, place(program, plan.stored, plan.known), plan)

    def _tiled_alike(self, member: Member, name: str) -> bool:
        """Whether a Func that reads a product can be stored by the blocks that compute it: what
        windows fill may have its planes elsewhere, inside of x and y too.
        """
        reader = self.program.members[name]
        own = tuple(map(Var, member.args))
        reads = [a for a in self.placement.bodies[name][0].reads() if a.func == member.name]
        alone = sum(r == name for r in self.placement.reader.values()) == 1
        found, args, stored = self.plan.tensor[member.label][0], member.args, reader.args
        if isinstance(found, Layer):
            return alone and len({a.indices for a in reads}) == 1
        if isinstance(found, Window) and found.first == 0 and {*stored} == {*args}:
            args, stored = args[:2], tuple(v for v in stored if v in args[:2])
        return alone and stored == args and all(a.indices == own for a in reads)

    def run(self) -> None:
        for member in self.program:
            where, text = self.placement.places[member.name], ""
            if where is Place.KERNEL:
                text = f", {self._kernel(member).text}"
            if is_argument(member, self.program):
                continue
            self._lines.append(f"{member.label}: {where_to(member, where, self.plan)}{text}")
            self._lines += why_not(member, self.plan)
        for func in self.script.named(self.plan.in_line):
            in_line(func)

    @property
    def report(self) -> str:
        return "\n".join(self._lines)

    def _func(self, member: Member) -> Recorded:
        return self.script.func(member.label, member.handle)

    def _kernel(self, member: Member) -> Grid:
        if member.label in self.plan.slides:
            return slid(self.script, member, self.program, self.plan)
        if member.pure:
            return self._pure(member)
        if member.label in self.plan.tensor:
            stored = self._func(member).in_()
            return self._tensor(member, stored, stored.args())
        if member.reduction and member.label not in self.plan.apart:
            return self._reduction(member)
        return self._updates(member)

    def _pure(self, member: Member) -> Grid:
        if member.name in self.plan.online:
            return online.attend(self.script, self.program, *self.plan.online[member.name])
        mine = self.placement.at_threads_of(member)
        reader = self._func(member)
        if len(mine) == 1 and mine[0].label in self.plan.tensor:
            args, order = reader.args(), self._order(mine[0], member)
            return self._tensor(mine[0], reader, tuple(args[d] for d in order))
        shared = self.sweeps.of_reader(member)
        if shared is not None:
            return shared
        taps = resampling_of(mine[0]) if len(mine) == 1 else None
        if taps is not None:
            return self._resampled(taps, mine[0], member, reader)
        turns = [(n, m) for m in mine for n in self.placement.at_threads_of(m)]
        if len(mine) == 1 and not turns:
            order = self._order(mine[0], member)
            grid = self._by_channels(mine[0], reader, order)
            if grid is not None:
                return grid
            found = self._blocks_for(mine[0], order, member)
            if found:
                return by_blocks(self.script, found, mine[0], member, order, self.placement)
            along = reductions.along_memory(mine[0], self.placement)
            if along is not None and member.args:
                func = self._func(mine[0])
                return reductions.by_warps(self.script, func, reader, along[0], func.rvars(0))
        grid = self._at_threads(member, mine, light=not turns)
        for n, m in turns:
            reductions.inner_sum(self.script, n, m)
        return grid

    def _at_threads(self, member: Member, mine: list[Member], *, light: bool) -> Grid:
        """A pure Func by threads that compute what is ``mine`` as well."""
        reader, body = self._func(member), self.placement.bodies[member.name][0]
        known, most = self.plan.known, 1
        tiles = tiles_of(member, body, self.placement) if member.args and not mine else None
        if tiles is not None:
            return by_tiles(self.script, reader, member, tiles, body.operations)
        if mine and member.args:
            most = reductions.lanes_at_thread(mine, member, self.placement, body)
        grid = along_dims(
            self.script, reader, member, self.placement, body, known,
            sums=[(m, self.placement.bodies[m.name][-1]) for m in mine] if light else (),
            alone=not mine, most=most, rows=ROWS if light else 1,
        )  # fmt: skip
        stage_tables(self.script, reader, grid, body, self.placement)
        for m in mine:
            access = next(a for a in body.reads() if a.func == m.name)
            some = any(leaves_out(value, m.name, ends=True) for value in body.values)
            reductions.at_thread(self.script, m, reader, grid, access, some=some)
        return grid

    def _tensor(self, member: Member, stored: Recorded, args: tuple[Any, ...]) -> Grid:
        """A product or a window, in accumulators of the blocks that store what reads it. ``args``:
        the dimensions that are stored, in the order of the sum's.
        """
        product, tiling = self.plan.tensor[member.label]
        func = self._func(member)
        stored.compute_root()
        if isinstance(tiling, transforms.Tiling):
            found = transforms_of(self.script, member, stored, self.placement, self.plan)
            by_transforms(self.script, *found)
            return Grid(text=f"{found[1].threads} threads a block")
        if isinstance(tiling, windows.Tiling):
            self._windows(member, tiling, stored)
            return Grid(text=f"{tiling.threads} threads a block")
        if not (starts_at_zero(member.stages[0]) or keeps_start(member, product, tiling)):
            from_zero(func, stored)
        if isinstance(tiling, layers.Tiling):
            assert isinstance(product, Layer)
            by_layer(
                self.script, self.program, self.plan.known, product, tiling, func, stored, args
            )
            return Grid(text=f"{tiling.threads} threads a block")
        assert isinstance(product, Product)
        n, *batch = func.args()
        m = batch.pop(product.m - 1)
        a, b = self._operand(product.a, "A"), self._operand(product.b, "B")
        if a.source is b.source:  # a block has other parts of it for its rows and its columns
            b = replace(b, source=clone(b.source, func, n))
        turns = [*func.rvars(0)]
        k = turns.pop(product.k)
        contract(Contraction(stored, func, a, b, n, m, k, tuple(batch), tuple(turns)), tiling)
        return Grid(text=f"{tiling.threads} threads a block")

    def _windows(self, member: Member, size: windows.Tiling, out: Recorded) -> None:
        """A filter, and what its blocks make of what they read."""
        found = self.plan.tensor[member.label][0]
        assert isinstance(found, Window)
        funcs = self._filter(member, found, out)
        others = fused(self.script, out, funcs.planes[found.channels > 1 :])
        funcs = replace(funcs, planes=(*funcs.planes[: found.channels > 1], *others))
        schedule_windows(funcs, found.shape, size)

    def _made(self, member: Member, found: Window) -> Made | None:
        """What blocks of a filter make of what they read."""
        before = self.plan.made.get(member.label)
        if before is None:
            return None
        maker = next(m for m in self.program if m.label == before)
        first, box = self.plan.tensor[before]
        assert isinstance(first, Window)
        assert isinstance(box, windows.Tiling)
        kept = self._func(self.program.members[found.image])
        return Made(self._filter(maker, first, kept), first.shape, box)

    def _filter(self, member: Member, found: Window, out: Recorded) -> Windows:
        """The Funcs of a filter that sums begin at zero of, as ``out`` stores them."""
        func, source = self._func(member), self.program.members[found.image]
        image = self._func(source)
        if not starts_at_zero(member.stages[0]):
            from_zero(func, out)
        args, first = func.args(), found.first
        x, y = (*args[first:], None)[:2]
        planes = (*args[:first], *args[first + 2 :])
        taps = tuple(func.rvars(0)[place] for place in found.domain)
        for plane in planes[found.channels > 1 :]:
            func.bound_extent(plane, 1)
        made = self._made(member, found)
        pixels = made.windows.pixels if made else reads_pixels(source, source.args[first])
        return Windows(out, func, image, x, y, taps, planes, first, found.channels, made, pixels)

    def _operand(self, factor: Factor, name: str) -> Operand:
        return Operand(
            self._func(self.program.members[factor.func]), name, factor.along, factor.outer
        )

    def _reduction(self, member: Member) -> Grid:
        func = self._func(member)
        taps = resampling_of(member)
        if taps is not None and not member.whole(SMALL):
            return self._resampled(taps, member, member, func.in_())
        order = tuple(range(len(member.args)))
        grid = self._by_channels(member, None, order)
        if grid is not None:
            return grid
        found = self._blocks_for(member, order)
        if found:
            return by_blocks(self.script, found, member, None, order, self.placement)
        if member.whole(SMALL):
            return self._updates(member)
        swept = self.sweeps.of_itself(member)
        if swept is not None:
            return swept
        along = reductions.along_memory(member, self.placement)
        if along is not None:
            return reductions.by_warps(self.script, func, func.in_(), along[0], func.rvars(0))
        if member.label in self.plan.stored and chooses(member):
            return reductions.searched(self.script, func)
        if member.args:
            return reductions.alone(self.script, member, self.placement, self.plan.known)
        func.compute_root().gpu_single_thread()
        for stage in member.stages[1:]:
            func.update(stage.number - 1).gpu_single_thread()
        if chooses(member):
            return Grid(text="threads that find the best of a part each, and then of those")
        return Grid(text="one thread: what its updates find in parts is not known to be joined")

    def _resampled(
        self, taps: Resampling, member: Member, reader: Member, stored: Recorded
    ) -> Grid:
        """A resampling, in registers of the threads that store what a reader makes of it."""
        same = member is reader
        order = tuple(range(len(member.args))) if same else self._order(member, reader)
        extents = [self.placement.extent(reader.name, d) for d in range(len(reader.args))]
        func, members = self._func(member), self.program.members
        if member.label in self.plan.banded and not same and order == tuple(range(len(order))):
            passed = Pass(taps, member, reader, func, stored)
            return banded(self.script, passed, self.placement, self.plan.known, self.plan.machine)
        tables = (*taps.starts, taps.weights)
        *starts, weights = (self._func(members[name]).stored() for name in tables)
        free = same or reader.name not in self.program.outputs
        about = tuple(self.plan.known.extent(reader, d) for d in range(len(extents)))
        blocks = BLOCKS * self.plan.machine.multiprocessors
        sizes = Taps(taps.along, order, tuple(extents), about, free, blocks)
        return by_taps(self.script, func, stored, sizes, starts, weights)

    def _order(self, member: Member, reader: Member) -> tuple[int, ...]:
        """The dimensions of the kernel that reads a reduction, in the order of its own."""
        body = self.placement.bodies[reader.name][0]
        access = next(a for a in body.reads() if a.func == member.name)
        return tuple(reader.args.index(i.name) for i in access.indices if isinstance(i, Var))

    def _by_channels(
        self, member: Member, reader: Recorded | None, order: tuple[int, ...]
    ) -> Grid | None:
        """A sum over windows whose channels have filters of their own, by threads; ``reader``: who
        stores it, in that ``order`` of dimensions (None: itself).
        """
        found = channels_of(member, self.program)
        if found is None or order != tuple(range(len(member.args))):
            return None
        tile = tile_of(found, member, self.plan.known, self.plan.machine)
        if tile is None:
            return None
        stored = self._func(member).in_() if reader is None else reader
        return by_threads(self.script, found, tile[1], stored, order, self.placement)

    def _blocks_for(
        self, member: Member, order: tuple[int, ...], reader: Member | None = None
    ) -> Blocks | None:
        """How blocks of threads compute a sum whose factors are read again; None if they are
        not. ``order``: of the dimensions in which it is stored, or in which a ``reader`` has them.
        """
        if not order or member.label in self.plan.unstaged:
            return None
        reuse, plan = reuse_of(member, self.placement, order.index(0)), self.plan
        if reuse is None:
            return None
        return blocks_for(reuse, member, reader, order, self.placement, plan.known, plan.machine)

    def _updates(self, member: Member) -> Grid:
        func = self._func(member)
        first, *others = member.stages[1:]
        free = [d for d, arg in enumerate(first.free) if arg is not None]
        known = self.plan.known
        along = [n for n, r in enumerate(first.reduced) if r.free and Var(r.name) in first.indices]
        sizes = [known.extent(member, d) for d in free]
        few = not free or prod(sizes) < LANES * self.plan.machine.multiprocessors
        summed = len(along) < len(first.reduced) and not others and associative(member)
        scatters = summed and few and not all(first.free)
        bins = bins_of(member, self.placement) if scatters else None
        if bins is not None:
            return by_copies(self.script, func, bins, first.reduced)
        if scatters:
            turns = prod(max(1, known.value(r.extent)) for r in first.reduced)
            elements = prod(known.extent(member, d) for d in range(len(member.args)))
            bytes_ = elements * member.types[0].bytes
            line = reductions.line_of(turns, bytes_, self.plan.machine.l2_bytes)
            sizes += [max(1, known.value(first.reduced[n].extent)) for n in along]
            return reductions.scattered(
                self.script, func, free, along, sizes, line, declared=bool(member.bounds)
            )
        func.compute_root()
        if member.args and member.name not in self.program.outputs:
            aligned(func, func.args()[0], VECTOR_BYTES // member.types[0].bytes)
        grid = first_kernel(self.script, func, member, self.placement, known)
        for stage in member.stages[1:]:
            scan = scan_of(member, stage, self.placement, self.plan.known)
            steps = steps_of(member, stage, known, self.plan.machine) if scan is None else None
            if scan is not None:
                grid = by_scan(self.script, func, scan, self.plan.machine)
            elif steps is not None:
                grid = by_steps(self.script, member, stage, steps)
            else:
                over = self.plan.machine.multiprocessors
                grid = update_kernel(self.script, func, stage, self.placement, known, over)
        return grid
