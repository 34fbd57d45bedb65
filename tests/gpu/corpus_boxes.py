"""Corpus: operands of warps (mma.sync) that the copy engine brings by tensor maps, asked for with
``self_fed``: panels of rows of 32, 64 and 128 bytes, one and several, read as they lie and across.
"""

from __future__ import annotations

import halide as hl
from corpus_case import Case
from corpus_chunks import VARIANTS as LAYERS
from corpus_chunks import _built, _shapes
from corpus_online import ONLINE
from corpus_product import BF16, F16, F32, S8, S32, Product, product
from corpus_product import _shapes as sides
from corpus_rings import PRODUCT, _depths, two_products

import halide_bridge as hb

TARGET = "sm_90a"
SIZES = ((72, 104), (65, 67), (128, 64))  # rows that maps describe, none, whole tiles
VARIANTS: dict[str, tuple[Product, int]] = {
    **{f"{x}": (Product(depth=None, stages=3, layout=x), 88) for x in ("nn", "nt", "tn", "tt")},
    "narrow": (Product(depth=None, stages=2, layout="nt", step=16), 40),
    "deep": (Product(depth=None, stages=5, step=64), 200),
    "once": (Product(depth=None, stages=3), 24),
    "wide": (Product(depth=None, stages=2, layout="tn", tiles=(4, 4), step=64), 136),
    "half": (Product((F16, F16), depth=None, stages=3), 72),
    "bf16": (Product((BF16, F32), "nt", depth=None, stages=3), 72),
    "s8": (Product((S8, S32), "nt", depth=None, stages=3, step=64), 208),
    "bias": (Product(depth=None, stages=3, epilogue="bias"), 72),
}


def _layer(channels: int, filters: int) -> Case:
    def build() -> hl.Func:
        return hb.self_fed(_built(LAYERS["warps"][0], channels, filters))

    return Case(
        "boxes_layer",
        build,
        ((filters, 35, 9, 2), (filters, 11, 5, 3)),
        True,
        shapes=lambda s: _shapes(channels, 1, s),
        tolerance=3e-6,
        target=TARGET,
    )


BOXES: list[Case] = [
    *(
        Case(
            f"boxes_{name}",
            lambda p=p: hb.self_fed(product(p)),
            SIZES,
            True,
            shapes=sides(p, depth),
            tolerance={"s8": 0, "half": 1e-2}.get(name, 2e-6),
            target=TARGET,
        )
        for name, (p, depth) in VARIANTS.items()
    ),
    Case(
        "boxes_two_rings",
        lambda: hb.self_fed(two_products(3)),
        (*PRODUCT, (40, 64)),
        True,
        shapes=_depths,
        tolerance=2e-6,
        target=TARGET,
    ),
    _layer(64, 64),
    *(
        Case(
            c.name.replace("online_warps", "boxes_online"),
            lambda c=c: hb.self_fed(c.build()),
            c.sizes,
            True,
            shapes=c.shapes,
            tolerance=c.tolerance,
            target=TARGET,
        )
        for c in ONLINE
        if c.name.startswith("online_warps")
    ),
]
