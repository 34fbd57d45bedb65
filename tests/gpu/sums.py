"""Sums of products in other words (``tests/schedules/plain_sums.py``) beside what a library has for
them: products as the compiler schedules them, filters by hand in a few lines.

    python tests/gpu/sums.py build FOLDER        needs Halide, no GPU
    python tests/gpu/sums.py run FOLDER [--results sums.json]      needs CuPy and torch

A filter's schedule is that of the tutorial's second step: a warp has 256 outputs of a row, and
reads what it needs where it lies. On the GPU each kernel is checked against float64 after poison,
and timed in turn with torch, as CUDA graphs over data beyond L2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "schedules")]

from built_and_run import finished, main  # noqa: E402

TARGET, SIDE, TAPS = "sm_90a", 2048, 16
BEYOND_L2 = 300 << 20
Shape = tuple[int, ...]
Call = Callable[..., Any]


@dataclass(frozen=True)
class Job:
    """``inputs``: types and shapes by name, in the order of ``truth``'s arguments, which is given
    float64. ``peers``: calls of torch of the arrays as they are. ``lanes`` results and ``taps`` are
    one statement's; nobody schedules a filter that is ``auto``. ``error``: relative (Frobenius).
    """

    pipeline: str
    inputs: Mapping[str, tuple[str, Shape]]
    shape: Shape
    truth: Call
    peers: Mapping[str, Call]
    kind: str = "float32"
    lanes: int = 256
    taps: int = TAPS
    error: float = 1e-5
    auto: bool = False


# ------------------------------------------------------------------ what torch has


def int_product(a: Any, b: Any, zero: int) -> Any:
    """Of bytes by signed bytes: those less 128 are signed, and sums of ``b`` make up for it."""
    import torch

    found = torch._int_mm((a ^ 128).view(torch.int8), b.t())  # pyright: ignore
    return found + (128 - zero) * b.sum(1, dtype=torch.int32) if zero != 128 else found


def half_product(a: Any, b: Any) -> Any:
    import torch

    return torch.mm(a, b.t(), out_dtype=torch.float32)


def single_product(tf32: bool) -> Call:
    def call(a: Any, b: Any) -> Any:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = tf32
        return a @ b.t()

    return call


def as_complex(v: Any) -> Any:
    import torch

    return torch.view_as_complex(v if v.dtype == torch.float64 else v.float())


def complex_product(a: Any, b: Any) -> Any:
    import torch

    return torch.view_as_real(as_complex(a) @ as_complex(b).t())


def four_products(a: Any, b: Any) -> Any:
    """Four real ones of halves."""
    import torch

    (ar, ai), (br, bi) = a.unbind(-1), b.unbind(-1)
    re = half_product(ar, br) - half_product(ai, bi)
    return torch.stack((re, half_product(ar, bi) + half_product(ai, br)), -1)


def by_fourier(v: Any, h: Any) -> Any:
    """Valid correlation by cuFFT, along rows."""
    import torch

    x, taps = as_complex(v), as_complex(h).flip(0)
    size = x.shape[1]
    found = torch.fft.ifft(torch.fft.fft(x, dim=1) * torch.fft.fft(taps, size), dim=1)
    return torch.view_as_real(found[:, taps.shape[0] - 1 :].contiguous())


def by_cudnn(v: Any, h: Any) -> Any:
    """The same as a convolution of two channels."""
    import torch

    re, im = h.unbind(-1)
    weights = torch.stack((torch.stack((re, -im)), torch.stack((im, re))))
    return torch.nn.functional.conv1d(v.permute(0, 2, 1), weights).permute(0, 2, 1).float()


def conv_rows(image: Any, weights: Any, step: int = 1) -> Any:
    """cuDNN along rows; ``weights``: (filters, taps)."""
    import torch

    found = torch.nn.functional.conv1d(image[:, None], weights[:, None], stride=step)
    return found.float() if image.dtype == torch.float16 else found


def unfolded(image: Any, weights: Any) -> Any:
    """Of taps that are the same from either end, of which the first half is given."""
    import torch

    weights = weights[: TAPS // 2]
    return conv_rows(image, torch.cat((weights, weights.flip(0)))[None])[:, 0]


def phased(image: Any, weights: Any, up: int, down: int, first: int) -> Any:
    """``up`` results for every ``down`` pixels: filters of all phases, put side by side."""
    import torch

    places = [down * p + first for p in range(up)]
    taps = weights.view(-1, up)
    reach = (places[-1] // up) + taps.shape[0]
    filters = torch.zeros((up, reach), dtype=weights.dtype, device=weights.device)
    for k, at in enumerate(places):
        filters[k, at // up : at // up + taps.shape[0]] = taps[:, at % up]
    found = conv_rows(image, filters, down)
    return found.permute(0, 2, 1).reshape(image.shape[0], -1)


def two_images(one: Any, two: Any, k: Any, m: Any) -> Any:
    return conv_rows(one, k[None])[:, 0] + conv_rows(two, m[None])[:, 0]


def jobs() -> list[Job]:
    n, half = SIDE, "float16"
    squares = {"a": (half, (n, n)), "b": (half, (n, n))}
    pixels = {"image": (half, (n, 2 * n)), "weights": (half, (TAPS,))}
    width = 2 * n - TAPS

    def over(u: Any, v: Any) -> Any:
        return u.double() @ v.double().t()

    byte = {"a": ("uint8", (n, n)), "b": ("int8", (n, n))}
    folded = {"image": pixels["image"], "weights": (half, (TAPS // 2,))}
    cudnn = "cuDNN, 16 bits"
    return [
        Job("bytes_of_two_kinds", byte, (n, n), over,
            {"torch._int_mm": lambda a, b: int_product(a, b, 0)}, "int32", error=0),
        Job("with_a_zero_point", byte, (n, n), lambda a, b: over(a.double() - 128, b),
            {"torch._int_mm": lambda a, b: int_product(a, b, 128)}, "int32", error=0),
        Job("floats_as_halves", dict.fromkeys("ab", ("float32", (n, n))), (n, n), over,
            {"cuBLAS, f32": single_product(False), "cuBLAS, tf32": single_product(True)},
            error=2e-5),  # of the sum, by the instruction's own rounding
        Job("three_factors", squares | {"w": (half, (n,))}, (n, n),
            lambda a, b, w: over(a.double() * w.double(), b),
            {"cuBLAS of a*w": lambda a, b, w: half_product(a * w, b)}, error=1e-3),
        Job("scaled", squares, (n, n), lambda a, b: 0.3 * over(a, b),
            {"cuBLAS, then scaled": lambda a, b: 0.3 * half_product(a, b)}),
        Job("difference_of_products", dict.fromkeys("acbd", squares["a"]), (n, n),
            lambda a, c, b, d: over(a, b) - over(c, d),
            {"cuBLAS, two": lambda a, c, b, d: half_product(a, b) - half_product(c, d)}),
        Job("complex_product", dict.fromkeys("ab", (half, (n, n, 2))), (n, n, 2), complex_product,
            {"cuBLAS, complex64": complex_product, "cuBLAS, four of halves": four_products}),
        Job("complex_filter", {"v": (half, (64, 1 << 17, 2)), "h": (half, (2 * TAPS, 2))},
            (64, (1 << 17) - 2 * TAPS + 1, 2), by_fourier,
            {"cuFFT, complex64": by_fourier, "cuDNN, two channels": by_cudnn}, error=1e-4),
        Job("taps_folded", pixels, (n, width), unfolded, {cudnn: unfolded}),
        Job("pixels_folded", folded, (n, width), unfolded, {cudnn: unfolded}, taps=TAPS // 2),
        Job("three_pixels_for_two", pixels | {"weights": (half, (3 * TAPS,))},
            (n, 3 * (n - TAPS)), lambda i, k: phased(i, k, 3, 2, 0),
            {cudnn: lambda i, k: phased(i, k, 3, 2, 0)}, lanes=384),
        Job("half_a_pixel_on", pixels | {"weights": (half, (2 * TAPS,))},
            (n, 4 * (n - TAPS)), lambda i, k: phased(i, k, 2, 1, 1),
            {cudnn: lambda i, k: phased(i, k, 2, 1, 1)}),
        Job("steps_and_pixels", {"one": pixels["image"], "two": pixels["image"],
                                 "k": pixels["weights"], "m": pixels["weights"]},
            (n, width), two_images, {cudnn: two_images}),
        Job("factor_that_is_a_difference", dict.fromkeys("acb", squares["a"]), (n, n),
            lambda a, c, b: over(a.double() - c.double(), b),
            {"cuBLAS, two": lambda a, c, b: half_product(a, b) - half_product(c, b),
             "cuBLAS, tf32": rounded_difference}),
        Job("bytes_that_are_subtracted", {"a": byte["a"], "c": byte["a"], "b": byte["b"]}, (n, n),
            lambda a, c, b: over(a.double() - c.double(), b),
            {"torch._int_mm, two": lambda a, c, b: int_product(a, b, 0) - int_product(c, b, 0)},
            "int32", error=0),
        Job("pixels_that_are_clamped", pixels, (n, 2 * n), clamped, {cudnn: clamped}, auto=True),
        Job("taps_backwards", pixels, (n, width), lambda i, k: conv_rows(i, k.flip(0)[None])[:, 0],
            {cudnn: lambda i, k: conv_rows(i, k.flip(0)[None])[:, 0]}, auto=True),
    ]  # fmt: skip


def rounded_difference(a: Any, c: Any, b: Any) -> Any:
    return single_product(True)(a.float() - c.float(), b.float())


def clamped(image: Any, weights: Any) -> Any:
    """As many results as pixels, of which the first and the last go on beyond the edges."""
    import torch

    more = (TAPS // 2, TAPS - 1 - TAPS // 2)
    around = torch.nn.functional.pad(image[None], more, mode="replicate")[0]
    return conv_rows(around, weights[None])[:, 0]


# ------------------------------------------------------------------ build


def scheduled(job: Job) -> Any:
    import halide as hl
    from plain_sums import SUMS

    import halide_bridge as hb

    out = SUMS[job.pipeline]().outputs
    if "b" in job.inputs or job.auto:
        hb.autoschedule(out, target=TARGET, sizes=job.shape)
        return out
    x, y, xo, yo, xi, yi = map(hl.Var, ("x", "y", "xo", "yo", "xi", "yi"))
    out.split(x, xo, xi, job.lanes).split(y, yo, yi, 4)
    channels = [v for v in out.args() if v.name() not in "xy"]
    for c in channels:
        out.unroll(c)
    out.reorder(*channels, xi, yi, xo, yo).vectorize(xi).gpu_blocks(xo, yo).gpu_threads(yi)
    for total in (f for name, f in hb.funcs(out).items() if name in ("total", "re", "im")):
        (t,), to, ti = total.rvars(0), hl.RVar("to"), hl.RVar("ti")
        total.compute_at(out, yi).bound_extent(x, job.lanes).vectorize(x)
        update = total.update().split(t, to, ti, job.taps).reorder(ti, x, to).atomic()
        update.vectorize(ti).vectorize(x)
        hb.store_in(total, hb.MemoryType.WMMAAccumulator)
    return out


def build(folder: Path) -> None:
    import halide_bridge as hb

    folder.mkdir(parents=True, exist_ok=True)
    for job in jobs():
        kernel = hb.compile(scheduled(job), target=TARGET, name=job.pipeline)
        kernel.save(folder / f"{job.pipeline}.kernel", overwrite=True)
        blocks = {u.block.instruction for u in kernel.report.updates if u.block is not None}
        print(job.pipeline, *sorted(blocks), flush=True)


# ------------------------------------------------------------------ run


def drawn(kind: str, shape: Shape, seed: int) -> Any:
    import torch

    source = torch.Generator(device="cuda").manual_seed(seed)
    if "int8" in kind:
        whole = torch.randint(0, 256, shape, generator=source, device="cuda", dtype=torch.int32)
        return (whole - (128 if kind == "int8" else 0)).to(getattr(torch, kind))
    return torch.randn(shape, generator=source, device="cuda").to(getattr(torch, kind))


def measured(job: Job, kernel: Any) -> dict[str, Any]:
    """Relative errors, and microseconds."""
    import torch
    from run_plain import in_turn, poisoned

    kind = getattr(torch, job.kind)
    sets = 4
    data = [[drawn(*a, 17 * i + k) for k, a in enumerate(job.inputs.values())] for i in range(sets)]
    outs = [poisoned(job.shape, kind) for _ in range(sets)]

    def ours(i: int) -> object:
        return kernel(**dict(zip(job.inputs, data[i], strict=True)), out=outs[i])

    exact = [v.double() if v.is_floating_point() else v for v in data[0]]
    truth = job.truth(*exact)

    def off(found: Any) -> float:
        part = tuple(slice(n) for n in job.shape)
        wanted = truth[part].double()
        return float((found[part].double() - wanted).norm() / wanted.norm())

    ours(0)
    row: dict[str, Any] = {"ours error": off(outs[0])}
    contenders: dict[str, Any] = {"ours": [lambda i=i: ours(i) for i in range(sets)]}
    for name, call in job.peers.items():
        row[f"{name} error"] = off(call(*data[0]))
        contenders[name] = [lambda v=v, c=call: c(*v) for v in data]
    return row | in_turn(contenders, ("ours",))


def run(folder: Path, results: Path | None) -> int:
    import torch

    import selector

    torch.backends.cudnn.benchmark = True
    rows, wrong = [], 0
    for job in jobs():
        row: dict[str, Any] = {"job": job.pipeline}
        row |= measured(job, selector.load(folder / f"{job.pipeline}.kernel"))
        wrong += not row["ours error"] <= job.error
        rows.append(row)
        print(json.dumps(row), flush=True)
        torch.cuda.empty_cache()
    return finished(rows, wrong, results)


if __name__ == "__main__":
    sys.exit(main(__doc__, build, run))
