"""Corpus: layers over channels by their family, in tilings of its own: channels in runs that are
staged ahead, or all at once; warpgroups whose rows are pixels of several images, staged and stored
in another order than the arrays have; warps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import halide as hl
from corpus_case import Case, Shape

import halide_bridge as hb
from casestudies.conv_layer.algorithm import layer
from selector.families.layers import Tiling

Change = Callable[[hl.Func], hl.Func]


def _shapes(channels: int, stride: int, size: Shape) -> dict[str, Shape]:
    filters, width, height, images = size
    image = (channels, stride * width + 2, stride * height + 2, images)
    return {"I": image, "K": (filters, channels, 3, 3), "bias": (filters,)}


def _built(
    size: Tiling, channels: int, filters: int, stride: int = 1, change: Change = lambda f: f
) -> hl.Func:
    output = layer(channels, filters, stride).output
    target = "sm_90a" if size.unit == "group" else "sm_80"
    hb.autoschedule(output, target=target, tilings={"conv": size})
    return change(output)


_whole = partial(Tiling, along=1, taps=9, reach=(2, 2, 0))
_resident = partial(_whole, persistent=True, strips=2)
_warps = partial(_whole, unit="warp", warps=2, apart=True)
_apart = partial(_whole, apart=True)
ROW = (64, 1, 1)
VARIANTS: dict[str, tuple[Tiling, int, int]] = {
    "columns": (_apart(ROW, 2, n=64, k=32, stages=2, boxes=2, persistent=True), 96, 128),
    "images_8": (_apart((8, 1, 8), 2, n=32, k=16, stages=4, persistent=True), 64, 64),
    "images_16": (_apart((4, 1, 16), 2, n=64, k=16, stages=4, boxes=2), 80, 64),
    "images_32": (_apart((2, 1, 32), 2, n=32, k=16, stages=4), 40, 32),
    "images_cluster": (_apart((8, 1, 8), 2, n=128, k=16, stages=4, boxes=2), 64, 128),
    # Rows that no map describes, of images and of results.
    "images_unmapped": (_apart((8, 1, 8), 2, n=48, k=16, stages=4), 35, 45),
    "images_stores_unmapped": (_apart((4, 1, 16), 2, n=32, k=16, stages=4), 40, 18),
    "images_resident": (_resident((8, 1, 8), 2, n=32, k=32, stages=2), 32, 32),
    "unstaged": (_apart((8, 1, 8), 2, n=32, k=16, stages=1, boxes=2), 16, 40),
    "warps": (_warps((16, 1, 1), 2, n=32, k=32, stages=2, boxes=2), 72, 64),
    "warps_ragged": (_warps((16, 1, 1), 2, n=24, k=32, stages=2), 35, 45),
    "warps_resident": (_warps((16, 1, 1), 4, n=32, k=24, stages=2, strips=3, sides=2), 24, 32),
    "family_tap": (Tiling((8, 8, 1), 2, 2, 32, 64, 3), 72, 40),
    "family_whole": (_whole((8, 1, 8), 2, n=64, k=32, stages=3, boxes=2, persistent=True), 96, 72),
    "family_row": (_whole(ROW, 1, n=32, k=16, stages=4), 40, 32),
    "family_resident": (_resident(ROW, 3, n=16, k=32, stages=4, boxes=2), 24, 16),
    "family_unmapped": (_whole((8, 1, 8), 2, n=64, k=16, stages=3, persistent=True), 35, 45),
}  # fmt: skip
STEPS = (2, 2, 1)
STRIDED: dict[str, tuple[Tiling, int, int]] = {
    "stride_family": (Tiling((1, 8, 8), 1, 2, 64, 64, 4, persistent=True), 128, 64),
    "stride_family_unmapped": (Tiling((8, 8, 1), 2, 2, 64, 32, 3), 35, 45),
    "stride_resident": (_resident((1, 1, 64), 2, n=32, k=32, stages=2, steps=STEPS), 32, 32),
    "stride_warps": (_warps((16, 1, 1), 2, n=32, k=32, stages=2, steps=STEPS), 72, 64),
}
CHANGED: dict[str, Change] = {"images_cluster": lambda output: hb.cluster(output, 2)}


def _cases() -> list[Case]:
    found: list[Case] = []
    variants = [(name, v, 1) for name, v in VARIANTS.items()]
    variants += [(name, v, 2) for name, v in STRIDED.items()]
    for name, v, stride in variants:
        size, channels, filters = v
        build = partial(_built, *v, stride, CHANGED.get(name, lambda f: f))
        sizes = ((filters, 11, 5, 18), (filters, 3, 2, 3))
        found.append(
            Case(
                f"chunks_{name}",
                build,
                sizes,
                tensor=True,
                shapes=lambda s, channels=channels, stride=stride: _shapes(channels, stride, s),
                tolerance=3e-6,
                target=None if size.unit == "warp" else "sm_90a",
            )
        )
    return found


CHUNKS = _cases()
