"""Products of bytes that are floats (e4m3): as such, decoded, and of halves and plain bytes, beside
torch.

    python tests/gpu/float8.py build FOLDER        needs Halide, no GPU
    python tests/gpu/float8.py run FOLDER [--results float8.json]      needs CuPy and torch

Nobody schedules them. On the GPU each kernel is checked against float64 after poison, and timed in
turn with ``torch._scaled_mm``, its sums whole and short (``use_fast_accum``), ``torch._int_mm`` and
a product of halves, as CUDA graphs over data beyond L2. ``kept``: how many bits behind that of the
largest term of a sum the instruction keeps.
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
    (4096, 4096, 4096), (8192, 1024, 2048), (4095, 1008, 2064), (300, 501, 701), (64, 4096, 16384),
)  # fmt: skip
"""m, n, k."""
BEYOND_L2 = 300 << 20
KINDS = {"float8": ("fp8",), "decoded": None, "halves": None, "bytes": None}
"""How a product is taken, and the instructions that are allowed."""
STORED = {"float8": "uint8", "decoded": "uint8", "halves": "float16", "bytes": "int8"}
Arrays = tuple[Any, Any]


def product(kind: str) -> Any:
    """Rows of A by rows of B."""
    import halide as hl

    import halide_bridge as hb

    x, y = hl.Var("x"), hl.Var("y")
    stored = {"uint8": hl.UInt(8), "int8": hl.Int(8), "float16": hl.Float(16)}[STORED[kind]]
    a, b = (hl.ImageParam(stored, 2, name) for name in "AB")
    out, total = hl.Func("out"), hl.Func("total")
    k = hl.RDom([(0, a.dim(0).extent())], "k")
    left, right = a[k, y], b[k, x]
    if kind == "bytes":
        total[x, y] += hl.i32(left) * hl.i32(right)
    elif kind == "halves":
        total[x, y] += hl.f32(left) * hl.f32(right)
    else:
        total[x, y] += hl.f32(hb.e4m3(left)) * hl.f32(hb.e4m3(right))
    out[x, y] = total[x, y]
    return out


def build(folder: Path) -> None:
    import halide_bridge as hb

    folder.mkdir(parents=True, exist_ok=True)
    for number, (m, n, k) in enumerate(PRODUCTS):
        sizes = {"A": (m, k), "B": (n, k), "out": (m, n)}
        for kind, allowed in KINDS.items():
            kernel = hb.compile(
                product(kind), target="sm_90a", schedule="auto", sizes=sizes, instructions=allowed
            )
            kernel.save(folder / f"{number}.{kind}.kernel", overwrite=True)
            blocks = {u.block.instruction for u in kernel.report.updates if u.block is not None}
            print(m, n, k, kind, *blocks, flush=True)


def drawn(shape: tuple[int, int], seed: int) -> Any:
    """Numbers of a normal distribution as bytes."""
    import torch

    source = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(shape, generator=source, device="cuda").to(torch.float8_e4m3fn)


def peers(v: Arrays) -> dict[str, Any]:
    """What torch has, by name: a call that gives the result."""
    import torch

    a, b = v
    one = torch.ones((), device="cuda")
    halves = a.half(), b.half().t()
    whole = a.view(torch.int8), b.view(torch.int8).t()

    def scaled(fast: bool) -> Any:
        return torch._scaled_mm(  # pyright: ignore
            a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.float32, use_fast_accum=fast
        )

    return {
        "torch float8": lambda: scaled(False),
        "torch float8 short": lambda: scaled(True),
        "torch halves": lambda: halves[0] @ halves[1],
        "torch bytes": lambda: torch._int_mm(*whole),  # pyright: ignore
    }


def measured(kernels: dict[str, Any], m: int, n: int, k: int) -> dict[str, Any]:
    """Relative errors, and microseconds."""
    import torch
    from run_plain import in_turn, poisoned

    moved = (m + n) * k + 4 * m * n
    sets = max(2, min(8, BEYOND_L2 // moved + 1))
    data = [(drawn((m, k), 2 * i), drawn((n, k), 2 * i + 1)) for i in range(sets)]
    truths = {
        "float8": data[0][0].double() @ data[0][1].double().t(),
        "bytes": data[0][0].view(torch.int8).double() @ data[0][1].view(torch.int8).double().t(),
    }
    row: dict[str, Any] = {}
    contenders: dict[str, Any] = {}
    held: list[Any] = []  # what graphs read and write: they do not keep it themselves

    def off(found: Any, truth: Any) -> float:
        return float((found.double() - truth).norm() / truth.norm())

    for kind, kernel in kernels.items():
        sums = torch.int32 if kind == "bytes" else torch.float32
        outs = [poisoned((m, n), sums) for _ in range(sets)]
        stored = getattr(torch, STORED[kind])
        given = [[x.half() if kind == "halves" else x.view(stored) for x in v] for v in data]
        held += [outs, given]

        def ours(i: int, f: Any = kernel, v: Any = given, o: Any = outs) -> object:
            return f(A=v[i][0], B=v[i][1], out=o[i])

        ours(0)
        truth = truths["bytes" if kind == "bytes" else "float8"]
        row[f"{kind} error"] = off(outs[0], truth)
        contenders[kind] = [lambda i=i, f=ours: f(i) for i in range(sets)]
    calls = [peers(v) for v in data]
    for name in calls[0]:
        try:
            truth = truths["bytes" if name == "torch bytes" else "float8"]
            row[f"{name} error"] = off(calls[0][name](), truth)
        except RuntimeError as error:  # sizes that it does not have
            print(f"  {name}: {str(error).splitlines()[0]}")
            continue
        contenders[name] = [c[name] for c in calls]
    print(json.dumps(row), flush=True)
    return row | in_turn(contenders, kernels)


def kept(kernel: Any) -> dict[str, int]:
    """Of 1 + 2**-e, and of 2**-e 31 times beside 1, the largest e that changes the sum."""
    import torch

    found = {"one": 0, "many": 0}
    for e in range(1, 19):
        parts = (e + 1) // 2, e // 2
        for name, count in (("one", 1), ("many", 31)):
            a, b = (torch.zeros((64, 64), device="cuda") for _ in range(2))
            a[:, 0] = b[:, 0] = 1.0
            a[:, 1 : 1 + count], b[:, 1 : 1 + count] = 2.0 ** -parts[0], 2.0 ** -parts[1]
            a, b = (v.to(torch.float8_e4m3fn).view(torch.uint8) for v in (a, b))
            out = torch.full((64, 64), float("nan"), device="cuda")
            kernel(A=a, B=b, out=out)
            if float(out[0, 0]) != 1.0:
                found[name] = e
    return found


def run(folder: Path, results: Path | None) -> int:
    import selector

    rows, wrong = [], 0
    for number, (m, n, k) in enumerate(PRODUCTS):
        kernels = {kind: selector.load(folder / f"{number}.{kind}.kernel") for kind in KINDS}
        row: dict[str, Any] = {"job": f"{m}x{n}x{k}"} | measured(kernels, m, n, k)
        exact = all(row[f"{kind} error"] <= 1e-5 for kind in ("decoded", "halves", "bytes"))
        # Each of k / 32 instructions loses up to the last of 13 bits of a sum.
        wrong += not (exact and row["float8 error"] <= (k / 32) ** 0.5 * 2**-12)
        if number == 0:
            row["kept"] = kept(kernels["float8"])
        rows.append(row)
        print(json.dumps(row), flush=True)
    return finished(rows, wrong, results)


if __name__ == "__main__":
    sys.exit(main(__doc__, build, run))
