"""The schedule of what reads arrays the other way round: tiles in shared memory.

    out[x, y] = a[y, w - x] + b[x, y]

Neighbours along ``x`` are rows apart in ``a``. A block brings a tile of it, whose rows its threads
load side by side, and its threads read that along columns. Rows of a tile begin one word later each
time, so that a column's elements lie in different banks.
"""

from __future__ import annotations

from halide_bridge.schedules.kernels import FUSED, LINE, Grid, fused
from halide_bridge.schedules.recognise.facts import SMALL, Body, Place, Placement
from halide_bridge.schedules.recognise.program import Access, Member
from halide_bridge.schedules.recorder import Recorded, Script
from halide_bridge.schedules.sizes import sources_of
from halide_bridge.stock import GPU_SHARED
from selector.dataclass import dataclass
from selector.ir.affine import Affine
from selector.ir.nodes import Var
from selector.lowering.written_out import MOST
from selector.targets import VECTOR_BYTES

TILE = 64  # elements along both sides
WORD = 4  # bytes of a bank
LARGEST = 32 << 10  # bytes of the tiles of a block


@dataclass(frozen=True, slots=True)
class Turned:
    """A Func that is read so: where along its dimensions those of a tile lie (``sides``, a
    variable's name or none), by whom it is read, and the bytes of an element.
    """

    source: Member
    reader: Member
    sides: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class Tiles:
    """What blocks bring, which have tiles along the first dimension and ``across``."""

    across: str
    turned: tuple[Turned, ...]


def tiles_of(member: Member, body: Body, placement: Placement) -> Tiles | None:
    """None where nothing is read the other way round, or not by this Func alone."""
    found, reads = list[Turned](), body.reads()
    for access in reads:
        sides = _sides(access, member)
        if sides is None or sides[0] in ("", member.args[0]):
            continue
        turned = _turned(access, sides, member, placement)
        if turned is None or sum(a.func == access.func for a in reads) > 1:
            return None
        found.append(turned)
    across = {t.sides[0] for t in found}
    if len(across) != 1 or len(member.types) != 1 or len(member.args) - 2 > FUSED:
        return None
    (y,) = across
    both = (placement.extent(member.name, member.args.index(v)) for v in (member.args[0], y))
    if any(n is not None and n <= SMALL for n in both):
        return None
    taken = sum(TILE * (TILE * t.bytes + WORD) for t in found)
    return Tiles(y, tuple(found)) if taken <= LARGEST else None


def _sides(access: Access, member: Member) -> tuple[str, ...] | None:
    """The variable that each index goes along, one by one; None where an index is another one, or
    none goes along the first.
    """
    x, sides = member.args[0], list[str]()
    for index in access.indices:
        form = Affine.of(index)
        along = [v for v in member.args if form.mentions(v)]
        if len(along) > 1 or any(
            abs(form.coefficient(Var(v)).constant or 0) != 1 or form.rest(Var(v)).mentions(v)
            for v in along
        ):
            return None
        sides += along or [""]
    return tuple(sides) if sides.count(x) == 1 and len({*sides} - {""}) > 1 else None


def _turned(
    access: Access, sides: tuple[str, ...], member: Member, placement: Placement
) -> Turned | None:
    """What is read so, if nobody else reads it."""
    source = next(sources_of(access.func, placement.program), None)
    if source is None:
        return None
    way = [source]
    while way[-1].name != member.name:
        readers = placement.program.readers(way[-1])
        if len(readers) != 1 or (len(way) > 1 and not _is_inside(way[-1], placement)):
            return None
        way += readers
    tile = {member.args[0], sides[0]}
    own = tuple(v if v in tile else "" for v in sides)
    return Turned(source, way[1], own, source.types[0].bytes)


def _is_inside(member: Member, placement: Placement) -> bool:
    return placement.places[member.name] is Place.INSIDE


def by_tiles(
    script: Script, reader: Recorded, member: Member, tiles: Tiles, operations: int
) -> Grid:
    """A kernel whose blocks have a tile of results each."""
    args = dict(zip(member.args, reader.args(), strict=True))
    x, y = args.pop(member.args[0]), args.pop(tiles.across)
    xo, xi, xl, yo, yi, yu = script.variables("xo", "xi", "xl", "yo", "yi", "yu")
    bytes_ = max(member.types[0].bytes, *(t.bytes for t in tiles.turned))
    lanes = max(1, VECTOR_BYTES // bytes_)
    while lanes > 1 and lanes * operations > MOST:
        lanes //= 2
    high = min(TILE, LINE * lanes // TILE)
    reader.compute_root().split(x, xo, xi, TILE)
    inner = [xi]
    if lanes > 1:
        reader.split(xi, xi, xl, lanes).vectorize(xl)
        inner = [xl, xi]
    reader.split(y, yo, yi, TILE).split(yi, yu, yi, high)
    z = fused(script, reader, list(args.values()))
    first, *rest = inner[::-1]
    reader.reorder(*rest, yu, first, yi, xo, yo, *z).unroll(yu)
    reader.gpu_blocks(xo, yo, *z).gpu_threads(first, yi)
    for t in tiles.turned:
        source = script.func(t.source.label, t.source.handle).stored()
        by = (
            reader if t.reader.name == member.name else script.func(t.reader.label, t.reader.handle)
        )
        staged = source.in_(by)
        staged.compute_at(reader, xo).store_in(GPU_SHARED)
        for arg, side in zip(staged.args(), t.sides, strict=True):
            staged.bound_extent(arg, TILE if side else 1)
        staged.align_storage(staged.args()[0], TILE + WORD // t.bytes)
    return Grid(text=f"tiles of {TILE} x {TILE} in shared memory, {lanes} neighbours each")
