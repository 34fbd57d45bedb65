"""A kernel over a Dask array is the kernel over the whole image, bit by bit, or an error that says
why it cannot be: whatever the pipeline, the sizes and the chunks.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from dask_pipelines import ZOO, Zoo, kernel, random
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.diagnostics import ArgumentError

da = pytest.importorskip("dask.array")
from selector.dask import apply  # noqa: E402
from selector.dask.work import run_block  # noqa: E402


def inputs(case: Zoo, height: int, width: int, seed: int = 0) -> dict[str, np.ndarray]:
    """The image, and what goes with it."""
    shape = (*case.before, height, width, *case.after)
    arrays = {"I": random(shape, case.dtype, seed)}
    for name, other in case.others.items():
        arrays[name] = random(other or shape, case.dtype, seed + 1)
    return arrays


def sizes_of(case: Zoo, image: np.ndarray) -> Any:
    return image.shape if case.follows else None


def chunks_of(total: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Any way to cut an axis, single elements and whole axes among them."""
    cuts = st.sets(st.integers(1, max(total - 1, 1)), max_size=2)
    return cuts.map(lambda s: parts(total, sorted(s)))


def parts(total: int, ends: list[int]) -> tuple[int, ...]:
    bounds = [0, *(e for e in ends if e < total), total]
    return tuple(b - a for a, b in pairwise(bounds))


@pytest.mark.parametrize("name", ZOO)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_blocks_are_the_whole(name: str, data: st.DataObject) -> None:
    """The image cut along what can be cut, anyhow; the result cut otherwise, too."""
    case = ZOO[name]
    height, width = data.draw(st.integers(14, 45)), data.draw(st.integers(16, 60))
    if name == "product":
        width = 12
    arrays = inputs(case, height, width, data.draw(st.integers(0, 99)))
    expected = kernel(name).interpret(sizes=sizes_of(case, arrays["I"]), **arrays)
    cut = {n: data.draw(cutting(case, a.shape)) for n, a in arrays.items() if n in ("I", "J")}
    given = {n: da.from_array(a, chunks=cut[n]) if n in cut else a for n, a in arrays.items()}
    blocks = apply(kernel(name), interpret=True, sizes=sizes_of(case, arrays["I"]), **given)
    assert blocks.shape == expected.shape
    assert blocks.dtype == expected.dtype
    np.testing.assert_array_equal(blocks.compute(scheduler="sync"), expected, strict=True)
    wanted = tuple(
        data.draw(chunks_of(n)) if axis - len(case.before) in cuts(case) else (n,)
        for axis, n in enumerate(expected.shape)
    )
    recut = apply(
        kernel(name), interpret=True, chunks=wanted, sizes=sizes_of(case, arrays["I"]), **given
    )
    assert recut.chunks == wanted
    np.testing.assert_array_equal(recut.compute(scheduler="sync"), expected, strict=True)


def cuts(case: Zoo) -> tuple[int, ...]:
    """Axes that can be cut, counted from the height's."""
    return tuple(axis - len(case.before) for axis in case.cuts)


def cutting(case: Zoo, shape: tuple[int, ...]) -> st.SearchStrategy[tuple[tuple[int, ...], ...]]:
    """Chunks of the image: those axes are cut that move with an axis of the output."""
    free = [axis in case.cuts for axis in range(len(shape))]
    return st.tuples(
        *(chunks_of(n) if f else st.just((n,)) for n, f in zip(shape, free, strict=True))
    )


@pytest.mark.parametrize("name", [n for n, c in ZOO.items() if 1 not in c.cuts])
def test_what_cannot_be_cut_is_refused_with_the_reason(name: str) -> None:
    case = ZOO[name]
    arrays = inputs(case, 20, 12 if name == "product" else 30)
    arrays["I"] = da.from_array(arrays["I"], chunks=(20, 5))
    with pytest.raises(ArgumentError) as caught:
        apply(kernel(name), interpret=True, sizes=sizes_of(case, arrays["I"]), **arrays)
    assert "I: axis 1 has" in caught.value.what
    assert REASONS[name] in caught.value.why
    assert caught.value.hint == "make it one: I.rechunk({1: -1})"
    arrays["I"] = arrays["I"].rechunk({1: -1})
    with pytest.raises(ArgumentError, match="axis 1 of output cannot be cut") as caught:
        apply(
            kernel(name),
            interpret=True,
            chunks=(-1, 3),
            sizes=sizes_of(case, arrays["I"]),
            **arrays,
        )
    assert REASONS[name] in caught.value.why


_EXTENT = "the extent of `I` decides what is computed, and not only at the image's edges"
REASONS = {
    "repeat image": _EXTENT,
    "mirror image": _EXTENT,
    "position": "the values depend on where in the whole image they are",
    "flip": _EXTENT,
    "middle": _EXTENT,
    "table": "`K` is read at the place of the output, and is not cut with it",
    "column sum": "it needs all of `I` along an axis",
    "recursion": _EXTENT,
    "product": "`K` is read at the place of the output, and is not cut with it",
}


@pytest.mark.parametrize(
    ("name", "cut", "expected"),
    [
        ("blur", ((10, 10, 4), (7, 1, 22)), ((10, 9), (7, 1, 20))),
        ("reduce by three", ((10, 10, 4), (9, 9, 12)), ((5, 5, 2), (3, 3, 3))),
        ("enlarge by three", ((10, 10, 4), (9, 9, 12)), ((20, 20, 6), (27, 27, 33))),
        ("transpose", ((10, 10, 4), (7, 1, 22)), ((7, 1, 22), (10, 10, 3))),
        ("repeat edge", ((24,), (1,) * 30), ((24,), (1,) * 30)),
    ],
)
def test_chunks_follow_the_images(name: str, cut: Any, expected: Any) -> None:
    arrays = inputs(ZOO[name], 24, 30)
    image = da.from_array(arrays["I"], chunks=cut)
    assert apply(kernel(name), image, sizes=sizes_of(ZOO[name], image), interpret=True).chunks == (
        expected
    )


def test_a_call_by_position_and_dasks_ways_to_say_chunks() -> None:
    arrays = inputs(ZOO["tensor"], 9, 300)
    image = da.from_array(arrays["I"], chunks=(4, 100))
    expected = kernel("tensor").interpret(**arrays)
    for chunks in (None, 64, (-1, 100), {1: 50}, "auto", ((9,), (285,))):
        made = apply(kernel("tensor"), image, arrays["K"], chunks=chunks, interpret=True)
        np.testing.assert_array_equal(made.compute(scheduler="sync"), expected)


def test_the_graph_is_the_same_for_the_same_call_and_another_for_another() -> None:
    arrays = inputs(ZOO["tensor"], 9, 300)
    image = da.from_array(arrays["I"], chunks=(4, 100))
    first, again = (apply(kernel("tensor"), image, arrays["K"], interpret=True) for _ in range(2))
    other = apply(kernel("tensor"), image, arrays["K"] + 1, interpret=True)
    assert first.name == again.name != other.name


def test_no_block_is_given_more_than_its_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are made once each, and a block sees its part with its halo, and no more."""
    made: list[int] = []
    given: list[int] = []

    def watched(chunk: np.ndarray) -> np.ndarray:
        made.append(chunk.size)
        return chunk

    def run(parcel: Any, job: Any, *arrays: np.ndarray) -> Any:
        given.extend(a.size for a in arrays)
        return run_block(parcel, job, *arrays)

    monkeypatch.setattr("selector.dask.call.run_block", run)
    image = da.zeros((400, 4000), dtype="float32", chunks=(100, 500))
    image = image.map_blocks(watched, dtype="float32", meta=np.empty((0, 0), "float32"))
    result = apply(kernel("blur"), image, interpret=True)
    assert float(result.sum().compute(scheduler="sync")) == 0.0
    assert len(made) == len(given) == 32
    assert max(given) <= (100 + 4 + 5) * (500 + 8 + 2)


def test_an_image_too_large_for_an_index_is_cut_into_blocks_that_are_not() -> None:
    image = da.zeros((70_000, 70_000), dtype="float32", chunks=(2000, 2000))
    result = apply(kernel("blur"), image, interpret=True)
    assert result.shape == (69_995, 69_998)
    corner = result[-3:, -5:].compute(scheduler="sync")
    np.testing.assert_array_equal(corner, np.zeros((3, 5), np.float32))
