"""Parts of a memory."""

from __future__ import annotations

from selector.dataclass import unguarded
from selector.ir.nodes import Expr

# Of C's types, that lie in shared memory.
BYTES = {
    "u8": 1, "s8": 1, "bool": 1, "unsigned char": 1, "u16": 2, "s16": 2, "f16": 2, "bf16": 2,
    "u32": 4, "int": 4, "float": 4, "u64": 8, "s64": 8, "double": 8,
}  # fmt: skip


@unguarded
class View:
    """A part of a memory, ``start`` elements from its begin, and so many bytes (``at``) or elements
    (``index``) further.
    """

    memory: str
    start: Expr | None = None
    at: Expr | None = None
    index: Expr | None = None
