"""Rows that several blocks have, which are a cluster.

    gpu_block y < n:                              gpu_block b < 8*n:  (8 blocks are a cluster)
      gpu_thread row.x < 4096: ...          =>      gpu_thread row.thread < 512:
                                                      let y = b/8
                                                      let row.x = row.thread + 512*(b % 8)
                                                      ...
What they find of their row, they store in each other's shared memory (``threads.row_joins``).
"""

from __future__ import annotations

from dataclasses import replace

from selector.ir.nodes import Allocate, Expr, For, ForKind, IntImm, LetStmt, Stmt, Var
from selector.ir.simplify import add, div, mod, mul
from selector.lowering.row_folds import Row

ZERO = IntImm(0)


def in_clusters(body: Stmt, row: Row, loop: str, extent: Expr) -> tuple[Stmt, str, Expr]:
    """The body of a kernel of rows whose innermost ``loop`` over blocks, from 0 to ``extent``, is
    one over as many more; that loop.
    """
    each, blocks = row.threads // row.blocks, IntImm(row.blocks)
    whole, thread = f"{loop}.blocks", Var("row.thread")

    def inside(s: Stmt) -> Stmt:
        match s:
            case For(name, kind=ForKind.GPU_THREAD) if name == row.x:
                first = mul(mod(Var(whole), blocks), IntImm(each))
                inner: Stmt = LetStmt(row.x, add(thread, first), s.body)
                inner = LetStmt(loop, div(Var(whole), blocks), inner)
                return replace(s, name=thread.name, extent=IntImm(each), body=inner)
            case For(kind=ForKind.GPU_THREAD) | Allocate():
                return replace(s, body=inside(s.body))
            case _:
                raise AssertionError(s)

    return inside(body), whole, mul(extent, blocks)
