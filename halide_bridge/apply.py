"""One call from a Func and arrays to its values."""

from __future__ import annotations

import sys
from typing import Any

from halide_bridge.compile import compile as compiled


def apply(
    output: Any,
    *args: Any,
    target: str = "cuda",
    sizes: Any = None,
    chunks: Any = None,
    interpret: bool = False,
    **named: Any,
) -> Any:
    """The values of a pipeline: ``hb.apply(blur, image, taps)``.

    ``output``: a Func, several, or a Pipeline; what its user has not scheduled is scheduled as
    ``compile(output, schedule="auto")`` does. Arguments are those of a call of the kernel, in
    calling order or by name: NumPy, CuPy, torch or JAX arrays, whatever speaks DLPack, numbers; the
    result is of the same kind. Of Dask arrays it is a Dask array, computed block by block as
    ``selector.dask.apply`` does (``chunks``: those of the result). ``sizes``: the output's shape,
    where the inputs do not fix it. ``interpret``: by the interpreter, for a machine without a GPU,
    of ``target``'s kernel.

    A kernel is compiled for the call, or found in the cache on disk, some tens of milliseconds: for
    many calls keep one, ``kernel = hb.compile(output, schedule="auto")``.

    ``ArgumentError`` for arrays that do not fit; else the errors of ``compile`` and of a call.
    """
    kernel = compiled(output, target=target, schedule="auto")
    blocks = sys.modules.get("dask.array")  # who has such an array has imported it
    if blocks and any(isinstance(a, blocks.Array) for a in (*args, *named.values())):
        import selector.dask

        given = {"chunks": chunks, "sizes": sizes, "interpret": interpret, **named}
        return selector.dask.apply(kernel, *args, **given)
    run = kernel.interpret if interpret else kernel
    return run(*args, sizes=sizes, **named)
