"""Sums whose factors are read again: which ones blocks of threads compute, and that they are right
at sizes that no tile divides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED, Verified, text_of

import halide_bridge as hb
from selector.runtime import nvrtc

pytestmark = pytest.mark.verified

x, y, z, c = (hl.Var(name) for name in "xyzc")
F32 = hl.Float(32)


def image(name: str, dimensions: int, kind: Any = F32) -> Any:
    return hl.ImageParam(kind, dimensions, name)


def summed(variables: tuple[Any, ...], term: Any, of: Any = None) -> hl.Func:
    """``of`` the sum of a term, in the Func that reads it."""
    total, out = hl.Func("total"), hl.Func("out")
    total[variables] = hl.f32(0)
    total[variables] += term
    out[variables] = total[variables] if of is None else of(total[variables])
    return out


def product() -> hl.Func:
    a, b, bias = image("a", 2), image("b", 2), image("bias", 1)
    k = hl.RDom([(0, a.dim(0).extent())], "k")

    def end(total: Any) -> Any:
        return hl.max(total + bias[x], 0)

    return summed((x, y), a[k, y] * b[x, k], end)


def products_in_a_batch() -> hl.Func:
    a, b = image("a", 3), image("b", 3)
    k = hl.RDom([(0, a.dim(0).extent())], "k")
    return summed((x, y, z), a[k, y, z] * b[k, x, z])


def squared_distances() -> hl.Func:
    a, b = image("a", 2), image("b", 2)
    k = hl.RDom([(0, 24)], "k")
    return summed((x, y), (a[k, y] - b[k, x]) * (a[k, y] - b[k, x]))


def window(kind: Any = F32, taps: int = 7) -> hl.Func:
    a, b = image("a", 2, kind), image("b", 2)
    edge = hl.BoundaryConditions.repeat_edge(a)
    r = hl.RDom([(0, taps), (0, taps)], "r")
    return summed((x, y), hl.f32(edge[x + r.x - 3, y + r.y - 3]) * b[r.x, r.y])


def any_window() -> hl.Func:
    a, b = image("a", 2), image("b", 2)
    edge = hl.BoundaryConditions.repeat_edge(a)
    r = hl.RDom([(-3, b.width()), (-3, b.height())], "r")
    return summed((x, y), edge[x + r.x, y + r.y] * b[r.x + 3, r.y + 3])


def window_of_bytes() -> hl.Func:
    return window(hl.UInt(8))


def every_second_window() -> hl.Func:
    a, b = image("a", 2), image("b", 1)
    r = hl.RDom([(0, 24)], "r")
    return summed((x, y), a[2 * x + r, y] * b[r])


def filter_bank() -> hl.Func:
    a, b = image("a", 2), image("b", 2)
    k = hl.RDom([(0, b.dim(0).extent())], "k")
    return summed((x, y, z), a[x + k, z] * b[k, y])


def signal() -> hl.Func:
    a, b = image("a", 1), image("b", 1)
    r = hl.RDom([(0, 32)], "r")
    return summed((x,), a[x + r] * b[r])


def layer() -> hl.Func:
    a, b = image("a", 4), image("b", 4)
    r = hl.RDom([(0, 3), (0, 3), (0, b.dim(2).extent())], "r")
    return summed((x, y, c, z), a[x + r.x, y + r.y, r.z, z] * b[r.x, r.y, r.z, c])


def two_products() -> hl.Func:
    a, b = image("a", 2), image("b", 2)
    k, j = hl.RDom([(0, a.dim(0).extent())], "k"), hl.RDom([(0, b.dim(0).extent())], "j")
    first, total = hl.Func("first"), hl.Func("total")
    first[x, y] = hl.f32(0)
    first[x, y] += a[k, y] * b[x, k]
    total[x, y] = hl.f32(0)
    total[x, y] += first[j, y] * b[j, x]
    return total


def turned() -> hl.Func:
    a, b, out = image("a", 2), image("b", 2), hl.Func("out")
    k = hl.RDom([(0, 24)], "k")
    out[y, x] = 1 + hl.sum(b[x, k] * a[k, y])
    return out


def windows_of(a: Any, taps: tuple[int, ...]) -> Any:
    return np.lib.stride_tricks.sliding_window_view(a, taps, axis=tuple(range(-len(taps), 0)))


def of_window(a: Any, b: Any) -> Any:
    return np.einsum("yxij,ij->yx", windows_of(np.pad(a, 3, mode="edge"), (7, 7)), b)


def of_product(a: Any, b: Any, bias: Any) -> Any:
    return np.maximum(a @ b + bias, 0)


def of_two(a: Any, b: Any) -> Any:
    return a @ b @ b.T


def of_turned(a: Any, b: Any) -> Any:
    return (a @ b).T + 1


def of_batch(a: Any, b: Any) -> Any:
    return np.einsum("zyk,zxk->zyx", a, b)


def of_distances(a: Any, b: Any) -> Any:
    return ((a[:, None] - b[None]) ** 2).sum(-1)


def of_every_second(a: Any, b: Any) -> Any:
    return windows_of(a, (24,))[:, ::2] @ b


def of_bank(a: Any, b: Any) -> Any:
    return np.einsum("zxk,yk->zyx", windows_of(a, (31,)), b)


def of_signal(a: Any, b: Any) -> Any:
    return windows_of(a, (32,)) @ b


def of_layer(a: Any, b: Any) -> Any:
    return np.einsum("zkyxij,ckij->zcyx", windows_of(a, (3, 3)), b)


Made = Callable[[], hl.Func]
FIRES: dict[str, tuple[Made, dict[str, tuple[int, ...]], Callable[..., Any]]] = {
    "product": (product, {"a": (35, 50), "b": (50, 133), "bias": (133,)}, of_product),
    "product_of_tiles": (product, {"a": (67, 37), "b": (37, 391), "bias": (391,)}, of_product),
    "products_in_a_batch": (products_in_a_batch, {"a": (3, 5, 37), "b": (3, 9, 37)}, of_batch),
    "squared_distances": (squared_distances, {"a": (45, 24), "b": (10, 24)}, of_distances),
    "window": (window, {"a": (41, 133), "b": (7, 7)}, of_window),
    "window_of_bytes": (window_of_bytes, {"a": (5, 9), "b": (7, 7)}, of_window),
    "any_window": (any_window, {"a": (70, 40), "b": (7, 7)}, of_window),
    "every_second_window": (every_second_window, {"a": (9, 140), "b": (24,)}, of_every_second),
    "filter_bank": (filter_bank, {"a": (2, 300), "b": (6, 31)}, of_bank),
    "signal": (signal, {"a": (1100,), "b": (32,)}, of_signal),
    "layer": (layer, {"a": (2, 5, 9, 21), "b": (10, 5, 3, 3)}, of_layer),
    "two_products": (two_products, {"a": (13, 33), "b": (33, 50)}, of_two),
    "turned": (turned, {"a": (13, 24), "b": (24, 50)}, of_turned),
}


def inputs_of(name: str) -> dict[str, Any]:
    random, bytes_ = np.random.default_rng(4), name.endswith("bytes")
    return {
        n: random.integers(0, 256, shape).astype(np.uint8)
        if bytes_ and n == "a"
        else random.random(shape).astype(np.float32)
        for n, shape in FIRES[name][1].items()
    }


@EMULATED
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", FIRES)
def test_blocks_compute_what_is_read_again(name: str, target: str, verified: Verified) -> None:
    make, _, reference = FIRES[name]
    out, inputs = make(), inputs_of(name)
    schedule = hb.autoschedule(out, target=target)
    assert "sums each" in schedule.report
    assert "Register" in schedule.source
    kernel = hb.compile(out, target=target)
    assert re.search(r"  float (total|sum)(_\d+)?\[", kernel.source)  # in registers
    wanted = reference(**{n: a.astype(np.float64) for n, a in inputs.items()})
    found = kernel.interpret(**inputs, sizes=wanted.shape)
    assert np.allclose(found, wanted, rtol=1e-4), schedule.source
    if not verified(text_of(kernel), repr(wanted.shape)):
        emulated = check(kernel, **inputs, sizes=wanted.shape)
        assert np.allclose(emulated, wanted, rtol=1e-4), schedule.source


def each_row() -> hl.Func:
    a, b = image("a", 2), image("b", 1)
    k = hl.RDom([(0, a.dim(0).extent())], "k")
    return summed((x,), a[k, x] * b[k])


def three_neighbours() -> hl.Func:
    a, r = image("a", 2), hl.RDom([(0, 3)], "r")
    return summed((x, y), a[x + r, y])


def looked_up() -> hl.Func:
    a, b, at = image("a", 2), image("b", 2), image("at", 1, hl.Int(32))
    k = hl.RDom([(0, 32)], "k")
    return summed((x, y), a[k, y] * b[x, hl.clamp(at[k], 0, 31)])


def blocks_apart() -> hl.Func:
    a, r = image("a", 2), hl.RDom([(0, 4), (0, 4)], "r")
    return summed((x, y), a[4 * x + r.x, 4 * y + r.y])


def channels_side_by_side() -> hl.Func:
    a, b = image("a", 3), image("b", 2)
    r = hl.RDom([(0, 5), (0, 5)], "r")
    out = summed((c, x, y), a[c, x + r.x, y + r.y] * b[r.x, r.y])
    out.bound(c, 0, 3)
    return out


@pytest.mark.parametrize(
    "make",
    [
        each_row, three_neighbours, looked_up, blocks_apart, channels_side_by_side,
    ],
)  # fmt: skip
def test_what_is_read_once_or_nobody_knows_where_stays_as_it_was(
    make: Callable[[], hl.Func],
) -> None:
    out = make()
    assert "sums each" not in hb.autoschedule(out, target="sm_90a").report
    hb.compile(out, target="sm_90a")


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_steps_that_a_select_chooses(
    staged: bool, late: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    """Halide takes steps 5 to 24 for as many as there are, and 0 to 4 for more where they are read
    backwards: a block that staged as much as is read would stage too little.
    """
    a, b, r = image("a", 2), image("b", 1), hl.RDom([(0, 25)], "r")
    taps = b[r] if staged else b[24 - r]
    out = summed((x, y), hl.select(r >= 5 if late else r < 5, taps * a[x + r, y], 0))
    schedule = hb.autoschedule(out, target="sm_90a")
    assert ("sums each" in schedule.report) == (staged and not late)
    kernel = hb.compile(out, target="sm_90a")
    assert not any(capfd.readouterr())
    random = np.random.default_rng(5)
    pixels, weights = (random.random(n).astype(np.float32) for n in ((9, 150), 25))
    steps = np.arange(5, 25) if late else np.arange(5)
    wanted = sum(pixels[:, n : n + 126] * weights[n if staged else 24 - n] for n in steps)
    assert np.allclose(kernel.interpret(a=pixels, b=weights, sizes=(9, 126)), wanted, rtol=1e-5)


def rows_of_a_product(rows: int) -> hl.Func:
    a, b = image("a", 2), image("b", 2)
    k = hl.RDom([(0, a.dim(0).extent())], "k")
    k.where(y < rows)
    return summed((x, y), a[k, y] * b[k, x])


def below_the_diagonal() -> hl.Func:
    a, b, k = image("a", 2), image("b", 2), hl.RDom([(0, 24)], "k")
    return summed((x, y), hl.select(k < x + 3, a[k, y] * b[k, x], 0))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("sizes", [None, (5, 40)])
@pytest.mark.parametrize("name", ["some rows", "no more rows than there are", "triangle"])
def test_sums_of_some_terms_take_any_size(
    name: str, sizes: tuple[int, int] | None, target: str
) -> None:
    """Whatever is kept of them in a kernel has a size that no call can break."""
    rows = {"some rows": 3, "no more rows than there are": 9}.get(name)
    out = below_the_diagonal() if rows is None else rows_of_a_product(rows)
    hb.autoschedule(out, target=target, sizes=sizes)
    kernel = hb.compile(out, target=target)
    random = np.random.default_rng(7)
    a, b = (random.random((n, 24)).astype(np.float32) for n in (5, 40))
    mask = np.ones((5, 40, 24), bool)
    if rows is None:
        mask &= np.arange(24) < np.arange(40)[:, None] + 3
    else:
        mask &= np.arange(5)[:, None, None] < rows
    wanted = np.einsum("yk,xk,yxk->yx", a, b, mask)
    assert np.allclose(kernel.interpret(a=a, b=b, sizes=(5, 40)), wanted, rtol=1e-5)


def test_sizes_choose_the_tile() -> None:
    reports = set[str]()
    for rows in (64, 4096):
        sizes = {"out": (rows, 4096), "a": (rows, 512)}
        reports.add(hb.autoschedule(product(), target="sm_90a", sizes=sizes).report)
    assert len(reports) == 2


def chosen_terms(kind: Any) -> hl.Func:
    """Of rows that a condition on the row chooses, which no element decides."""
    a, b = image("a", 2, kind), image("b", 3, kind)
    r = hl.RDom([(0, 16), (0, 2)], "r")
    own, out = hl.cast(hl.Int(64), r.y) < hl.cast(hl.Int(64), y), hl.Func("out")
    total = hl.Func("total")
    total[x, y] = hl.cast(kind, 0)
    total[x, y] += hl.select(own, a[r.x, y + r.y] * b[x, r.x, r.y], hl.cast(kind, 0))
    out[x, y] = total[x, y]
    return out


def wide_product() -> hl.Func:
    a, b, k = image("a", 2, hl.Int(64)), image("b", 2, hl.Int(64)), hl.RDom([(0, 32)], "k")
    total, out = hl.Func("total"), hl.Func("out")
    total[x, y] = hl.i64(0)
    total[x, y] += a[k, y] * b[x, k]
    out[x, y] = total[x, y]
    return out


def angles() -> hl.Func:
    a, b, k = image("a", 2), image("b", 2), hl.RDom([(0, 32)], "k")
    return summed((x, y), hl.sin(a[k, y] * b[x, k]))


def whole_numbers() -> hl.Func:
    kind, k = hl.Int(32), hl.RDom([(0, 32)], "k")
    a, b, total, out = image("a", 2, kind), image("b", 2, kind), hl.Func("total"), hl.Func("out")
    total[x, y] += a[k, y] * b[x, k]
    out[x, y] = total[x, y]
    return out


def beside(edge: Callable[[Any], Any]) -> hl.Func:
    """What is made of a product and of an image that goes on beyond its edges."""
    a, b, k, image_ = image("a", 2), image("b", 2), hl.RDom([(0, 32)], "k"), image("image", 2)
    around = edge(image_)
    return summed((x, y), a[k, y] * b[x, k], lambda total: total - around[x + 3, y + 1])


@pytest.mark.parametrize(
    ("make", "sums"),
    [
        (product, "8 x 16"),
        (whole_numbers, "4 x 8"),
        (lambda: beside(hl.BoundaryConditions.repeat_edge), "4 x 16"),
        (lambda: beside(hl.BoundaryConditions.mirror_image), "4 x 4"),
        (squared_distances, "4 x 16"),
        (lambda: chosen_terms(F32), "4 x 8"),
        (lambda: chosen_terms(hl.Float(16)), "4 x 8"),
        (wide_product, "4 x 8"),
        (angles, "4 x 2"),
    ],
)
def test_costs_choose_the_tile(make: Callable[[], hl.Func], sums: str) -> None:
    assert f"{sums} sums each" in hb.autoschedule(make(), target="sm_90a").report


@pytest.mark.nvrtc
def test_wide_sums_stay_in_registers() -> None:
    out = wide_product()
    hb.autoschedule(out, target="sm_90a")
    kernel = hb.compile(out, target="sm_90a")
    (usage,) = nvrtc.resource_usage(kernel.cubin()).values()
    assert not usage.local_accesses
