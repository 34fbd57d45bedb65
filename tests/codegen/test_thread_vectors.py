"""Neighbours that a thread computes are loaded and stored as vectors where all are inside, and lane
by lane elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
from selector.gpu.codegen.program import emit_kernels
from selector.gpu.codegen.threads.lanes import LANE, goes_on
from selector.gpu.ir.memory import LoadVector, StoreVector
from selector.gpu.ir.nodes import walk
from selector.gpu.ir.text import parse_kernels, print_kernels
from selector.ir.nodes import Store
from selector.ir.parser import parse_expr
from selector.ir.traverse import substitute
from selector.ir.types import INT32
from selector.simulate import simulate
from selector.targets import find_target

pytestmark = pytest.mark.verified

x, y, xo, xi, xl = (hl.Var(name) for name in ("x", "y", "xo", "xi", "xl"))
U8, U16, F16, F32 = hl.UInt(8), hl.UInt(16), hl.Float(16), hl.Float(32)


def vectorized(out: hl.Func, lanes: int) -> hl.Func:
    """8 threads of a block side by side, which compute so many neighbours each."""
    out.split(x, xo, xi, 8 * lanes).split(xi, xi, xl, lanes).vectorize(xl)
    return out.gpu_blocks(xo, y).gpu_threads(xi)


def kernels_of(out: hl.Func) -> tuple[Any, Any]:
    kernel = hb.compile(out, target="sm_80")
    return emit_kernels(kernel.module, find_target("sm_80"))


def bytes_moved(out: hl.Func, lie: str = "") -> tuple[list[int], list[int]]:
    """Of vectors that are loaded where rows are aligned (or ``lie`` anywhere), and stored."""
    nodes = [n for kernel in kernels_of(out)[0] for n in walk(kernel.body)]
    loaded = [n.bytes for n in nodes if isinstance(n, LoadVector) and n.lie == lie]
    return loaded, [n.bytes for n in nodes if isinstance(n, StoreVector)]


def scaled() -> tuple[hl.Func, Callable[[Any], Any]]:
    a, out = hl.ImageParam(U8, 2, "a"), hl.Func("out")
    out[x, y] = hl.u8(hl.min(hl.u16(a[x, y]) * 2, 255))
    return vectorized(out, 16), lambda v: np.minimum(v.astype(int) * 2, 255)


def widened() -> tuple[hl.Func, Callable[[Any], Any]]:
    a, out = hl.ImageParam(U8, 2, "a"), hl.Func("out")
    out[x, y] = hl.f32(a[x, y]) / 2
    return vectorized(out, 4), lambda v: v / 2


def edges() -> tuple[hl.Func, Callable[[Any], Any]]:
    a, out = hl.ImageParam(U8, 2, "a"), hl.Func("out")
    at = hl.BoundaryConditions.repeat_edge(a)
    out[x, y] = hl.u16(at[x - 2, y]) + 3 * hl.u16(at[x + 1, y]) + at[x, y - 1]

    def truth(v: Any) -> Any:
        p = np.pad(v.astype(int), 2, mode="edge")
        return p[2:-2, :-4] + 3 * p[2:-2, 3:-1] + p[1:-3, 2:-2]

    return vectorized(out, 8), truth


def zeros() -> tuple[hl.Func, Callable[[Any], Any]]:
    a, out = hl.ImageParam(U8, 2, "a"), hl.Func("out")
    at = hl.BoundaryConditions.constant_exterior(a, 0)
    out[x, y] = at[x - 1, y] + at[x + 1, y] - at[x, y + 1]

    def truth(v: Any) -> Any:
        p = np.pad(v, 1)
        return p[1:-1, :-2] + p[1:-1, 2:] - p[2:, 1:-1]

    return vectorized(out, 8), truth


def halved() -> tuple[hl.Func, Callable[[Any], Any]]:
    a, out = hl.ImageParam(U8, 2, "a"), hl.Func("out")
    at = hl.BoundaryConditions.repeat_edge(a)
    out[x, y] = hl.u16(at[2 * x - 1, y]) + at[2 * x, y] + at[2 * x + 1, y]

    def truth(v: Any) -> Any:
        p = np.pad(v.astype(int), ((0, 0), (1, 2 * v.shape[1])), mode="edge")
        return sum(p[:, k : k + 2 * v.shape[1] : 2] for k in range(3))

    return vectorized(out, 8), truth


def around(boundary: Any, mode: Any) -> tuple[hl.Func, Callable[[Any], Any]]:
    a, out = hl.ImageParam(U8, 2, "a"), hl.Func("out")
    at = boundary(a)
    out[x, y] = hl.u16(at[x - 1, y]) + at[x + 1, y]

    def truth(v: Any) -> Any:
        p = np.pad(v.astype(int), ((0, 0), (1, 1)), mode=mode)
        return p[:, :-2] + p[:, 2:]

    return vectorized(out, 8), truth


def mirrored() -> tuple[hl.Func, Callable[[Any], Any]]:
    return around(hl.BoundaryConditions.mirror_image, "symmetric")


def reflected() -> tuple[hl.Func, Callable[[Any], Any]]:
    return around(hl.BoundaryConditions.mirror_interior, "reflect")


def repeated() -> tuple[hl.Func, Callable[[Any], Any]]:
    return around(hl.BoundaryConditions.repeat_image, "wrap")


def shifted() -> tuple[hl.Func, Callable[[Any], Any]]:
    a, out = hl.ImageParam(U8, 2, "a"), hl.Func("out")
    out[x, y] = hl.u8(hl.select(x + 3 < a.width(), a[hl.min(x + 3, a.width() - 1), y], 7))

    def truth(v: Any) -> Any:
        return np.pad(v[:, 3:], ((0, 0), (0, min(3, v.shape[1]))), constant_values=7)

    return vectorized(out, 4), truth


def two_ends() -> tuple[hl.Func, Callable[[Any], Any]]:
    """The same place, that two reads are kept from in two ways."""
    a, out = hl.ImageParam(U8, 2, "a"), hl.Func("out")
    near = hl.clamp(x, 0, hl.min(10, a.width() - 1))
    out[x, y] = hl.u16(a[near, y]) + a[hl.clamp(x, 0, a.width() - 1), y]

    def truth(v: Any) -> Any:
        return v.astype(int) + v[:, np.minimum(np.arange(v.shape[1]), 10)]

    return vectorized(out, 8), truth


def two_ends_beside() -> tuple[hl.Func, Callable[[Any], Any]]:
    """Elements beside a thread's own that come from two places."""
    a, out = hl.ImageParam(U8, 2, "a"), hl.Func("out")
    near = hl.clamp(x - 1, 3, hl.max(3, a.width() - 1))
    at = hl.BoundaryConditions.repeat_edge(a)
    out[x, y] = hl.u16(at[near, y]) + at[x - 2, y] + at[x, y]

    def truth(v: Any) -> Any:
        w = np.arange(v.shape[1])
        v = v.astype(int)
        last = v.shape[1] - 1
        return v[:, np.clip(np.maximum(w - 1, 3), 0, last)] + v[:, np.maximum(w - 2, 0)] + v

    return vectorized(out, 8), truth


def far_around() -> tuple[hl.Func, Callable[[Any], Any]]:
    """Two elements at each side, of which lanes say in different ways where they come from."""
    a, out = hl.ImageParam(U8, 2, "a"), hl.Func("out")
    at = hl.BoundaryConditions.mirror_image(a)
    out[x, y] = hl.u16(at[x - 2, y]) + at[x - 1, y] + at[x + 2, y]

    def truth(v: Any) -> Any:
        p = np.pad(v.astype(int), ((0, 0), (2, 2)), mode="symmetric")
        return p[:, :-4] + p[:, 1:-3] + p[:, 4:]

    return vectorized(out, 8), truth


MADE = [scaled, widened, edges, zeros, halved, mirrored, reflected, repeated, shifted, two_ends,
        two_ends_beside, far_around]  # fmt: skip


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("flags", [True, False])
def test_every_size_is_right(make: Callable[[], Any], flags: bool) -> None:
    out, truth = make()
    kernels, plan = kernels_of(out)
    for width in (1, 3, 16, 64, 67, 129, 200, 395):
        data = np.random.default_rng(width).integers(0, 255, (3, width)).astype(np.uint8)
        found = simulate(kernels, plan, {"a": data}, data.shape, flags=flags)
        assert found.faults == ()
        assert np.array_equal(found.outputs["out"], truth(data)), width


def test_a_window_is_loaded_once_and_the_widest_vectors_fit_the_lanes() -> None:
    # Rows that are aligned, and those that are not: of these, vectors that begin at multiples.
    assert bytes_moved(scaled()[0]) == ([16, 16], [16, 16])
    assert bytes_moved(widened()[0]) == ([4], [16, 16])
    assert bytes_moved(halved()[0]) == ([16], [16, 16])


def test_blocks_that_read_nothing_beyond_an_edge_have_loads_of_their_own() -> None:
    """First those of whole blocks, then of threads whose lanes are inside, and of other rows."""
    assert bytes_moved(edges()[0]) == ([8, 8, 8, 8], [16, 16, 16])
    assert bytes_moved(zeros()[0]) == ([8, 8, 8, 8], [8, 8, 8])
    for make in (mirrored, reflected, repeated):
        assert bytes_moved(make()[0]) == ([8, 8], [16, 16, 16])
    assert bytes_moved(shifted()[0]) == ([], [4, 4, 4])


def test_a_window_that_lies_anywhere_is_loaded_at_once() -> None:
    for make, wanted in {scaled: [16], widened: [4], edges: [11, 8], halved: [17]}.items():
        assert bytes_moved(make()[0], "anywhere")[0] == wanted


def test_rows_that_no_flag_speaks_of_are_vectors_where_these_begin_at_multiples() -> None:
    a, out = hl.ImageParam(F32, 1, "a"), hl.Func("out")
    out[x, y] = a[x + 3 * y]
    made = vectorized(out, 4)
    assert bytes_moved(made) == ([16], [16, 16])
    assert bytes_moved(made, "anywhere")[0] == [16]
    kernels, plan = kernels_of(made)
    for width in (4, 37, 64):
        data = np.random.default_rng(width).random(width + 6).astype(np.float32)
        found = simulate(kernels, plan, {"a": data}, (3, width))
        assert found.faults == ()
        assert np.array_equal(found.outputs["out"], [data[3 * k : 3 * k + width] for k in range(3)])


def read_at(*index: Any) -> tuple[list[int], list[int]]:
    """What moves where an array is read there."""
    a, out = hl.ImageParam(F32, 2, "a"), hl.Func("out")
    out[x, y] = a[index]
    return bytes_moved(vectorized(out, 4))


def test_strides_gathers_and_columns_are_read_lane_by_lane() -> None:
    table = hl.ImageParam(U8, 1, "table")
    for index in ((5 * x, y), (y, x), (hl.i32(table[x % 9]), y)):
        assert read_at(*index)[0] == []
    assert read_at(x, y) == ([16, 16], [16, 16])


def test_nodes_are_printed_and_parsed() -> None:
    kernels, _ = kernels_of(edges()[0])
    assert parse_kernels(print_kernels(kernels)) == kernels


def test_rows_that_are_not_aligned_are_stored_as_vectors_that_begin_later() -> None:
    source = hb.compile(scaled()[0], target="sm_80").source
    assert source.count(" load_anywhere<16>(") == 1
    total, out = hl.Func("total"), hl.Func("out")
    a = hl.ImageParam(F32, 2, "a")
    total[x, y] = hl.f32(0)
    total[x, y] += a[x, y + hl.RDom([(0, 3)])[0]]
    out[x, y] = total[x, y]
    vectorized(out, 4)
    total.compute_at(out, xi).vectorize(x).update().vectorize(x)
    assert "turn" not in hb.compile(out, target="sm_80").source  # sums of the thread's own


def test_what_vectors_that_begin_later_hold_is_of_the_place_not_of_the_thread() -> None:
    def whether(index: str, value: str) -> bool:
        named = {"l": LANE}
        parts = (substitute(parse_expr(text, {"a": INT32}), named) for text in (index, value))
        return goes_on(Store("out", *parts), "t", 16)

    for value in ("t*16 + l", "(t*16 + l)/8", "(t*16 + l) % 24", "a[t*16 + l - 1]"):
        assert whether("t*16 + l", value)
    for value in ("t", "l", "l % 8 + t", "a[t*17 + l]"):
        assert not whether("t*16 + l", value)
    assert not whether("t*8 + l", "1")


@pytest.mark.nvrtc
@pytest.mark.parametrize("make", [edges, halved])
def test_windows_are_in_registers(make: Callable[[], Any]) -> None:
    from selector.runtime.nvrtc import resource_usage

    used = resource_usage(hb.compile(make()[0], target="sm_80").cubin())
    assert not any(usage.local_accesses for usage in used.values())


def gray() -> hl.Func:
    a, out = hl.ImageParam(U8, 3, "a"), hl.Func("out")
    r, g, b = (hl.u16(a[c, x, y]) for c in range(3))
    out[x, y] = hl.u8((r + 2 * g + b) / 4)
    return vectorized(out, 16)


@pytest.mark.parametrize("flags", [True, False])
@pytest.mark.parametrize("channels", [3, 4])
def test_pixels_side_by_side_are_a_window(channels: int, flags: bool) -> None:
    assert bytes_moved(gray(), "anywhere")[0] == [48, 48]
    kernels, plan = kernels_of(gray())
    for width in (5, 64, 203):
        shape = (3, width, channels)
        data = np.random.default_rng(width).integers(0, 255, shape).astype(np.uint8)
        found = simulate(kernels, plan, {"a": data}, shape[:2], flags=flags)
        r, g, b = np.moveaxis(data.astype(int), 2, 0)[:3]
        assert found.faults == ()
        assert np.array_equal(found.outputs["out"], (r + 2 * g + b) // 4), width
