"""Corpus: convolution layers whose channels come in runs, staged ahead; instructions on warpgroups
whose rows are pixels of several images, staged and stored in another order than the arrays have;
those of the family of layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import halide as hl
from corpus_case import Case, Shape

from casestudies.conv_layer import chunks
from casestudies.conv_layer.algorithm import layer
from casestudies.conv_layer.family import by_family
from casestudies.conv_layer.tiles import GroupChunks, Groups, WarpChunks
from casestudies.conv_layer.warpgroups import warpgroups
from selector.families.layers import Tiling

Size = GroupChunks | Groups | WarpChunks | Tiling


def _shapes(channels: int, stride: int, size: Shape) -> dict[str, Shape]:
    filters, width, height, images = size
    image = (channels, stride * width + 2, stride * height + 2, images)
    return {"I": image, "K": (filters, channels, 3, 3), "bias": (filters,)}


def _built(size: Size, channels: int, filters: int, stride: int) -> hl.Func:
    pipeline = layer(channels, filters, stride, dealt=not isinstance(size, Tiling))
    match size:
        case Tiling():
            return by_family(pipeline, size)
        case GroupChunks():
            return chunks.groups(pipeline, size)
        case Groups():
            return warpgroups(pipeline, size)
        case WarpChunks():
            return chunks.warps(pipeline, size)


VARIANTS: dict[str, tuple[Size, int, int]] = {
    "columns": (GroupChunks(64, run=32, stages=2, blocks=1), 96, 128),
    "images_8": (GroupChunks(32, 8, rows=1, blocks=1), 64, 64),
    "images_16": (GroupChunks(64, 16), 80, 64),
    "images_32": (GroupChunks(32, 32, rows=1), 40, 32),
    "images_cluster": (GroupChunks(128, 8, cluster=2), 64, 128),
    "images_unmapped": (GroupChunks(48, 8, rows=1), 35, 45),  # rows that no map describes
    "images_stores_unmapped": (GroupChunks(32, 16, rows=1), 40, 18),
    "images_resident": (Groups(rows=1, groups=2, images=8), 32, 32),
    "unstaged": (GroupChunks(32, 8, stages=1), 16, 40),
    "warps": (WarpChunks(32), 72, 64),
    "warps_ragged": (WarpChunks(24, rows=1), 35, 45),
}


def _whole(size: Tiling) -> Tiling:
    """With all taps in a run."""
    return replace(size, taps=9, reach=(2, 2, 0))


FAMILY: dict[str, tuple[Size, int, int]] = {
    "family_tap": (Tiling((8, 8, 1), 2, 2, 32, 64, 3), 72, 40),
    "family_whole": (
        _whole(Tiling((8, 1, 8), 2, 1, 64, 32, 3, boxes=2, persistent=True)), 96, 72,
    ),
    "family_row": (_whole(Tiling((64, 1, 1), 1, 1, 32, 16, 4)), 40, 32),
    "family_resident": (
        _whole(Tiling((64, 1, 1), 3, 1, 16, 32, 4, boxes=2, persistent=True, strips=2)), 24, 16,
    ),
    "family_unmapped": (_whole(Tiling((8, 1, 8), 2, 1, 64, 16, 3, persistent=True)), 35, 45),
}  # fmt: skip
STRIDED: dict[str, tuple[Size, int, int]] = {
    "stride_family": (Tiling((1, 8, 8), 1, 2, 64, 64, 4, persistent=True), 128, 64),
    "stride_family_unmapped": (Tiling((8, 8, 1), 2, 2, 64, 32, 3), 35, 45),
    "stride_resident": (Groups(rows=1, groups=2, images=8), 32, 32),
    "stride_warps": (WarpChunks(32, rows=1), 72, 64),
}


def _cases() -> list[Case]:
    found: list[Case] = []
    variants = [(name, v, 1) for name, v in (VARIANTS | FAMILY).items()]
    variants += [(name, v, 2) for name, v in STRIDED.items()]
    for name, v, stride in variants:
        size, channels, filters = v
        build: Callable[[], hl.Func] = lambda v=v, stride=stride: _built(*v, stride)  # noqa: E731
        sizes = ((filters, 11, 5, 18), (filters, 3, 2, 3))
        found.append(
            Case(
                f"chunks_{name}",
                build,
                sizes,
                tensor=True,
                shapes=lambda s, channels=channels, stride=stride: _shapes(channels, stride, s),
                tolerance=3e-6,
                target=None if isinstance(size, WarpChunks) else "sm_90a",
            )
        )
    return found


CHUNKS = _cases()
