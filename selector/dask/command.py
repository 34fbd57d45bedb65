"""``python -m selector apply``: a saved kernel over images in files, of any size.

    python -m selector apply blur.zip I=slide.ome.zarr K=taps.npy --out blurred.zarr

Images in Zarr, in TIFF, and large ones of NumPy's are read, computed and written in blocks, each
with the surroundings that the pipeline reads, by the threads of this process, by ``--workers``
processes of this machine with a GPU each in turn, or by those of a cluster (``--scheduler``). A
block whose worker is lost is computed by another. Other files are read whole.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from selector.api import Kernel, load
from selector.dask.files import Stored, needed, read
from selector.dask.written import Written
from selector.diagnostics import UserError


def main(arguments: Sequence[str]) -> int:
    """Run it; the exit code. ``UserError`` for what cannot be read, computed or written."""
    return _run(_parser().parse_args(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m selector apply",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kernel", metavar="KERNEL", help="a saved kernel (kernel.save)")
    parser.add_argument(
        "inputs", nargs="+", metavar="NAME=FILE", help="an argument of the kernel, or NAME=NUMBER"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the result")
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")
    parser.add_argument(
        "--whole", action="append", default=[], metavar="NAME", help="read that file whole"
    )
    parser.add_argument("--chunks", metavar="HEIGHTxWIDTH", help="of the result, its last axes")
    parser.add_argument("--workers", type=int, default=0, help="processes; 0: threads of this one")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a cluster of Dask")
    parser.add_argument("--interpret", action="store_true", help="by the interpreter: no GPU")
    parser.add_argument(
        "--trust", action="store_true", help="the kernel's code for the CPU is known to be good"
    )
    return parser


def _run(options: argparse.Namespace) -> int:
    """Read, compute, write; one line says what."""
    kernel = load(options.kernel, trust=options.trust)
    written = Written(options.out)
    written.check(options.overwrite)
    begin = time.perf_counter()
    given = dict(_argument(text, options.whole) for text in options.inputs)
    chunks = _chunks(options.chunks)
    try:
        with _workers(options.workers, options.scheduler):
            shape, dtype, blocks = _store(kernel, given, written, chunks, options.interpret)
        written.end()
    finally:
        written.discard()
    seconds = time.perf_counter() - begin
    size = " x ".join(map(str, shape))
    print(f"{options.out}: {size} of {dtype}, {blocks} blocks, {seconds:.1f} s", file=sys.stderr)
    return 0


def _argument(text: str, whole: list[str]) -> tuple[str, Any]:
    """A name and its array or number."""
    name, sign, value = text.partition("=")
    if not sign or not name or not value:
        raise UserError(f"{text} is not NAME=FILE", hint="for example I=picture.tif")
    if not Path(value).exists():
        number = _number(value)
        if number is not None:
            return name, number
    found = read(value)
    return name, found[...] if isinstance(found, Stored) and name in whole else found


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def _chunks(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        sizes = tuple(int(part) for part in text.split("x"))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise UserError(f"--chunks {text} is no size", hint="--chunks 2048x2048")
    return sizes


def _store(
    kernel: Kernel,
    given: Mapping[str, Any],
    written: Written,
    chunks: tuple[int, ...] | None,
    interpret: bool,
) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """The result in its file, which has no name yet: its shape, type and number of blocks."""
    from selector.dask.planes import applied

    blocked = applied(kernel, given, chunks, interpret)
    taking = written.begin(blocked.shape, blocked.dtype, blocked.chunksize)
    if taking is None:
        written.write_picture(np.asarray(blocked.compute()))
    else:
        blocked.store(taking, lock=False)
    return blocked.shape, blocked.dtype, blocked.npartitions


def _workers(count: int, address: str | None) -> AbstractContextManager[Any]:
    """Where Dask computes meanwhile."""
    if not count and address is None:
        return needed("dask").config.set(scheduler="threads")
    needed("distributed")
    from selector.dask.workers import cluster_at, local_workers

    return local_workers(count) if address is None else cluster_at(address)
