"""Sums that a tensor unit might take, and the schedules of their families worth trying."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from halide_bridge.schedules.recognise.channels import Channels, channels_of
from halide_bridge.schedules.recognise.costs import LOAD, distinct
from halide_bridge.schedules.recognise.divided import is_held_back
from halide_bridge.schedules.recognise.layers import Layer, layer_of
from halide_bridge.schedules.recognise.products import Product, product_of
from halide_bridge.schedules.recognise.program import Member, Program, number
from halide_bridge.schedules.recognise.windows import CHANNELS, Window, window_of
from halide_bridge.schedules.sizes import Guess
from halide_bridge.schedules.turns import Argument, argument_of
from selector.families import channels, contraction, layers, transforms, windows
from selector.ir.nodes import Var
from selector.ir.types import FLOAT32
from selector.machine import Machine
from selector.targets import find_target

NARROW = 1.5  # of what windows are thought to take they do, where planes do not fill their tiles
LEAST_SHARE = 0.25  # below that CUDA cores, at a third of their rate, are as fast
EMPTY = "tiles of its products would be mostly empty"
Sum = Product | Window | Layer
Given = contraction.Tiling | windows.Tiling | layers.Tiling
Tiling = Given | transforms.Tiling


def sum_of(member: Member, program: Program, known: Guess, machine: Machine) -> Sum | str:
    """What a reduction sums up; else why a tensor unit cannot have it, or should not, empty where
    it is no sum of products at all.
    """
    if is_held_back(member, program):  # what fills tiles has it multiplied last
        return EMPTY
    own = channels_of(member, program)
    if own is not None:
        tile, window = tile_of(own, member, known, machine), window_of(member, program)
        if tile is not None and not _is_faster(window, tile[0], program, known, machine):
            return "each of its channels has filters of its own, which few threads have at a time"
    product = product_of(member, program)
    if isinstance(product, Product) and product.plain:
        return product
    layer = layer_of(member, program)
    if isinstance(layer, Layer) and find_target(machine.target).has("wgmma"):
        source = argument_of(program.members[layer.image], layer.inner, program)
        if source is None and layer.inner:  # what is computed lies as it does
            return window_of(member, program) or product
        return _by_groups(layer, source, program, known, machine)
    if isinstance(layer, Layer):
        layer = _by_warps(layer, program, known, machine)
    if isinstance(layer, Layer):
        return layer
    window = layer or window_of(member, program) or product
    if isinstance(window, str | Product) and isinstance(product, Product):
        n, m = known.extent(member, 0), known.extent(member, product.m)
        k = known.value(member.stages[1].reduced[product.k].extent)
        return product if fills(n, m, k) else EMPTY
    return (isinstance(window, Window) and _why_on_cores(window, machine)) or window


def _why_on_cores(window: Window, machine: Machine) -> str:
    """Why CUDA cores are as fast for the sums of windows; empty where they are not."""
    shape = window.shape
    if (window.type != FLOAT32 and not shape.is_apart) or windows.worth_rounding(shape, machine):
        return ""
    if window.type == FLOAT32:
        return "CUDA cores sum up its taps while its bytes are moved: f32 stays f32"
    return "its windows do not overlap, and CUDA cores sum them up as they are moved"


def form_of(
    tiling: Given, member: Member, program: Program, known: Guess, machine: Machine
) -> Sum | str:
    """The sum that a tiling is for; else why it is none of its family, empty where it is none of
    products. Rows that the copy engine does not take are copied before where that is worth it.
    """
    match tiling:
        case contraction.Tiling():
            return product_of(member, program)
        case windows.Tiling():
            return window_of(member, program)
        case layers.Tiling():
            layer = layer_of(member, program)
    if isinstance(layer, str):
        return layer
    source = argument_of(program.members[layer.image], layer.inner, program)
    if source is None:
        return layer
    if source.along > 0:
        return _picked(layer)
    anywhere = _begins_anywhere(layer, source, known)
    shape, pixels = _layer_shape(layer, program, known), prod(layer.steps)
    worth = anywhere and layers.worth_turning(shape, pixels, machine)
    return replace(layer, copied=worth)


def _by_groups(
    layer: Layer, source: Argument | None, program: Program, known: Guess, machine: Machine
) -> Layer | str:
    """A layer as warpgroups are to have it, whose channels lie along an argument's rows or not;
    else why they should not.
    """
    turned = source is not None and source.along > 0
    if source is not None and not turned:
        turned = _begins_anywhere(layer, source, known)
        layer = replace(layer, copied=turned)
    if turned:
        layer = _picked(layer)
    if _is_joined(layer, turned, program, known, machine):
        return replace(layer, joined=True)
    why = _why_not_copied(layer, turned, program, known, machine)
    if why and layer.copied and prod(layer.steps) == 1:  # threads bring rows that lie anyhow
        return replace(layer, copied=False)
    return why or layer


def _picked(layer: Layer) -> Layer:
    """A layer whose image is turned: that of single pixels apart with those alone."""
    apart = max(layer.steps) > 1 and not any(layer.reach) and max(layer.phases) == 1
    return replace(layer, picked=apart)


def _by_warps(layer: Layer, program: Program, known: Guess, machine: Machine) -> Layer | str:
    """A layer whose channels lie side by side, where warps are to have it; else why they cannot,
    empty where it may be a product of the pixels that each tap reads.
    """
    if max(layer.phases) > 1:
        return "only warpgroups have layers with phases"
    source = argument_of(program.members[layer.image], layer.inner, program)
    beside = source is not None and source.along == 0
    shape = _layer_shape(layer, program, known)
    return layer if beside and layers.candidates(shape, machine) else ""


def _begins_anywhere(layer: Layer, source: Argument, known: Guess) -> bool:
    """Whether rows of channels are no multiples of what the copy engine takes."""
    return known.extent(source.source, 0) * layer.bytes % layers.VECTOR > 0


def fills(n: int, m: int, k: int) -> bool:
    """Whether enough of the tiles of a product is used, where threads stage its operands or several
    sums follow each other: such products reach a tenth of a tensor unit's rate.
    """
    share = 1.0
    for extent, least in ((n, 8), (m, 64), (k, 16)):
        share *= extent / (-(-extent // least) * least)
    return share >= LEAST_SHARE


def _is_faster(
    window: Window | str, than: float, program: Program, known: Guess, machine: Machine
) -> bool:
    """Whether windows on tensor units take fewer microseconds."""
    if isinstance(window, str) or not find_target(machine.target).has("mma"):
        return False
    shape = window_shape(window, program, known)
    ranks = windows.ranked(shape, machine)
    if not ranks:
        return False
    microseconds, tiling = ranks[0]
    return microseconds * (NARROW if shape.width < tiling.width else 1) < than


def tile_of(
    found: Channels, member: Member, known: Guess, machine: Machine
) -> tuple[float, channels.Tile] | None:
    """The best tile of a thread, with the microseconds that all take, if one can hold a tile."""
    extents = tuple(known.extent(member, d) for d in range(len(member.args)))
    shape = channels.Shape(
        extents, found.windows, found.channel, found.group, found.bytes, found.side, found.inside
    )
    best = channels.best(shape, machine)
    return (best[0] / machine.megahertz, best[1]) if best else None


def _why_not_copied(
    layer: Layer, turned: bool, program: Program, known: Guess, machine: Machine
) -> str:
    """Why a layer's image cannot, or should not, be copied: by the copy engine where windows are
    pixels apart, by a kernel of its own where it is ``turned``. Empty where it is or need not be.
    """
    shape = _layer_shape(layer, program, known)
    pixels = 1 if layer.picked else prod(layer.steps)
    if pixels > 1 and not turned and shape.channels * shape.bytes < layers.VECTOR:
        return "its pixels lie apart and have too few channels to be copied as vectors"
    if turned and not layers.worth_turning(shape, pixels, machine):
        return "it is too short to have its image copied, channels and neighbours side by side"
    return ""


def _is_joined(
    layer: Layer, turned: bool, program: Program, known: Guess, machine: Machine
) -> bool:
    """Whether a layer is faster with its channels and columns as one sum, for which its image is
    written anew with a window for each pixel (``turned``: it is in any case). Never where no
    product is saved: its channels are whole vectors.
    """
    if layer.columns is None or max(layer.phases) > 1:
        return False
    shape, pixels = _layer_shape(layer, program, known), prod(layer.steps)
    own = _layer_shape(replace(layer, joined=True), program, known)
    if own.deep * own.taps >= shape.deep * shape.taps:
        return False
    behind = pixels // layer.steps[layer.columns.image]
    if not layers.worth_turning(own, behind, machine):
        return False
    alone = layers.microseconds(shape, machine)
    alone += layers.copying(shape, pixels, machine) if turned else 0
    copied = layers.copying(own, behind, machine)
    if not turned:  # else its weights are copied, too
        copied += layers.copying_weights(own, machine)
    return alone > layers.microseconds(own, machine) + copied


def forms(found: Sum) -> tuple[Sum, ...]:
    """A sum, and what else it may be where the compiler takes no schedule of that."""
    if isinstance(found, Layer) and found.joined:
        return found, replace(found, joined=False)
    return (found,)


def candidates(found: Sum, program: Program, known: Guess, machine: Machine) -> Iterator[Tiling]:
    """Schedules of a sum, the best first."""
    if isinstance(found, Window):
        tilings = windows.candidates(window_shape(found, program, known), machine)
        if not found.first:
            return iter(tilings)
        few = known.extent(program.members[found.func], 0) <= CHANNELS
        return (t for t in tilings if few and t.unit == "warp")
    if isinstance(found, Layer):
        return iter(layers.candidates(_layer_shape(found, program, known), machine))
    return _contractions(_shape(found, program, known), machine)


def _contractions(shape: contraction.Shape, machine: Machine) -> Iterator[Tiling]:
    """The best schedule of a product; should it be refused, the best of blocks that do not stay,
    and of warps.
    """
    best = contraction.pick(shape, machine)
    yield best
    others = [
        t for _, t in contraction.ranked(shape, machine) if not t.persistent and t.cluster == 1
    ]
    for unit in ("group", "warp"):
        found = next((t for t in others if t.unit == unit and t != best), None)
        if found is not None:
            yield found


def _shape(product: Product, program: Program, known: Guess) -> contraction.Shape:
    member = program.members[product.func]
    k = prod(known.value(r.extent) for r in member.stages[1].reduced)
    element = product.a.type.bytes
    others = (d for d in range(1, len(member.args)) if d != product.m)
    batch = prod(known.extent(member, d) for d in others)
    return contraction.Shape(
        known.extent(member, product.m), known.extent(member, 0), max(1, k), element,
        4, product.a.along, product.b.along, max(1, batch), _reads_beside(product, program),
        _operations_behind(product, program),
    )  # fmt: skip


def _reads_beside(product: Product, program: Program) -> bool:
    """Whether what reads the sums reads something else as well."""
    readers = program.readers(program.members[product.func])
    return any(a.func != product.func for m in readers for a in m.accesses())


def _operations_behind(product: Product, program: Program) -> int:
    """Of what becomes of a sum, which is in a register."""
    readers = program.readers(program.members[product.func])
    values = (value for m in readers if m.pure for value in m.stages[0].values)
    return sum(max(0, distinct(value) - LOAD) for value in values)


def _layer_shape(layer: Layer, program: Program, known: Guess) -> layers.Shape:
    member = program.members[layer.func]
    pixels = [known.extent(member, d) for d in range(len(member.args))]
    filters = pixels.pop(layer.filters)
    reduced = member.stages[1].reduced
    taps = prod(number(reduced[place].extent) or 1 for place in layer.taps)
    summed = reduced[layer.channels].extent
    channels, fixed = max(1, known.value(summed)), number(summed) is not None
    across = layer.along[1] == 0 and layer.bytes > 1
    if layer.joined:
        assert layer.columns is not None
        taps, channels, across = taps // layer.columns.taps, layer.columns.terms, False
        layer = layer.of_joined
    if layer.picked:
        layer = layer.of_picked
    phases = [n for d, n in enumerate(layer.phases) if d != layer.filters]
    pixels = [-(-e // n) for e, n in zip(pixels, phases, strict=True)]
    count = prod(phases)
    steps = tuple(step for d, step in enumerate(layer.steps) if d != layer.inner)
    reach = tuple(r for d, r in enumerate(layer.reach) if d != layer.inner)
    if layer.backwards:  # boxes bring taps from the first on: one at a time
        reach = (0,) * len(reach)
    rows = 0 if count > 1 else max(_reads_in_rows(m, layer) for m in program)
    return layers.Shape(
        tuple(pixels), filters, channels, taps, layer.bytes, count, steps, rows, reach, fixed,
        across, any(_reads_planes(m, layer) for m in program),
    )  # fmt: skip


def _reads_in_rows(reader: Member, layer: Layer) -> int:
    """How many elements what reads a layer reads for one of its own, where these have the filters
    or pixels of a row innermost and are whole registers or halves; else 0.
    """
    if reader.name == layer.func or not reader.args or reader.types[0].bytes not in (2, 4):
        return 0
    read, first = set(reader.accesses()), Var(reader.args[0])
    filters = any(a.func == layer.func and a.indices[layer.filters] == first for a in read)
    return len(read) if filters or _reads_planes(reader, layer) else 0


def _reads_planes(reader: Member, layer: Layer) -> bool:
    """Whether what reads a layer has its first pixels innermost."""
    first = next(d for d in range(len(layer.steps)) if d != layer.filters)
    return bool(reader.args) and any(
        a.func == layer.func and a.indices[first] == Var(reader.args[0]) for a in reader.accesses()
    )


def window_shape(window: Window, program: Program, known: Guess) -> windows.Shape:
    """The sizes of a filter, of the outputs that are asked for."""
    member = program.members[window.func]
    planes = 1
    x, y = window.first, window.first + 1
    for d in range(len(member.args)):
        if d not in (x, y) and not (window.channels > 1 and d == 0):
            planes *= known.extent(member, d)
    width = window.channels * known.extent(member, x)
    height = 1 if window.signal else known.extent(member, y)
    return replace(window.shape, width=width, height=height, planes=planes)
