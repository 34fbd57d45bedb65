"""Products and filters of single floats, as tf32 and as they are, beside torch.

    python tests/gpu/tf32.py build FOLDER        needs Halide, no GPU
    python tests/gpu/tf32.py run FOLDER [--results tf32.json]      needs CuPy and torch

Nobody schedules them. On the GPU each kernel is checked against float64 after poison, and timed in
turn with torch, with and without ``allow_tf32``, as CUDA graphs over data beyond L2.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from built_and_run import finished, main  # noqa: E402

PRODUCTS = (
    (1024, 1024, 1024), (4096, 4096, 4096), (2048, 8192, 1024), (4095, 1000, 2047),
    (300, 500, 700), (64, 4096, 4096),
)  # fmt: skip
"""m, n, k."""
FILTERS = ((2160, 3840, 5), (2160, 3840, 11), (1080, 1920, 21), (1023, 767, 7))
"""Height and width of the image, taps."""
BEYOND_L2 = 300 << 20


def product() -> Any:
    import halide as hl

    x, y = hl.Var("x"), hl.Var("y")
    a, b = (hl.ImageParam(hl.Float(32), 2, name) for name in "AB")
    out, total = hl.Func("out"), hl.Func("total")
    k = hl.RDom([(0, a.dim(0).extent())], "k")
    total[x, y] += a[k, y] * b[x, k]
    out[x, y] = total[x, y]
    return out


def filtered(taps: int) -> Any:
    import halide as hl

    x, y = hl.Var("x"), hl.Var("y")
    a, b = (hl.ImageParam(hl.Float(32), 2, name) for name in "AB")
    out, total = hl.Func("out"), hl.Func("total")
    r = hl.RDom([(0, taps), (0, taps)], "r")
    total[x, y] += a[x + r.x, y + r.y] * b[r.x, r.y]
    out[x, y] = total[x, y]
    return out


def jobs() -> dict[str, tuple[Any, tuple[tuple[int, int], ...]]]:
    """By name: how the pipeline is made, and the shapes of A, B and the result."""
    found: dict[str, tuple[Any, tuple[tuple[int, int], ...]]] = {}
    for m, n, k in PRODUCTS:
        found[f"product {m}x{n}x{k}"] = product, ((m, k), (k, n), (m, n))
    for h, w, taps in FILTERS:
        small = (h - taps + 1, w - taps + 1)
        found[f"filter {h}x{w}, {taps}x{taps}"] = (lambda t=taps: filtered(t)), (
            (h, w), (taps, taps), small,
        )  # fmt: skip
    return found


def build(folder: Path) -> None:
    import halide_bridge as hb

    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, (make, shapes)) in enumerate(jobs().items()):
        sizes = {"A": shapes[0], "B": shapes[1], "out": shapes[2]}
        for kind, allowed in (("tf32", ("tf32",)), ("single", None)):
            kernel = hb.compile(
                make(), target="sm_90a", schedule="auto", sizes=sizes, instructions=allowed
            )
            kernel.save(folder / f"{number}.{kind}.kernel", overwrite=True)
            blocks = {u.block.instruction for u in kernel.report.updates if u.block is not None}
            print(name, kind, *blocks, flush=True)


def peer(v: list[Any]) -> Any:
    from torch.nn.functional import conv2d

    a, b = v
    return a @ b if a.shape[1] == b.shape[0] else conv2d(a[None, None], b[None, None])[0, 0]


def measured(kernels: dict[str, Any], shapes: tuple[tuple[int, int], ...]) -> dict[str, Any]:
    """Relative errors, and microseconds."""
    import torch
    from run_plain import captured, in_turn, poisoned

    sets = max(2, min(8, BEYOND_L2 // (4 * sum(a * b for a, b in shapes)) + 1))
    data = [[torch.randn(s, device="cuda") for s in shapes[:2]] for _ in range(sets)]
    outs = [poisoned(shapes[2], torch.float32) for _ in range(sets)]

    def ours(kernel: Any, k: int) -> object:
        return kernel(A=data[k][0], B=data[k][1], out=outs[k])

    truth = peer([x.double() for x in data[0]])
    row: dict[str, Any] = {}
    contenders: dict[str, Any] = {}
    for kind, kernel in kernels.items():
        ours(kernel, 0)
        row[f"{kind} error"] = float((outs[0].double() - truth).norm() / truth.norm())
        contenders[kind] = captured([lambda k=k, f=kernel: ours(f, k) for k in range(sets)])
        torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
        torch.backends.cudnn.allow_tf32 = kind == "tf32"
        found = peer(data[0]).double()
        row[f"torch {kind} error"] = float((found - truth).norm() / truth.norm())
        contenders[f"torch {kind}"] = captured([lambda v=v: peer(v) for v in data])
    return row | in_turn({n: c for n, c in contenders.items() if c})


def run(folder: Path, results: Path | None) -> int:
    import torch

    import selector

    torch.backends.cudnn.benchmark = True
    rows, wrong = [], 0
    for number, (name, (_, shapes)) in enumerate(jobs().items()):
        kernels = {k: selector.load(folder / f"{number}.{k}.kernel") for k in ("tf32", "single")}
        row: dict[str, Any] = {"job": name} | measured(kernels, shapes)
        wrong += not (row["tf32 error"] <= 1e-3 and row["single error"] <= 1e-5)
        rows.append(row)
        print(json.dumps(row), flush=True)
    return finished(rows, wrong, results)


if __name__ == "__main__":
    sys.exit(main(__doc__, build, run))
