"""Saved operators as functions of JAX on a GPU: values, gradients and ``vmap`` against float64,
and times beside XLA's own, both jitted, in turns.

    python tests/gpu/run_jax.py FOLDER [--results jax.json]

FOLDER is ``build_jax.py``'s. Needs JAX with its CUDA plugin, and g++; no Halide.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)  # for the references

import jax.numpy as jnp  # noqa: E402

from selector.interop.jax import jax_op  # noqa: E402
from selector.interop.operator import ready  # noqa: E402

EPS = 1e-5
SETS, ROUNDS = 6, 15  # arrays that take turns, and turns


def rms_norm(a: Any, weight: Any, eps: float = EPS) -> Any:
    wide = a.astype(jnp.promote_types(a.dtype, jnp.float32))
    scale = jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + eps)
    return (wide * scale * weight.astype(wide.dtype)).astype(a.dtype)


def filter_2d(image: Any, taps: Any) -> Any:
    around = ((2, 2), (2, 2))
    found = jax.lax.conv_general_dilated(image[:, None], taps[None, None], (1, 1), around)
    return found[:, 0]


# Name: XLA's own, our numbers, which inputs are differentiated, small shapes, the timed shapes.
JOBS: dict[str, tuple[Callable[..., Any], dict[str, Any], tuple[int, ...], Any, Any]] = {
    "softmax": (jax.nn.softmax, {}, (0,), [(37, 1001)], [(8192, 4096)]),
    "rms_norm": (rms_norm, {"eps": EPS}, (0, 1), [(37, 1001), (1001,)], [(16384, 4096), (4096,)]),
    "matmul": (jnp.matmul, {}, (0, 1), [(77, 130), (130, 51)], [(2048, 2048), (2048, 2048)]),
    "filter_2d": (filter_2d, {}, (0,), [(3, 67, 129), (5, 5)], [(3, 2160, 3840), (5, 5)]),
}


def error(found: Any, wanted: Any) -> float:
    """Relative, of Frobenius norms."""
    off = jnp.linalg.norm((found.astype(jnp.float64) - wanted).ravel())
    return float(off / jnp.linalg.norm(wanted.ravel()))


def random(seed: int, shapes: Any, dtype: Any) -> list[Any]:
    keys = jax.random.split(jax.random.PRNGKey(seed), len(shapes))
    return [
        jax.random.normal(k, s, jnp.float32).astype(dtype)
        for k, s in zip(keys, shapes, strict=True)
    ]


def check(name: str, op: Any, dtype: Any, shapes: Any) -> dict[str, float]:
    """Errors of values, gradients, and of ``vmap`` over a new first axis of the first input."""
    theirs, numbers, wanted, *_ = JOBS[name]
    arrays = random(1, shapes, dtype)
    exact = [a.astype(jnp.float64) for a in arrays]
    found = {"value": error(jax.jit(lambda *a: op(*a, **numbers))(*arrays), theirs(*exact))}
    weights = random(2, [theirs(*exact).shape], dtype)[0]

    def loss(function: Any, w: Any) -> Any:
        return lambda *a: (function(*a).astype(w.dtype) * w).sum()

    ours = jax.jit(jax.grad(loss(lambda *a: op(*a, **numbers), weights), wanted))(*arrays)
    truth = jax.grad(loss(theirs, weights.astype(jnp.float64)), wanted)(*exact)
    found["gradient"] = max(map(error, ours, truth))
    many = jnp.stack([arrays[0], 2 * arrays[0], -arrays[0]])
    axes = (0, *[None] * (len(arrays) - 1))
    ours = jax.vmap(lambda *a: op(*a, **numbers), axes)(many, *arrays[1:])
    truth = jax.vmap(theirs, axes)(many.astype(jnp.float64), *exact[1:])
    return found | {"vmap": error(ours, truth)}


def timed(name: str, op: Any, dtype: Any, shapes: Any) -> dict[str, float]:
    """Microseconds of one call, of ``SETS`` in a jitted function each."""
    theirs, numbers, *_ = JOBS[name]
    data = [random(i, shapes, dtype) for i in range(SETS)]
    several = {
        "ours": jax.jit(lambda d: [op(*a, **numbers) for a in d]),
        "XLA": jax.jit(lambda d: [theirs(*a) for a in d]),
    }
    times: dict[str, list[float]] = {n: [] for n in several}
    for _ in range(ROUNDS + 2):  # the first two warm up
        for who, function in several.items():
            jax.block_until_ready(data)
            begin = time.perf_counter()
            jax.block_until_ready(function(data))
            times[who].append((time.perf_counter() - begin) * 1e6 / SETS)
    return {n: statistics.median(t[2:]) for n, t in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    rows, wrong = {}, 0
    print(jax.__version__, jax.devices())
    for name, (*_, small, large) in JOBS.items():
        dtype = jnp.float32 if name == "softmax" else jnp.float16
        parts = [options.folder / f"{name}.{part}.kernel" for part in ("forward", "backward")]
        op = jax_op(ready(name, *parts))
        rows[name] = {"errors": check(name, op, dtype, small)}
        rows[name]["us"] = timed(name, op, dtype, large)
        wrong += max(rows[name]["errors"].values()) > (1e-6 if dtype == jnp.float32 else 2e-3)
        print(name, json.dumps(rows[name]), flush=True)
    if options.results:
        about = {"jax": jax.__version__, "device": str(jax.devices()[0]), "rows": rows}
        options.results.write_text(json.dumps(about, indent=1), encoding="utf-8")
    print(f"{len(rows)} operators, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
