"""The GPU corpus: pipelines that cover what the emitter must be able to do, by name."""

from __future__ import annotations

from corpus_boxes import BOXES
from corpus_case import cases
from corpus_chunks import CHUNKS
from corpus_conv import CONVOLUTIONS
from corpus_family import FAMILY
from corpus_group_windows import GROUP_WINDOWS
from corpus_groups import GROUPS
from corpus_layers import LAYERS
from corpus_mixed import MIXED
from corpus_online import ONLINE
from corpus_plain import PLAIN
from corpus_product import PRODUCTS
from corpus_registers import REGISTERS
from corpus_rings import RINGS
from corpus_rows import ROWS
from corpus_tables import TABLES
from corpus_types import ELEMENTWISE
from corpus_windows import WINDOWS

CORPUS = cases(
    PLAIN, MIXED, ELEMENTWISE, WINDOWS, RINGS, CONVOLUTIONS, PRODUCTS, FAMILY, REGISTERS, ROWS,
    TABLES, GROUPS, LAYERS, GROUP_WINDOWS,
    ONLINE, CHUNKS, BOXES,
)  # fmt: skip
