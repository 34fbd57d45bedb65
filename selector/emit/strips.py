"""Which staged buffers lie in strips (``gpu.ir.layouts.Dealt``): those that tensor statements read
in windows an even number of 16-byte chunks apart, and nothing else reads.
"""

from __future__ import annotations

from selector.gpu.ir.layouts import Dealt
from selector.ir.contents import loaded
from selector.ir.nodes import Allocate, IntImm, Memory, Stmt, Store
from selector.ir.traverse import stmt_exprs, walk_stmt
from selector.lowering.fragments import BLOCK_BYTES
from selector.lowering.normalize import is_tensor_store
from selector.lowering.tiles import Access, align_windows, as_accumulate


def find_strips(body: Stmt, *, engine: bool) -> dict[str, Dealt]:
    """The strips of the staged buffers that want them, of a kernel's body. Not of rings that the
    copy ``engine`` fills by whole rows: that gains more than bank conflicts cost.
    """
    rows = {
        s.name: s.extents[0].value
        for s in walk_stmt(body)
        if isinstance(s, Allocate)
        and s.memory in (Memory.GPU_SHARED, Memory.AUTO)
        and isinstance(s.extents[0], IntImm)
        and not (engine and s.stages > 1)
    }
    found: dict[str, Dealt | None] = {}
    for s in walk_stmt(body):
        if not isinstance(s, Store):
            continue
        statement = as_accumulate(s)
        if statement is None:
            touched = {s.buffer} if is_tensor_store(s) else set[str]()
            found |= dict.fromkeys(touched.union(*map(loaded, stmt_exprs(s))))
            continue
        aligned = align_windows(statement)
        for operand in (aligned.a, aligned.b):
            if operand.value is not None:
                found |= dict.fromkeys(operand.sources)
            elif isinstance(operand, Access):
                wanted = _strips(operand, rows.get(operand.buffer, 0))
                if found.setdefault(operand.buffer, wanted) != wanted:
                    found[operand.buffer] = None
    return {name: strips for name, strips in found.items() if strips is not None}


def _strips(o: Access, pitch: int) -> Dealt | None:
    """The strips for windows an even number of chunks apart, none of which leaves its row."""
    per, distance = BLOCK_BYTES // o.type.bytes, o.row_stride.constant
    if not pitch or pitch % per or distance is None or o.predicate is not None:
        return None
    step, rest = divmod(distance, per)
    x = o.base.offset % pitch
    end = x + distance * (o.rows - 1) + -(-o.depth // per) * per
    whole_rows = all(c % pitch == 0 for m, c in o.base if m)
    fits = whole_rows and x % per == 0 and end <= pitch
    if rest or step < 2 or step % 2 or o.depth_stride.constant != 1 or not fits:
        return None
    return Dealt(pitch, step, per)
