"""Variants as Halide pipelines: products, phases, planes, small transforms, sparsity, channels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import halide as hl
import numpy as np
from corpus_case import Shape, variables
from halide_variants import (
    MEMORY,
    ODD,
    TYPES,
    Arrays,
    Pipeline,
    Row,
    correlate,
    inputs,
    on_blocks,
    row,
    wide,
)
from machines import Array, Machine

import halide_bridge as hb

SHARED = hl.MemoryType.GPUShared

# ---------------------------------------------------------------------- products


@dataclass(frozen=True)
class Product:
    """C(n, m) = sum_k A * B in tiles of ``n`` x ``m``, ``step`` terms a statement."""

    n: int = 16
    m: int = 16
    depth: int = 32
    step: int = 0
    layout: str = "nn"
    tiles: int = 1
    order: str = "knm"  # what is vectorized, the innermost first
    left: Callable[[hl.ImageParam, hl.Expr, hl.Var], hl.Expr] = lambda a, k, m: a[k, m]
    right: Callable[[hl.ImageParam, hl.Expr, hl.Var], hl.Expr] = lambda b, k, n: b[n, k]
    combine: Callable[[hl.Expr, hl.Expr], hl.Expr] = lambda a, b: a * b
    where: Callable[[hl.Expr, hl.Expr], hl.Expr] = lambda v, k: v
    read: Callable[[hl.Expr, Machine], hl.Expr] = lambda v, m: v
    transposed: bool = False
    staged: bool = False
    tail: hl.TailStrategy = hl.TailStrategy.Auto


def product(p: Product) -> Callable[[Machine], hl.Func]:
    def build(machine: Machine) -> hl.Func:
        n, m, no, mo, ni, mi = variables("n m no mo ni mi")
        a, b = inputs(machine, ("A", 2), ("B", 2))
        k = hl.RDom([(0, p.depth)], "k")
        mm, out = hl.Func("mm"), hl.Func("out")
        left = a[m, k.x] if p.layout[0] == "t" else p.left(a, k.x, m)
        right = b[k.x, n] if p.layout[1] == "t" else p.right(b, k.x, n)
        mm[n, m] = wide(machine, 0)
        mm[n, m] += p.where(p.combine(wide(machine, left), wide(machine, right)), k.x)
        if p.transposed:
            out[m, n] = p.read(mm[n, m], machine)
        else:
            out[n, m] = p.read(mm[n, m], machine)
        out.tile(n, m, no, mo, ni, mi, p.n * p.tiles, p.m, p.tail)
        _tile(out, ni, mi, p)
        on_blocks(machine, out, no, mo)
        mm.compute_at(out, no).bound_extent(n, p.n * p.tiles).bound_extent(m, p.m)
        _tile(mm, n, m, p)
        _update(mm, n, m, k, p)
        if p.staged:
            for source in (a, b):
                copy = source.in_(mm)
                copy.compute_at(out, no)
                if machine.name == "wmma":
                    copy.store_in(SHARED)
        hb.store_in(mm, MEMORY[machine.name])
        return out

    return build


def _tile(stage: hl.Func, n: hl.Var, m: hl.Var, p: Product) -> None:
    if p.tiles > 1:
        nu, nv = variables("nu nv")
        stage.split(n, nu, nv, p.n).reorder(nv, m, nu).vectorize(nv).vectorize(m).unroll(nu)
    else:
        stage.vectorize(n).vectorize(m)


def _update(mm: hl.Func, n: hl.Var, m: hl.Var, k: hl.RDom, p: Product) -> None:
    update = mm.update()
    outer: list[hl.Var | hl.RVar] = []
    inner, nv = k.x, n
    if p.step:
        ko, inner = hl.RVar("ko"), hl.RVar("ki")
        update.split(k.x, ko, inner, p.step)
        outer.append(ko)
    if p.tiles > 1:
        nu, nv = variables("nu nv")
        update.split(n, nu, nv, p.n).unroll(nu)
        outer.insert(0, nu)
    named = {"k": inner, "n": nv, "m": m}
    update.reorder(inner, nv, m, *outer).atomic()
    for axis in p.order:
        update.vectorize(named[axis])


def multiplied(p: Product, scale: float = 1) -> Callable[[Arrays, Shape], Array]:
    def compute(x: Arrays, size: Shape) -> Array:
        a = x["A"].T if p.layout[0] == "t" else x["A"]
        b = x["B"].T if p.layout[1] == "t" else x["B"]
        c = scale * (a[:, : p.depth] @ b[: p.depth])
        return c.T if p.transposed else c

    return compute


def products() -> Iterator[Pipeline]:
    def made(name: str, p: Product, size: Shape = (40, 37), scale: float = 1) -> Pipeline:
        def shapes(extent: Shape) -> dict[str, Shape]:
            n, m = reversed(extent) if p.transposed else extent
            a, b = (p.depth, m), (n, p.depth)
            return {
                "A": a[::-1] if p.layout[0] == "t" else a,
                "B": b[::-1] if p.layout[1] == "t" else b,
            }

        return Pipeline(
            f"product, {name}", product(p), size, multiplied(p, scale), shapes,
            statements=p.tiles,
        )  # fmt: skip

    p = Product()
    for layout in ("nn", "nt", "tn", "tt"):
        yield made(f"layout {layout}", replace(p, layout=layout))
        yield made(f"layout {layout}, in steps", replace(p, layout=layout, depth=48, step=16))
    for order in ("knm", "nkm", "mnk", "nmk"):
        yield made(f"vectorized {order}", replace(p, order=order))
    yield made("B * A", replace(p, combine=lambda a, b: b * a))
    yield made("32 x 8 tiles", replace(p, n=8, m=32))
    yield made("8 x 32 tiles", replace(p, n=32, m=8))
    yield made("48 x 32 tiles", replace(p, n=32, m=48, depth=16))
    yield made("two tiles", replace(p, tiles=2))
    yield made("staged", replace(p, staged=True))
    yield made("result transposed", replace(p, transposed=True))
    yield made("depth 7", replace(p, depth=7))
    yield made("uneven steps", replace(p, depth=40, step=16))
    yield made("k through div and mod",
               replace(p, left=lambda a, k, m: a[4 * (k / 4) + k % 4, m]), (32, 32))  # fmt: skip
    yield made("columns through div and mod",
               replace(p, right=lambda b, k, n: b[8 * (n / 8) + n % 8, k]), (32, 32))  # fmt: skip
    yield made("indices with offsets", replace(p, left=lambda a, k, m: a[(k + 3) - 3, m - 1 + 1]))
    yield made("a factor", replace(p, combine=lambda a, b: (3 * a) * b), scale=3)
    yield made("a factor when read", replace(p, read=lambda v, m: v * 3), scale=3)
    for tail in ("GuardWithIf", "ShiftInwards", "PredicateStores"):
        yield made(f"tail {tail}", replace(p, tail=getattr(hl.TailStrategy, tail)))


# ---------------------------------------------------------------------- phases


def upsampled(s: int, taps: int, form: str, lanes: int) -> Callable[[Machine], hl.Func]:
    """O(x) = sum_r I(x/s + r) * K(s*r + x%s), with the phase as it is or as a dimension."""

    def build(m: Machine) -> hl.Func:
        x, y, p, xo, xi = variables("x y p xo xi")
        image, weights = inputs(m, ("I", 2), ("K", 1))
        t = hl.RDom([(0, taps)], "t")
        conv, out = hl.Func("conv"), hl.Func("out")
        if form == "div and mod":
            conv[x, y] = wide(m, 0)
            conv[x, y] += wide(m, image[x / s + t.x, y]) * wide(m, weights[s * t.x + x % s])
            out[x, y] = conv[x, y]
            return row(m, out, conv, t, x, y, Row(lanes, hl.TailStrategy.GuardWithIf))
        conv[p, x, y] = wide(m, 0)
        conv[p, x, y] += wide(m, image[x + t.x, y]) * wide(m, weights[s * t.x + p])
        if form == "phases":
            out[p, x, y] = conv[p, x, y]
            out.bound(p, 0, s).split(x, xo, xi, lanes // s, hl.TailStrategy.GuardWithIf)
            out.reorder(p, xi, xo, y).vectorize(p).vectorize(xi)
            on_blocks(m, out, xo, y)
        else:  # interleaved by the consumer
            out[x, y] = conv[x % s, x / s, y]
            out.split(x, xo, xi, lanes, hl.TailStrategy.GuardWithIf).vectorize(xi)
            on_blocks(m, out, xo, y)
        conv.compute_at(out, xo).bound_extent(x, lanes // s).bound(p, 0, s)
        conv.vectorize(p).vectorize(x)
        conv.update().reorder(t.x, p, x).atomic().vectorize(t.x).vectorize(p).vectorize(x)
        hb.store_in(conv, MEMORY[m.name])
        return out

    return build


def interleaved(s: int, taps: int, x: Arrays, width: int) -> Array:
    """Upsampled rows: output x uses taps s*r + x % s."""
    outputs = -(-width // s)
    phases = [
        sum(x["K"][s * r + p] * x["I"][:, r : r + outputs] for r in range(taps)) for p in range(s)
    ]
    return np.stack(phases, -1).reshape(x["I"].shape[0], -1)[:, :width]


def phases() -> Iterator[Pipeline]:
    for s, taps in ((2, 8), (2, 3), (3, 5), (4, 4), (5, 3), (6, 2), (8, 2)):
        lanes = 256 if s in (2, 4, 8) else 128 * s
        for form in ("div and mod", "phases", "interleaved"):
            if form == "phases":
                size: Shape = (s, 200, 3)
            else:
                size = (lanes + 64 * s, 3)

            def compute(x: Arrays, z: Shape, s: int = s, taps: int = taps) -> Array:
                if len(z) == 3:
                    return interleaved(s, taps, x, s * z[1]).reshape(z[2], z[1], s)
                return interleaved(s, taps, x, z[0])[: z[1]]

            def shapes(z: Shape, s: int = s, taps: int = taps) -> dict[str, Shape]:
                outputs = z[1] if len(z) == 3 else -(-z[0] // s)
                return {"I": (outputs + taps - 1, z[-1]), "K": (s * taps,)}

            yield Pipeline(
                f"upsampling by {s}, {taps} taps, {form}", upsampled(s, taps, form, lanes), size,
                compute, shapes,
            )  # fmt: skip


# ---------------------------------------------------------------------- planes


def plane(
    taps: tuple[int, int], rows: str, stride: int = 1, order: str = "xyn"
) -> Callable[[Machine], hl.Func]:
    """A 2-D filter; the rows of taps are "serial", "unrolled" or "vectorized"."""

    def build(m: Machine) -> hl.Func:
        x, y, xo, xi = variables("x y xo xi")
        image, weights = inputs(m, ("I", 2), ("K", 2))
        t = hl.RDom([(0, taps[0]), (0, taps[1])], "t")
        conv, out = hl.Func("conv"), hl.Func("out")
        conv[x, y] = wide(m, 0)
        window = image[stride * x + t.x, stride * y + t.y]
        conv[x, y] += wide(m, window) * wide(m, weights[t.x, t.y])
        out[x, y] = conv[x, y]
        out.split(x, xo, xi, 256).vectorize(xi)
        on_blocks(m, out, xo, y)
        conv.compute_at(out, xo).bound_extent(x, 256).vectorize(x)
        update = conv.update()
        if rows == "vectorized":
            named = {"x": t.x, "y": t.y, "n": x}
            update.reorder(*(named[c] for c in order)).atomic()
            for c in order:
                update.vectorize(named[c])
        else:
            update.reorder(t.x, x, t.y).atomic().vectorize(t.x).vectorize(x)
            if rows == "unrolled":
                update.unroll(t.y)
        hb.store_in(conv, MEMORY[m.name])
        return out

    return build


def planes() -> Iterator[Pipeline]:
    def compute(stride: int) -> Callable[[Arrays, Shape], Array]:
        def f(x: Arrays, size: Shape) -> Array:
            return sum(
                correlate(x["I"][s:][::stride][: size[1]], taps, size[0], stride)
                for s, taps in enumerate(x["K"])
            )  # type: ignore[return-value]

        return f

    def shapes(taps: tuple[int, int], stride: int) -> Callable[[Shape], dict[str, Shape]]:
        return lambda size: {
            "I": (stride * (size[0] - 1) + taps[0], stride * (size[1] - 1) + taps[1]), "K": taps,
        }  # fmt: skip

    for name, taps, rows, stride, order, count in (
        ("rows serial", (5, 3), "serial", 1, "", 1),
        ("rows unrolled", (5, 3), "unrolled", 1, "", 3),
        ("both vectorized", (5, 3), "vectorized", 1, "xyn", 3),
        ("both vectorized, rows inside", (5, 3), "vectorized", 1, "yxn", 3),
        ("both vectorized, outputs inside", (4, 2), "vectorized", 1, "nxy", 2),
        ("downsampling by 2", (6, 2), "serial", 2, "", 1),
        ("downsampling by 3, both vectorized", (5, 2), "vectorized", 3, "xyn", 2),
    ):
        yield Pipeline(
            f"plane, {name}", plane(taps, rows, stride, order), ODD, compute(stride),
            shapes(taps, stride), statements=count,
            why="its loops hold no reduction" if order.startswith("n") else "",
        )  # fmt: skip


# ---------------------------------------------------------------------- everything else


def transform(where: str) -> Callable[[Machine], hl.Func]:
    """A constant matrix times the columns (or rows) of each 16 x 16 block of an image."""

    def build(m: Machine) -> hl.Func:
        i, j, bx, by = variables("i j bx by")
        image = hl.ImageParam(TYPES[m.a_type], 2, "I")
        matrix = hl.ImageParam(TYPES[m.b_type], 2, "D")
        k = hl.RDom([(0, 16)], "k")
        f, out = hl.Func("f"), hl.Func("out")
        pixel = {
            "left": image[16 * bx + i, 16 * by + k.x],
            "left, transposed": image[16 * bx + i, 16 * by + k.x],
            "right": image[16 * bx + k.x, 16 * by + j],
            "right, transposed": image[16 * bx + k.x, 16 * by + j],
            "of the transposed block": image[16 * bx + j, 16 * by + k.x],
        }[where]
        entry = {
            "left": matrix[k.x, j], "left, transposed": matrix[j, k.x],
            "right": matrix[i, k.x], "right, transposed": matrix[k.x, i],
            "of the transposed block": matrix[i, k.x],
        }[where]  # fmt: skip
        f[i, j, bx, by] = wide(m, 0)
        f[i, j, bx, by] += wide(m, pixel) * wide(m, entry)
        out[i, j, bx, by] = f[i, j, bx, by]
        out.bound(i, 0, 16).bound(j, 0, 16).vectorize(i).vectorize(j)
        on_blocks(m, out, bx, by)
        f.compute_at(out, bx).bound_extent(i, 16).bound_extent(j, 16).vectorize(i).vectorize(j)
        f.update().reorder(k.x, i, j).atomic().vectorize(k.x).vectorize(i).vectorize(j)
        hb.store_in(f, MEMORY[m.name])
        return out

    return build


def transforms() -> Iterator[Pipeline]:
    meanings: dict[str, Callable[[Array, Array], Array]] = {
        "left": lambda d, b: d @ b,
        "left, transposed": lambda d, b: d.T @ b,
        "right": lambda d, b: b @ d,
        "right, transposed": lambda d, b: b @ d.T,
        "of the transposed block": lambda d, b: b.T @ d,
    }
    for where, meaning in meanings.items():

        def compute(
            x: Arrays, size: Shape, meaning: Callable[[Array, Array], Array] = meaning
        ) -> Array:
            blocks = x["I"].reshape(size[3], 16, size[2], 16).swapaxes(1, 2)
            return np.stack([[meaning(x["D"], b) for b in line] for line in blocks])

        yield Pipeline(
            f"transform, matrix {where}", transform(where), (16, 16, 3, 2), compute,
            lambda size: {"I": (16 * size[2], 16 * size[3]), "D": (16, 16)},
        )  # fmt: skip


def resampled(start: str) -> Callable[[Machine], hl.Func]:
    """Groups of 16 output rows share where their 32 input rows start: a loaded number, or affine
    in the group."""

    def build(m: Machine) -> hl.Func:
        x, i, g, xo, xi = variables("x i g xo xi")
        image, weights = inputs(m, ("I", 2), ("W", 3))
        first = hl.ImageParam(hl.Int(32), 1, "start")
        k = hl.RDom([(0, 32)], "k")
        f, out = hl.Func("f"), hl.Func("out")
        top = hl.clamp(first[g], 0, 64) if start == "loaded" else 11 * g + 3
        f[x, i, g] = wide(m, 0)
        f[x, i, g] += wide(m, weights[k.x, i, g]) * wide(m, image[x, top + k.x])
        out[x, i, g] = f[x, i, g]
        out.bound(i, 0, 16).split(x, xo, xi, 16).reorder(xi, i, xo, g).vectorize(xi).vectorize(i)
        on_blocks(m, out, xo, g)
        f.compute_at(out, xo).bound_extent(x, 16).bound_extent(i, 16).vectorize(x).vectorize(i)
        f.update().reorder(k.x, x, i).atomic().vectorize(k.x).vectorize(x).vectorize(i)
        hb.store_in(f, MEMORY[m.name])
        return out

    return build


def two_filters(shared: str) -> Callable[[Machine], hl.Func]:
    """Two accumulators in one kernel, with the same taps or over the same image."""

    def build(m: Machine) -> hl.Func:
        x, y = variables("x y")
        image, weights = inputs(m, ("I", 2), ("K", 1))
        other = hl.ImageParam(TYPES[m.a_type], 2, "J")
        second = hl.ImageParam(TYPES[m.b_type], 1, "L")
        t = hl.RDom([(0, 9)], "t")
        one, two, out = hl.Func("one"), hl.Func("two"), hl.Func("out")
        one[x, y] = wide(m, 0)
        one[x, y] += wide(m, image[x + t.x, y]) * wide(m, weights[t.x])
        source, taps = (other, weights) if shared == "taps" else (image, second)
        two[x, y] = wide(m, 0)
        two[x, y] += wide(m, source[x + t.x, y]) * wide(m, taps[t.x])
        out[x, y] = one[x, y] - 2 * two[x, y]
        row(m, out, one, t, x, y)
        two.bound_extent(x, 256).compute_at(out, hl.Var("xo")).vectorize(x)
        two.update().reorder(t.x, x).atomic().vectorize(t.x).vectorize(x)
        hb.store_in(two, MEMORY[m.name])
        return out

    return build


def channels(form: str) -> Callable[[Machine], hl.Func]:
    """Interleaved channels: all of them in the tile, or one at a time."""

    def build(m: Machine) -> hl.Func:
        c, x, y, xo, xi = variables("c x y xo xi")
        count = 16 if form == "16 in the tile" else 4
        image = hl.ImageParam(TYPES[m.a_type], 3, "I")
        weights = hl.ImageParam(TYPES[m.b_type], 1, "K")
        image.dim(0).set_bounds(0, count)
        image.dim(1).set_stride(count)
        t = hl.RDom([(0, 5)], "t")
        conv, out = hl.Func("conv"), hl.Func("out")
        conv[c, x, y] = wide(m, 0)
        conv[c, x, y] += wide(m, image[c, x + t.x, y]) * wide(m, weights[t.x])
        out[c, x, y] = conv[c, x, y]
        out.bound(c, 0, count)
        width = 256 if form == "one at a time" else 256 // count
        out.split(x, xo, xi, width)
        if form == "one at a time":
            conv.reorder_storage(x, c, y)
            out.reorder(xi, c, xo, y).vectorize(xi)
            on_blocks(m, out, c, xo, y)
            conv.compute_at(out, c).bound_extent(x, width).vectorize(x)
            conv.update().reorder(t.x, x, c).atomic().vectorize(t.x).vectorize(x)
        else:
            out.reorder(c, xi, xo, y).vectorize(c).vectorize(xi)
            on_blocks(m, out, xo, y)
            conv.compute_at(out, xo).bound_extent(x, width).bound_extent(c, count)
            conv.vectorize(c).vectorize(x)
            conv.update().reorder(t.x, c, x).atomic().vectorize(t.x).vectorize(c).vectorize(x)
        hb.store_in(conv, MEMORY[m.name])
        return out

    return build


def others() -> Iterator[Pipeline]:
    def sparse(x: Arrays, size: Shape) -> Array:
        starts = (
            np.clip(x["start"].astype(int), 0, 64) if "start" in x else 11 * np.arange(size[2]) + 3
        )
        return np.stack(
            [w @ x["I"][s : s + 32, : size[0]] for w, s in zip(x["W"], starts, strict=True)]
        )

    for start in ("loaded", "affine"):
        yield Pipeline(
            f"block-sparse, start {start}", resampled(start), (37, 16, 5), sparse,
            lambda size: {"I": (size[0], 100), "W": (32, 16, size[2]), "start": (size[2],)},
            values={"start": (0, 60)},
        )  # fmt: skip

    def both(x: Arrays, size: Shape) -> Array:
        one = correlate(x["I"], x["K"], size[0])
        two = correlate(x.get("J", x["I"]), x.get("L", x["K"]), size[0])
        return one - 2 * two

    for shared in ("taps", "image"):
        yield Pipeline(f"two filters, same {shared}", two_filters(shared), ODD, both, statements=2)

    def by_channel(x: Arrays, size: Shape) -> Array:
        return sum(x["K"][r] * x["I"][:, r : r + size[1], :] for r in range(5))  # type: ignore[return-value]

    for form, count in (("one at a time", 4), ("4 in the tile", 4), ("16 in the tile", 16)):
        yield Pipeline(
            f"channels, {form}", channels(form), (count, 70, 2), by_channel,
            lambda size: {"I": (size[0], size[1] + 4, size[2]), "K": (5,)},
        )  # fmt: skip


GROUPS = (products, phases, planes, transforms, others)
