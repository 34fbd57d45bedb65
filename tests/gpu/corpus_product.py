"""Corpus: matrix products on tensor instructions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import halide as hl
from corpus_case import Case, Shape, variables

import halide_bridge as hb

SHARED = hl.MemoryType.GPUShared
F16, F32, BF16 = hl.Float(16), hl.Float(32), hl.BFloat(16)
S8, U8, S32 = hl.Int(8), hl.UInt(8), hl.Int(32)


@dataclass(frozen=True)
class Product:
    """``C[n, m] = sum A[k, m] * B[n, k]``; ``layout``: "nn", with "t" for an operand that is stored
    transposed. ``depth``: a constant k, or None for that of the input.
    """

    types: tuple[hl.Type, hl.Type] = (F16, F32)
    layout: str = "nn"
    depth: int | None = 64
    step: int = 32
    vector: tuple[int, int] = (16, 16)
    warps: tuple[int, int] = (2, 2)
    tiles: tuple[int, int] = (1, 2)
    stages: int = 1
    staged: bool = True
    epilogue: str = ""

    @property
    def warp(self) -> tuple[int, int]:
        return self.vector[0] * self.tiles[0], self.vector[1] * self.tiles[1]

    @property
    def block(self) -> tuple[int, int]:
        return self.warp[0] * self.warps[0], self.warp[1] * self.warps[1]


def product(p: Product) -> hl.Func:
    n, m, no, mo, ni, mi = variables("n m no mo ni mi")
    operand, accumulator = p.types
    a, b = hl.ImageParam(operand, 2, "A"), hl.ImageParam(operand, 2, "B")
    depth = a.dim(1 if p.layout[0] == "t" else 0).extent() if p.depth is None else p.depth
    k = hl.RDom([(0, depth)], "k")
    mm, out = hl.Func("mm"), hl.Func("C")
    left = a[m, k.x] if p.layout[0] == "t" else a[k.x, m]
    right = b[k.x, n] if p.layout[1] == "t" else b[n, k.x]
    mm[n, m] = hl.cast(accumulator, 0)
    mm[n, m] += hl.cast(accumulator, left) * hl.cast(accumulator, right)
    out[n, m] = _epilogue(p.epilogue, mm[n, m], n, m)

    out.tile(n, m, no, mo, ni, mi, *p.block).gpu_blocks(no, mo)
    _warps(out, ni, mi, p, None)
    ko, ki = hl.RVar("ko"), hl.RVar("ki")
    mm.bound_extent(n, p.block[0]).bound_extent(m, p.block[1]).compute_at(out, no)
    hb.store_in(mm, hb.MemoryType.WMMAAccumulator)
    _warps(mm, n, m, p, None)
    update = mm.update().split(k.x, ko, ki, p.step)
    order = _warps(update.atomic(), n, m, p, ki)
    update.reorder(ki, *order, ko)
    if p.staged:
        for source, turned, other in (
            (a, p.layout[0] == "t", p.block[1]),
            (b, p.layout[1] != "t", p.block[0]),
        ):
            copy = source.in_(mm)
            u, v = copy.args()
            extents = (other, p.step) if turned else (p.step, other)
            copy.compute_at(mm, ko).store_in(SHARED)
            copy.bound_extent(u, extents[0]).bound_extent(v, extents[1]).vectorize(u).vectorize(v)
            if p.stages > 1:
                hb.pipeline_stages(copy, p.stages)
    return out


def _epilogue(kind: str, value: hl.Expr, n: hl.Var, m: hl.Var) -> hl.Expr:
    bias, rest = hl.ImageParam(F32, 1, "bias"), hl.ImageParam(F16, 2, "rest")
    match kind:
        case "bias":
            return hl.max(value + bias[n], 0.0)
        case "rows":
            return value * bias[m]
        case "residual":
            return hl.cast(F16, value + hl.f32(rest[n, m]))
        case "triangle":
            return hl.select(n <= m, value, value * 0.5)
        case _:
            return value


def _warps(
    stage: hl.Func | hl.Stage, n: hl.Var, m: hl.Var, p: Product, k: hl.RVar | None
) -> tuple[hl.Var, ...]:
    nw, nu, nv, mw, mu, mv = variables("nw nu nv mw mu mv")
    stage.split(n, nw, nv, p.warp[0]).split(nv, nu, nv, p.vector[0])
    stage.split(m, mw, mv, p.warp[1]).split(mv, mu, mv, p.vector[1])
    order = (nv, mv, nu, mu, nw, mw)
    stage.reorder(*((k,) if k is not None else ()), *order)
    stage.vectorize(nv).vectorize(mv)
    if k is not None:
        stage.vectorize(k)
    stage.unroll(nu).unroll(mu).gpu_threads(nw, mw)
    return order


def batched() -> hl.Func:
    """One product per z, a grid of three dimensions."""
    n, m, z, no, mo, ni, mi = variables("n m z no mo ni mi")
    a, b = hl.ImageParam(F16, 3, "A"), hl.ImageParam(F16, 3, "B")
    k = hl.RDom([(0, 32)], "k")
    mm, out = hl.Func("mm"), hl.Func("C")
    mm[n, m, z] = hl.f32(0.0)
    mm[n, m, z] += hl.f32(a[k.x, m, z]) * hl.f32(b[n, k.x, z])
    out[n, m, z] = mm[n, m, z]
    out.tile(n, m, no, mo, ni, mi, 32, 32).vectorize(ni).vectorize(mi).gpu_blocks(no, mo, z)
    mm.compute_at(out, no).bound_extent(n, 32).bound_extent(m, 32).vectorize(n).vectorize(m)
    hb.store_in(mm, hb.MemoryType.WMMAAccumulator)
    mm.update().reorder(k.x, n, m).atomic().vectorize(n).vectorize(m).vectorize(k.x)
    return out


def chained() -> hl.Func:
    """Two products in one pipeline, the intermediate in global memory."""
    n, m = variables("n m")
    a, b, c = (hl.ImageParam(F16, 2, name) for name in "ABC")
    k, j = hl.RDom([(0, 32)], "k"), hl.RDom([(0, 48)], "j")
    first, kept, second, out = (hl.Func(name) for name in ("first", "kept", "second", "out"))
    first[n, m] = hl.f32(0.0)
    first[n, m] += hl.f32(a[k.x, m]) * hl.f32(b[n, k.x])
    kept[n, m] = hl.cast(F16, hl.max(first[n, m], 0.0))
    second[n, m] = hl.f32(0.0)
    second[n, m] += hl.f32(kept[j.x, m]) * hl.f32(c[n, j.x])
    out[n, m] = second[n, m]
    kept.compute_root()
    for f, product_, r in ((kept, first, k), (out, second, j)):
        no, mo, ni, mi = variables("no mo ni mi")
        f.tile(n, m, no, mo, ni, mi, 32, 32).vectorize(ni).vectorize(mi).gpu_blocks(no, mo)
        product_.compute_at(f, no).bound_extent(n, 32).bound_extent(m, 32)
        product_.vectorize(n, 32).vectorize(m, 32)
        hb.store_in(product_, hb.MemoryType.WMMAAccumulator)
        update = product_.update()
        update.reorder(r.x, n, m).atomic().vectorize(n, 32).vectorize(m, 32).vectorize(r.x)
    return out


def _shapes(p: Product, depth: int) -> Callable[[Shape], dict[str, Shape]]:
    def shapes(size: Shape) -> dict[str, Shape]:
        n, m = size
        return {
            "A": (m, depth) if p.layout[0] == "t" else (depth, m),
            "B": (depth, n) if p.layout[1] == "t" else (n, depth),
        }

    return shapes


SIZES = ((65, 67), (64, 128), (7, 5))


def _case(
    name: str,
    p: Product,
    depths: tuple[int, ...] = (),
    tolerance: float = 2e-6,
    only: tuple[str, ...] | None = None,
) -> list[Case]:
    """One case for a constant depth; one for each of ``depths`` if it is that of the input."""
    if p.depth is not None:
        return [Case(f"product_{name}", lambda: product(p), SIZES, True, only, tolerance=tolerance)]
    return [
        Case(
            f"product_{name}_{d}",
            lambda: product(p),
            SIZES,
            True,
            only,
            _shapes(p, d),
            tolerance=tolerance,
        )
        for d in depths
    ]


def _all() -> list[Case]:
    found: list[Case] = []
    for layout in ("nn", "tn", "nt", "tt"):
        for staged in (True, False):
            p = Product(layout=layout, staged=staged)
            found += _case(f"{layout}{'' if staged else '_direct'}", p)
    found += _case("depth", Product(depth=None), (1, 9, 32, 75, 96))
    found += _case("depth_tt", Product(depth=None, layout="tt"), (75,))
    found += _case("depth_direct", Product(depth=None, staged=False), (75,))
    for depth in (7, 8, 24, 33):
        found += _case(f"constant_{depth}", Product(depth=depth, step=depth, staged=False))
        found += _case(f"constant_{depth}_staged", Product(depth=depth, step=depth))
    for stages in (2, 3, 4):
        found += _case(f"stages_{stages}", Product(depth=None, stages=stages), (32, 75, 160))
        found += _case(
            f"stages_{stages}_tn", Product(depth=None, stages=stages, layout="tn"), (75,)
        )
    for name, types in (
        ("bf16", (BF16, F32)),
        ("s8", (S8, S32)),
        ("u8", (U8, S32)),
        ("half", (F16, F16)),
    ):
        exact = 0 if types[1] == S32 else 2e-6
        for layout in ("nn", "tn", "nt", "tt"):
            p = Product(types=types, layout=layout, step=64)
            found += _case(f"{name}_{layout}", p, tolerance=1e-2 if name == "half" else exact)
        p = Product(types=types, depth=None, stages=3, step=64)
        found += _case(f"{name}_stages", p, (64, 77, 200), 1e-2 if name == "half" else exact)
    for kind in ("bias", "rows", "residual", "triangle"):
        found += _case(
            kind,
            Product(epilogue=kind, stages=2, depth=None),
            (75,),
            1e-3 if kind == "residual" else 2e-6,
        )
    # 32 along the accumulator's fast axis and 8 along its slow one: no whole m16n8 tile as it lies.
    flat, deep = Product(vector=(32, 8)), Product(vector=(8, 32))
    found += _case("m8n32", flat, only=("wmma.mma.m8n32k16.f16.f32",))
    found += _case(
        "m8n32_direct",
        Product(vector=(32, 8), staged=False, depth=24, step=24),
        only=("wmma.mma.m8n32k16.f16.f32",),
    )
    found += _case(
        "m8n32_f16",
        Product(vector=(32, 8), types=(F16, F16)),
        tolerance=1e-2,
        only=("wmma.mma.m8n32k16.f16.f16",),
    )
    found += _case(
        "m8n32_s8",
        Product(vector=(32, 8), types=(S8, S32)),
        tolerance=0,
        only=("wmma.mma.m8n32k16.s8.s32",),
    )
    found += _case("m32n8", deep, only=("wmma.mma.m32n8k16.f16.f32",))
    found += _case("mma", Product(vector=(8, 16), tiles=(2, 1)), only=("mma",))
    found += _case(
        "big", Product(vector=(32, 16), tiles=(1, 4), stages=3, depth=None, step=64), (130,)
    )
    return found


PRODUCTS: list[Case] = [
    *_all(),
    Case("batched", batched, ((33, 35, 3), (64, 32, 2)), True, tolerance=2e-6),
    Case("chained", chained, ((33, 35), (64, 64)), True, tolerance=1e-3),
]
