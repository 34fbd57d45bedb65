"""Chains of products whose values stay in a warp's registers: an accumulator, rounded to 16 bits,
is an operand of the next product as it lies."""

from __future__ import annotations

import halide as hl
from corpus_case import Case, variables

import halide_bridge as hb

F16 = hl.Float(16)
SHARED, REGISTER = hl.MemoryType.GPUShared, hl.MemoryType.Register


def chain(
    side: str,
    memory: hl.MemoryType = REGISTER,
    warps: int = 1,
    across: bool = False,
    half: bool = False,
) -> hl.Func:
    """``kept = relu(A B)``, then ``kept W`` (side "a") or ``W kept'`` (side "b"): blocks of 32 x 32
    for each warp. ``across``: the transpose of what registers can hand on. ``half``: relu in f16.
    """
    n, m, no, mo, ni, mi, mw = variables("n m no mo ni mi mw")
    a, b, w = (hl.ImageParam(F16, 2, name) for name in "ABW")
    k, j = hl.RDom([(0, 48)], "k"), hl.RDom([(0, 32)], "j")
    first, kept, second, out = (hl.Func(name) for name in ("first", "kept", "second", "out"))
    first[n, m] = hl.f32(0.0)
    first[n, m] += hl.f32(a[k.x, m]) * hl.f32(b[n, k.x])
    t = F16 if half else hl.Float(32)
    value = hl.cast(t, first[n, m])
    kept[n, m] = hl.cast(F16, hl.max(value, hl.cast(t, 0.25)) * hl.cast(t, 0.5))
    second[n, m] = hl.f32(0.0)
    if side == "a":
        second[n, m] += hl.f32(kept[j.x, m]) * hl.f32(w[n, j.x])
    else:
        value = kept[n, j.x] if across else kept[j.x, n]
        second[n, m] += hl.f32(w[j.x, m]) * hl.f32(value)
    out[n, m] = second[n, m]
    out.bound(n if side == "a" else m, 0, 32)
    rows = 32 * warps if side == "a" else 32
    out.tile(n, m, no, mo, ni, mi, 32, rows).split(mi, mw, mi, 32).reorder(ni, mi, mw, no, mo)
    out.vectorize(ni).vectorize(mi).gpu_blocks(no, mo)
    if warps > 1:
        out.gpu_threads(mw)
    for f, r in ((first, k), (second, j)):
        f.compute_at(out, mw).bound_extent(n, 32).bound_extent(m, 32)
        f.vectorize(n).vectorize(m)
        f.update().reorder(r.x, n, m).atomic().vectorize(n).vectorize(m).vectorize(r.x)
        hb.store_in(f, hb.MemoryType.WMMAAccumulator)
    kept.compute_at(out, mw).store_in(memory).bound_extent(n, 32).bound_extent(m, 32)
    kept.vectorize(n).vectorize(m)
    return out


def _shapes(side: str, size: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    n, m = size
    rows = m if side == "a" else n
    return {"A": (48, rows), "B": (32, 48), "W": (32, 32)}


REGISTERS: list[Case] = [
    *(
        Case(
            f"pairs_{name}",
            lambda memory=memory: chain("a", memory, 2, half=True),
            ((32, 128), (32, 70)),
            True,
            shapes=lambda size: _shapes("a", size),
            tolerance=1e-3,
        )
        for name, memory in (("kept", REGISTER), ("staged", SHARED))
    ),
    *(
        Case(
            f"chain_in_registers_{side}_{warps}",
            lambda side=side, warps=warps: chain(side, REGISTER, warps),
            sizes,
            True,
            shapes=lambda size, side=side: _shapes(side, size),
            tolerance=1e-3,
        )
        for side, warps, sizes in (
            ("a", 1, ((32, 64), (32, 45))),
            ("a", 4, ((32, 256), (32, 200))),
            ("b", 1, ((64, 32), (45, 32))),
        )
    ),
]
