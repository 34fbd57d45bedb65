"""Corpus: convolution layers whose channels come in runs, staged ahead; instructions on warpgroups
whose rows are pixels of several images, staged and stored in another order than the arrays have.
"""

from __future__ import annotations

from collections.abc import Callable

import halide as hl
from corpus_case import Case, Shape

from casestudies.conv_layer import chunks
from casestudies.conv_layer.algorithm import layer
from casestudies.conv_layer.tiles import GroupChunks, Groups, WarpChunks
from casestudies.conv_layer.warpgroups import warpgroups


def _shapes(channels: int, stride: int, size: Shape) -> dict[str, Shape]:
    filters, width, height, images = size
    image = (channels, stride * width + 2, stride * height + 2, images)
    return {"I": image, "K": (filters, channels, 3, 3), "bias": (filters,)}


def _built(
    size: GroupChunks | Groups | WarpChunks, channels: int, filters: int, stride: int
) -> hl.Func:
    pipeline = layer(channels, filters, stride)
    match size:
        case GroupChunks():
            return chunks.groups(pipeline, size)
        case Groups():
            return warpgroups(pipeline, size)
        case WarpChunks():
            return chunks.warps(pipeline, size)


VARIANTS: dict[str, tuple[GroupChunks | Groups | WarpChunks, int, int]] = {
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
STRIDED: dict[str, tuple[GroupChunks | Groups | WarpChunks, int, int]] = {
    "stride_columns": (GroupChunks(64, rows=1, run=32, groups=1, stages=2), 128, 64),
    "stride_lasting": (GroupChunks(32, 8, rows=1, stages=3, blocks=1), 64, 64),
    "stride_cluster": (GroupChunks(128, 8, rows=1, stages=2, cluster=2), 64, 128),
    "stride_unmapped": (GroupChunks(48, 8, rows=1, stages=2), 35, 45),
    "stride_resident": (Groups(rows=1, groups=2, images=8), 32, 32),
    "stride_warps": (WarpChunks(32, rows=1), 72, 64),
}


def _cases() -> list[Case]:
    found: list[Case] = []
    variants = [(name, *v, 1) for name, v in VARIANTS.items()]
    variants += [(name, *v, 2) for name, v in STRIDED.items()]
    for name, *v in variants:
        size, channels, filters, stride = v
        build: Callable[[], hl.Func] = lambda v=v: _built(*v)  # noqa: E731
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
