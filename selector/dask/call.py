"""``apply``: a kernel over a Dask array, as a Dask array.

The graph has one task a block of the output. It is given the part of each cut input that Halide's
bounds demand, gathered from as many chunks as hold it; an input that is not cut is one task's
result that every block gets; the kernel travels as its saved bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np

from selector.api import Kernel
from selector.dask.layout import Layout, Span, Window, pieces, spans
from selector.dask.motion import Motion, motion_along
from selector.dask.regions import Side, Stuck
from selector.dask.work import Job, Parcel, join, piece, run_block
from selector.diagnostics import ArgumentError, UserError
from selector.ir.nodes import BufferParam
from selector.ir.types import Kind
from selector.runtime import arguments
from selector.runtime.arrays import (
    HOST,
    ArrayView,
    Library,
    dense_strides,
    is_torch,
    numpy_dtype,
    view,
)
from selector.runtime.prepare import output_shapes
from selector.runtime.promises import check_promises
from selector.runtime.sizes import Size, check_requirements, environment

try:
    import dask.array as da
    from dask.array.core import normalize_chunks
    from dask.base import tokenize
    from dask.highlevelgraph import HighLevelGraph
except ImportError as error:
    raise UserError(
        "there is no Dask here", why=str(error), hint="pip install tensor-selector[dask]"
    ) from error

_INDEX_LIMIT = 2**31


def apply(
    kernel: Kernel,
    *args: Any,
    chunks: Any = None,
    sizes: Any = None,
    interpret: bool = False,
    **named: Any,
) -> Any:
    """Run a kernel over Dask arrays, block by block: the Dask array of its output, not computed.

    Arguments are those of a call of the kernel, in calling order or by name. Inputs that are Dask
    arrays are cut: a block of the output reads the part that it needs, its halo included, whatever
    the chunks. NumPy and CuPy arrays (taps, a band, a table) are given whole to every block, and so
    are numbers. The result equals that of a call on whole arrays bit by bit: blocks are computed
    from the same tiles. Boundary conditions act at the edges of the whole image alone.

    ``chunks``: those of the result, in any form that Dask knows; by default they follow the first
    cut input's, enlarged or reduced as the pipeline does it. Blocks are computed from the tile of
    the schedule on in which they begin: chunks of many tiles waste least. ``sizes``: the output's
    shape, where the inputs do not fix it or a smaller one will do. ``interpret``: run the
    interpreter in place of the GPU or CPU that the kernel was compiled for. Chunks of CuPy stay on
    their GPU; NumPy's travel there and back.

    Works on every scheduler. A worker needs this package with NumPy, Dask, and CuPy for a GPU;
    neither Halide nor the rules.

    ``ArgumentError`` for arrays that do not fit, for chunks of unknown size, and for cuts across an
    axis that the pipeline needs whole, with the reason why it does: a sum or a recursion over the
    axis, values that depend on the position. ``UserError`` without Dask, or without any Dask array.
    """
    call = _Call(kernel, args, named, sizes)
    return call.array(chunks, interpret)


class _Call:
    """The arguments of one ``apply``, checked."""

    def __init__(
        self, kernel: Kernel, args: Sequence[Any], named: Mapping[str, Any], sizes: Any
    ) -> None:
        if not isinstance(kernel, Kernel):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"expected a kernel, got {type(kernel).__name__}",
                hint="kernel = hb.compile(output) or selector.load(path)",
            )
        plan = self.plan = kernel.plan
        outputs = arguments.outputs_of(plan)
        if len(outputs) != 1:
            raise ArgumentError(
                f"{plan.name} has {len(outputs)} outputs",
                why="blocks are those of one output",
                hint="compile a pipeline for each of them",
            )
        self.output = outputs[0]
        values = arguments.match_names(plan, args, named)
        self.inputs = arguments.inputs_of(plan)
        self.cut = {b.name: values[b.name] for b in self.inputs if _is_dask(values[b.name])}
        if not self.cut:
            raise ArgumentError(
                f"no argument of {plan.name} is a Dask array",
                hint=f"call it: {plan.name}(...), or make one: dask.array.from_array(image)",
            )
        self.known: dict[str, Size] = {}
        for b in self.inputs:
            array = values[b.name]
            self.known[b.name] = _checked_cut(b, array) if b.name in self.cut else _whole(b, array)
        self.whole = {b.name: values[b.name] for b in self.inputs if b.name not in self.cut}
        scalars = {s.name: arguments.check_scalar(s, values[s.name]) for s in plan.scalars}
        self.scalars = {name: values[name] for name in scalars}
        self.numbers = arguments.numbers(plan, scalars)
        self.extents = self._output_extents(sizes, scalars)
        self.kernel = kernel.program_for(self._block_shapes())
        self.reasons: dict[int, str] = {}
        self.motions = self._motions()

    def _output_extents(self, sizes: Any, scalars: Mapping[str, Any]) -> tuple[int, ...]:
        """The output's, innermost first; an ``ArgumentError`` if the inputs are too small."""
        shape = output_shapes(self.plan, self.known, self.numbers, sizes)[self.output.name]
        made = {self.output.name: _dense(shape)}
        env = environment(self.plan, self.known | made, self.numbers)
        check_requirements(self.plan, env)
        check_promises(self.plan, env, scalars)
        extents = shape[::-1]
        if 0 in extents:
            raise ArgumentError(
                f"{self.output.name} of shape {extents[::-1]} has no elements",
                hint="there is nothing to compute: pass images and sizes without a zero",
            )
        return extents

    def _block_shapes(self) -> dict[str, tuple[int, ...]]:
        """Those of a block of chunks where these are images by themselves; else the whole ones."""
        whole = {name: size.extents[::-1] for name, size in self.known.items()}
        chunks = whole | {name: array.chunksize for name, array in self.cut.items()}
        with suppress(ArgumentError):  # an output that does not follow, or has taps for more
            known = {b.name: arguments.dense_size(b, chunks[b.name]) for b in self.inputs}
            return chunks | output_shapes(self.plan, known, self.numbers, None)
        return whole | {self.output.name: self.extents[::-1]}

    def _motions(self) -> dict[int, Motion]:
        found: dict[int, Motion] = {}
        for d in range(len(self.output.dims)):
            try:
                found[d] = motion_along(self.kernel.module, d, frozenset(self.cut))
            except Stuck as error:
                self.reasons[d] = str(error)
        return found

    def array(self, chunks: Any, interpret: bool) -> Any:
        """The Dask array of the output."""
        sides = {
            (b.name, k): n for b in self.inputs for k, n in enumerate(self.known[b.name].extents)
        }
        layout = Layout(self.kernel.module, self.motions, sides, self.extents, self.numbers)
        self._refuse_cuts()
        sizes = self._chunks(chunks, layout)
        parcel = Parcel.of(self.kernel, machine_code=not interpret)
        cut = {name: array.name for name, array in self.cut.items()}
        token = tokenize((parcel.sha256, sizes, interpret, self.whole, self.scalars, cut))
        graph = _Graph(self, layout, f"{self.plan.name}-{token}", interpret)
        layer = graph.layer(parcel, sizes)
        made = HighLevelGraph.from_collections(
            graph.name, layer, dependencies=list(self.cut.values())
        )
        array: Any = da.Array  # whose __new__ its stub does not know
        return array(made, graph.name, chunks=sizes[::-1], meta=self._meta())

    def _meta(self) -> Any:
        """An empty array of the result's kind."""
        first = next(iter(self.cut.values()))
        like = first._meta  # pyright: ignore[reportPrivateUsage]
        dtype = numpy_dtype(self.output.type)
        if self.output.type.kind is Kind.BFLOAT and isinstance(like, np.ndarray):
            given = (a.dtype for a in (*self.cut.values(), *self.whole.values()))
            dtype = next((d for d in given if d.name == "bfloat16"), dtype)
        return np.empty_like(like, shape=(0,) * len(self.output.dims), dtype=dtype)

    def _refuse_cuts(self) -> None:
        """``ArgumentError`` for an input with several chunks along an axis that is needed whole."""
        moved = {side for m in self.motions.values() for side in m.steps}
        for name, array in self.cut.items():
            for k, sizes in enumerate(reversed(array.chunks)):
                if len(sizes) > 1 and (name, k) not in moved:
                    axis = array.ndim - 1 - k
                    raise ArgumentError(
                        f"{name}: axis {axis} has {len(sizes)} chunks, and every block needs it "
                        "whole",
                        why=self._why((name, k)),
                        hint=f"make it one: {name}.rechunk({{{axis}: -1}})",
                    )

    def _why(self, side: Side) -> str:
        reasons = [f"along axis {self._axis(d)} of the output, {r}" for d, r in self._stuck(side)]
        return "; ".join(reasons) or "each output is made of all elements along it"

    def _stuck(self, side: Side) -> list[tuple[int, str]]:
        """Why output dimensions cannot be cut, those first that are named as the side is."""
        return sorted(self.reasons.items(), key=lambda item: item[0] != side[1])

    def _axis(self, d: int) -> int:
        return len(self.extents) - 1 - d

    def _chunks(self, chunks: Any, layout: Layout) -> tuple[tuple[int, ...], ...]:
        """Chunks of the output by dimension, innermost first."""
        cut = {
            (name, k): sizes
            for name, array in self.cut.items()
            for k, sizes in enumerate(reversed(array.chunks))
        }
        followed = [layout.chunks(d, n, cut) for d, n in enumerate(self.extents)]
        if chunks is None:
            return tuple(followed)
        shape = self.extents[::-1]
        try:
            asked = normalize_chunks(
                chunks, shape, dtype=numpy_dtype(self.output.type),
                previous_chunks=tuple(followed[::-1]),
            )[::-1]  # fmt: skip
        except (ValueError, TypeError, NotImplementedError) as error:
            raise ArgumentError(
                f"chunks={chunks!r} does not fit an output of shape {shape}", why=str(error)
            ) from error
        for d, sizes in enumerate(asked):
            if len(sizes) > 1 and d in self.reasons:
                raise ArgumentError(
                    f"chunks=: axis {self._axis(d)} of {self.output.name} cannot be cut",
                    why=self.reasons[d],
                    hint=f"leave it whole: chunks={{{self._axis(d)}: -1}}",
                )
        return tuple(tuple(n for n in sizes if n) for sizes in asked)


class _Graph:
    """The tasks of one call."""

    def __init__(self, call: _Call, layout: Layout, name: str, interpret: bool) -> None:
        self.name = name
        self._call, self._layout, self._interpret = call, layout, interpret
        self._tasks: dict[Any, Any] = {}
        self._chunks = {n: tuple(reversed(a.chunks)) for n, a in call.cut.items()}
        self._found: dict[tuple[Side, Span], list[tuple[int, Span]]] = {}

    def layer(self, parcel: Parcel, sizes: Sequence[Sequence[int]]) -> dict[Any, Any]:
        """Tasks by key, those of the output's blocks among them."""
        call = self._call
        kernel, names = f"kernel-{self.name}", tuple(b.name for b in call.inputs)
        self._tasks[kernel] = parcel
        fixed = {name: f"{name}-{self.name}" for name in call.whole}
        for name, key in fixed.items():
            self._tasks[key] = call.whole[name]
        for index in product(*(range(len(s)) for s in sizes)):
            keep = [spans(s)[i] for s, i in zip(sizes, index, strict=True)]
            window = self._layout.window(keep)
            self._check_size(window)
            arrays = [fixed[n] if n in fixed else self._gathered(n, window) for n in names]
            shape, kept = window.extents[::-1], _kept(window)
            job = Job(shape, kept, self._interpret, names, call.scalars)
            self._tasks[(self.name, *index[::-1])] = (run_block, kernel, job, *arrays)
        return self._tasks

    def _gathered(self, name: str, window: Window) -> Any:
        """The task or key that gives a block its part of a cut input."""
        array = self._call.cut[name]
        parts = [self._pieces((name, k), window.reads[name, k]) for k in range(array.ndim)][::-1]
        if all(len(p) == 1 for p in parts):
            return self._piece(name, [p[0] for p in parts])

        def nested(chosen: list[tuple[int, Span]]) -> Any:
            if len(chosen) == array.ndim:
                return self._piece(name, chosen)
            return [nested([*chosen, part]) for part in parts[len(chosen)]]

        return (join, nested([]))

    def _pieces(self, side: Side, span: Span) -> list[tuple[int, Span]]:
        found = self._found.get((side, span))
        if found is None:
            found = self._found[side, span] = pieces(self._chunks[side[0]][side[1]], span)
        return found

    def _piece(self, name: str, chosen: list[tuple[int, Span]]) -> Any:
        """The key of a part of one chunk, of which a task makes an array of its own."""
        array = self._call.cut[name]
        chunk = (array.name, *(i for i, _ in chosen))
        sizes = [s[i] for s, (i, _) in zip(array.chunks, chosen, strict=True)]
        if all(part == (0, n) for (_, part), n in zip(chosen, sizes, strict=True)):
            return chunk
        where = tuple(slice(*part) for _, part in chosen)
        key = (f"{name}-part-{self.name}", *chunk[1:], *(x for _, part in chosen for x in part))
        self._tasks[key] = (piece, chunk, where)
        return key

    def _check_size(self, window: Window) -> None:
        """A block has to be small enough for a kernel's indices."""
        for name in self._call.cut:
            dims = range(len(self._chunks[name]))
            elements = math.prod(window.reads[name, k][1] - window.reads[name, k][0] for k in dims)
            if elements >= _INDEX_LIMIT or math.prod(window.extents) >= _INDEX_LIMIT:
                raise ArgumentError(
                    f"a block of {self._call.output.name} reads {elements} elements of {name}",
                    why="indices are 32 bits wide: at most 2147483648 elements",
                    hint="ask for smaller ones: chunks=(2048, 2048)",
                )


def _kept(window: Window) -> tuple[slice, ...]:
    """What is kept of the outputs that a call computes, last axis innermost."""
    return tuple(
        slice(low - begin, high - begin)
        for begin, (low, high) in zip(window.begin, window.keep, strict=True)
    )[::-1]


def _is_dask(value: object) -> bool:
    return isinstance(value, da.Array)


def _checked_cut(buffer: BufferParam, array: Any) -> Size:
    """The size of a Dask array that is an input; ``ArgumentError`` if it does not fit."""
    if any(math.isnan(n) for n in array.shape):
        raise ArgumentError(
            f"{buffer.name}: the sizes of its chunks are not known",
            why=f"its shape is {array.shape}",
            hint=f"have them counted: {buffer.name}.compute_chunk_sizes()",
        )
    dtype = array.dtype.name if array.dtype.isnative else f"byte-swapped {array.dtype.name}"
    dense = _dense(array.shape)
    seen = ArrayView(Library.NUMPY, dtype, array.shape, dense.strides[::-1], 0, HOST)
    arguments.check_array(buffer, seen)
    return dense


def _dense(shape: tuple[int, ...]) -> Size:
    return Size(shape[::-1], dense_strides(shape)[::-1])


def _whole(buffer: BufferParam, array: Any) -> Size:
    """The size of an array that every block gets."""
    if is_torch(array):
        raise ArgumentError(
            f"{buffer.name}: a torch tensor does not go with Dask arrays",
            why="a block would be a tensor, which Dask does not know",
            hint="pass NumPy's or CuPy's: tensor.numpy(), cupy.asarray(tensor)",
        )
    seen = view(buffer.name, array)
    arguments.check_array(buffer, seen)
    return arguments.size_of(buffer, seen)
