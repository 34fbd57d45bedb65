"""What a block of the convolution layer does: tiles of all schedules, by the layer's size. With a
stride or a dilation and more than a few channels warpgroups have those of the family of layers.

Without Halide, since the names of saved kernels follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, prod

from casestudies.common.multiples import rounded
from selector.diagnostics import UserError
from selector.families.layers import Shape, Tiling, candidates
from selector.machine import machine_for

TAPS = 3
UNIT = 8  # filters come in eights, the columns of an instruction
ROW = 16  # with warpgroups in sixteens: the copy engine stores rows of 64 or 128 bytes
DEPTH = 16  # channels of one vector statement
ALIGNED = 8  # channels of the 16 bytes at which the copy engine wants pixels to begin
WORTH_COPIES = 1 << 18  # pixels, from where a copy of them pays
SWIZZLED = 8  # rows of pixels, from where the pattern of a swizzle is the same
PIXELS = 64  # of one vector statement, the rows of an instruction
FILTERS = 32  # of one vector statement, at most: Halide's vectors have at most 65535 lanes
SHARED = 220 << 10  # bytes of a block, nearly all that there is
WARP_SHARED = 160 << 10  # bytes of a block of warps, for sm_80 too
NARROW = 96 << 10  # the same, for GPUs that have less
ADDRESSES = 48  # registers of a lane for all but sums
STATEMENTS = 96  # of one tile, at most: more take too long to compile
BLOCK_FILTERS = (16, 32, 48, 64, 96, 128)  # a few vectors of up to 32
WARP_FILTERS = (8, 16, 24, 32, 48, 64)
MULTIPROCESSORS = 132
TARGET = "sm_90a"
MOST_STAGES = 6
MANY = 64 * 64  # channels times filters, from where weights come in runs
MOST_SLOT = (SHARED - (16 << 10)) // 2  # bytes, so that one is filled ahead
RESULTS = 8 << 10  # bytes of shared memory for those of a group of persistent blocks
IMAGES = (1, 8, 16, 32)  # side by side
BLOCKS = (  # filters, at most; rows; groups
    (128, 2, 2), (128, 1, 2), (64, 1, 7), (64, 1, 4), (64, 1, 2), (64, 1, 1),
)  # fmt: skip
BYTES = 45  # from the L2 cache to a multiprocessor in a cycle, where all read


@dataclass(frozen=True, slots=True)
class Window:
    """``taps`` x ``taps`` pixels, every ``dilation``-th of a row and of the rows."""

    taps: int = TAPS
    dilation: int = 1

    @property
    def reach(self) -> int:
        """From the first pixel to the last."""
        return self.dilation * (self.taps - 1)

    @property
    def count(self) -> int:
        return self.taps**2


USUAL = Window()


def pixels_read(
    width: int, height: int, stride: int, images: int = 1, whole: int = 1, window: Window = USUAL
) -> tuple[int, ...]:
    """Columns, rows and images of what so many outputs read; with a stride of each plane, of which
    there are as many as taps meet, and which has a multiple of ``whole`` columns of images.
    """
    if stride == 1:
        return width + window.reach, height + window.reach, images
    columns = rounded(width + window.reach // stride, whole // gcd(whole, images))
    rows = stride * (height - 1) + window.reach + 1
    return columns, rows, images, min(stride, window.reach + 1)


class Rows:
    """Groups of a block, one below the other, each with rows of ``PIXELS``: ``PIXELS / images``
    columns of as many images.
    """

    __slots__ = ()
    images: int
    rows: int
    groups: int

    @property
    def width(self) -> int:
        return PIXELS // self.images

    @property
    def height(self) -> int:
        return self.rows * self.groups

    def read(self, stride: int = 1, window: Window = USUAL) -> tuple[int, ...]:
        """The pixels that a tile reads: a plane of them begins where a swizzle does."""
        return pixels_read(self.width, self.height, stride, self.images, SWIZZLED, window)


@dataclass(frozen=True, slots=True)
class Groups(Rows):
    """A block does ``strips`` such tiles down the image, with ``stages`` of them in shared memory,
    and ``blocks`` of a multiprocessor do all the work. It has all filters, or so many. The image
    may be ``copied`` before.
    """

    rows: int = 2
    groups: int = 4
    strips: int = 2
    stages: int = 2
    blocks: int = 1
    images: int = 1
    filters: int = 0
    copied: bool = False


CANDIDATES = (Groups(), Groups(groups=2), Groups(rows=1, groups=4), Groups(rows=1, groups=2))


def groups_for(
    channels: int, filters: int, images: int = 1, stride: int = 1, window: Window = USUAL
) -> Groups | None:
    """The largest tile that shared memory and registers hold, and that is compiled in time, of all
    filters or of some; None if there is none.
    """
    part = filters_of_block(filters, 128)
    for most in (rounded(filters, ROW), part):
        for size in (replace(c, images=images) for c in CANDIDATES):
            if _fits(channels, most, size, stride, window):
                return replace(size, filters=part) if most < filters else size
    return None


def _fits(channels: int, filters: int, size: Groups, stride: int, window: Window) -> bool:
    """Whether a block has room for that, and it is compiled in time."""
    products = window.count * rounded(channels, DEPTH) // DEPTH
    statements = size.rows * products * filters // boxed(filters)
    sums, registers = size.rows * filters // 2, 65536 // (128 * (size.groups + 1)) // 8 * 8
    small = sums + ADDRESSES <= registers and statements <= STATEMENTS
    return small and shared_bytes(channels, filters, size, stride, window) <= SHARED


def shared_bytes(
    channels: int, filters: int, size: Groups, stride: int = 1, window: Window = USUAL
) -> int:
    """What a block has in shared memory: rows of at least 32 bytes, a power of two or whole
    panels of 128 bytes, and a box of results for each warp.
    """
    pixel, row = (row_bytes(rounded(channels, DEPTH)), row_bytes(rounded(filters, ROW)))
    image = prod(size.read(stride, window)) * pixel
    weights = window.count * rounded(channels, DEPTH) * row
    return size.stages * image + weights + size.groups * PIXELS * 128


def row_bytes(channels: int) -> int:
    """Of f16 values in swizzled panels."""
    bytes_ = 2 * channels
    return next((w for w in (32, 64) if bytes_ <= w), rounded(bytes_, 128))


def vector(filters: int) -> int:
    """Filters, or channels, of one vector statement for warps; they come in eights."""
    return next(n for n in (FILTERS, 24, 16, 8) if filters % n == 0)


def boxed(filters: int) -> int:
    """Filters of one vector statement for warpgroups, whose rows of results a box holds."""
    return FILTERS if filters % FILTERS == 0 else ROW


@dataclass(frozen=True, slots=True)
class GroupChunks(Rows):
    """For many channels, of which ``run`` are in one of ``stages`` slots: groups as above, each
    with ``filters``. A ``cluster`` of blocks shares the weights. Without ``blocks`` of a
    multiprocessor that do all the work, each does its own.
    """

    filters: int = 128
    images: int = 1
    rows: int = 2
    groups: int = 2
    run: int = DEPTH
    stages: int = 4
    blocks: int = 0
    cluster: int = 1


@dataclass(frozen=True, slots=True)
class WarpChunks:
    """The same for ``warps_x`` x ``warps_y`` warps, each with ``rows`` rows of 16 pixels."""

    filters: int = 64
    rows: int = 2
    warps_x: int = 2
    warps_y: int = 2
    run: int = 32
    stages: int = 2

    @property
    def width(self) -> int:
        return 16 * self.warps_x

    @property
    def height(self) -> int:
        return self.rows * self.warps_y


@dataclass(frozen=True, slots=True)
class Extents:
    """Images and their extents, channels of the input and filters of a layer, and its taps."""

    batch: int
    height: int
    width: int
    channels: int
    filters: int
    stride: int = 1
    window: Window = USUAL


def group_tiles(layer: Extents) -> Groups | GroupChunks | Tiling:
    """The tile for warpgroups. All weights stay in shared memory where channels are few; of others
    with a stride or a dilation it is the family's, else the one whose rounds take least time, and
    that reads the fewest pixels.
    """
    if layer.channels > DEPTH and (layer.stride > 1 or layer.window.dilation > 1):
        return _family(layer)
    if layer.channels * layer.filters < MANY or layer.channels <= DEPTH:
        images = min(IMAGES, key=lambda n: _staged(layer, n))
        size = groups_for(layer.channels, layer.filters, images, layer.stride, layer.window)
        if size is not None:
            pixels = layer.batch * layer.height * layer.width
            worth = bool(layer.channels % ALIGNED) and pixels >= WORTH_COPIES
            return replace(size, copied=worth)
    sizes = [
        GroupChunks(filters_of_block(layer.filters, filters), images, rows, groups)
        for filters, rows, groups in (BLOCKS if layer.filters > 64 else BLOCKS[2:])
        for images in IMAGES
    ]
    sizes = [size for size in sizes if size.height % 2 == 0 or _rounds(layer, size) == 1]
    alone = SHARED if layer.channels <= DEPTH else MOST_SLOT  # one run of channels, one slot
    bytes_of = {size: slot_bytes(size, layer.stride, layer.window) for size in sizes}
    sizes = [s for s in sizes if bytes_of[s] <= MOST_SLOT] or [
        s for s in sizes if bytes_of[s] <= alone
    ]
    if not sizes:
        raise UserError(
            f"{layer.window.taps} x {layer.window.taps} taps of {layer.filters} filters are too "
            "many for a block's shared memory"
        )
    best = min(sizes, key=lambda size: (_time(layer, size), _staged(layer, size.images)))
    slots, room = rounded(layer.channels, DEPTH) // DEPTH, SHARED
    if _rounds(layer, best) > 1 and slots > 1:
        best = replace(best, blocks=1, rows=best.height // 2, groups=2)  # registers for the bias
        slots, room = MOST_STAGES, room - RESULTS * best.groups
    stages = min(MOST_STAGES, room // slot_bytes(best, layer.stride, layer.window), slots)
    return replace(best, stages=stages)


def _family(layer: Extents) -> Tiling:
    """The best tile by the machine model."""
    pixels, apart = (layer.width, layer.height, layer.batch), (layer.stride,) * 2
    reach = (layer.window.reach,) * 2
    shape = Shape(
        pixels, layer.filters, layer.channels, layer.window.count, steps=(*apart, 1), rows=1,
        reach=(*reach, 0), fixed=True, across=True,
    )  # fmt: skip
    return candidates(shape, machine_for(TARGET))[0]


def slot_bytes(size: GroupChunks, stride: int = 1, window: Window = USUAL) -> int:
    """What a run of channels takes of shared memory."""
    weights = window.count * size.run * row_bytes(size.filters)
    return prod(size.read(stride, window)) * row_bytes(size.run) + weights


def warp_chunks(
    filters: int, stride: int = 1, room: int = WARP_SHARED, window: Window = USUAL
) -> WarpChunks:
    """The tile for warps, for many channels: the largest that shared memory holds."""
    size = WarpChunks(filters=filters_of_block(filters, 64, WARP_FILTERS))
    low = replace(size, rows=1)
    sizes = (size, replace(size, run=DEPTH), low, replace(low, run=DEPTH))
    found = (s for s in sizes if s.stages * warp_slot_bytes(s, stride, window) <= room)
    return next(found, replace(sizes[-1], stages=1))


def warp_slot_bytes(size: WarpChunks, stride: int, window: Window = USUAL) -> int:
    """At most, of rows of an odd number of units."""
    pixel, row = (2 * (n + UNIT) for n in (size.run, size.filters))
    pixels = prod(pixels_read(size.width, size.height, stride, window=window))
    return pixels * pixel + window.count * size.run * row


def filters_of_block(filters: int, most: int, sizes: tuple[int, ...] = BLOCK_FILTERS) -> int:
    """Filters of a block, of which there are as few as possible, all alike."""
    blocks = -(-filters // most)
    return next(n for n in sizes if n * blocks >= filters)


def tile_name(layer: Extents) -> str:
    """What tells the kernels of a layer's channels and filters apart."""
    match group_tiles(layer):
        case Groups(images=images, filters=filters, copied=copied):
            part = f"-f{filters}" if filters else ""
            return part + (f"-i{images}" if images > 1 else "") + "-copied" * copied
        case GroupChunks() as size:
            return f"-f{size.filters}-i{size.images}-r{size.height}" + "-p" * size.blocks
        case Tiling() as size:
            return f"-{size.label}"


def _blocks(layer: Extents, images: int, height: int) -> tuple[int, int, int]:
    """Blocks along the images, down and across."""
    return (
        -(-layer.batch // images), -(-layer.height // height),
        -(-layer.width // (PIXELS // images)),
    )  # fmt: skip


def _staged(layer: Extents, images: int) -> int:
    """Pixels that the blocks of a row read."""
    columns, _, _, *planes = GroupChunks(images=images).read(layer.stride, layer.window)
    return prod(_blocks(layer, images, layer.height)) * images * columns * prod(planes)


def _rounds(layer: Extents, size: GroupChunks) -> int:
    """How often all multiprocessors get a block."""
    tiles = prod(_blocks(layer, size.images, size.height)) * -(-layer.filters // size.filters)
    return -(-tiles // MULTIPROCESSORS)


def _time(layer: Extents, size: GroupChunks) -> int:
    """Cycles that a run of channels takes in all rounds: of products, or of what they read."""
    products = size.height * layer.window.count * instruction_cycles(size.filters)
    read = slot_bytes(size, layer.stride, layer.window) // BYTES
    return _rounds(layer, size) * max(products, read)


def instruction_cycles(filters: int) -> int:
    """Of 64 pixels times 16 channels times filters: 2048 products a cycle, or 128 bytes of shared
    memory, from where both operands come.
    """
    products, bytes_ = PIXELS * DEPTH * filters // 2048, 2 * DEPTH * (PIXELS + filters) // 128
    return max(products, bytes_)
