"""Selected programs for target ``amx`` as text, and what it takes to run their C and compare it."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import selector.intrinsics  # noqa: F401 (gives the interpreter its calls)
from selector.cpu import emit
from selector.intrinsics.functions import pack_vnni
from selector.ir.bfloat16 import from_bits, to_bits
from selector.ir.interpreter import interpret
from selector.ir.module import Module
from selector.ir.parser import parse_module
from selector.ir.verify import verify
from selector.runtime import cpu_compile
from selector.runtime.cpu import CpuExecutable
from selector.runtime.plan import Plan
from selector.targets import find_target

AMX = find_target("amx")
BF16 = "amx.tdpbf16ps.m16n16k32"
BYTES = {
    "ssd": "amx.tdpbssd.m16n16k64",
    "sud": "amx.tdpbsud.m16n16k64",
    "usd": "amx.tdpbusd.m16n16k64",
    "uud": "amx.tdpbuud.m16n16k64",
}
HARDWARE = ("-mamx-tile", "-mamx-bf16", "-mamx-int8", "-march=x86-64-v4")
SOFTWARE = ("-DSELECTOR_SOFTWARE_TILES",)
WARNINGS = ("-std=gnu11", "-fopenmp", "-Wall", "-Wextra", "-Werror")

Array = np.ndarray[Any, Any]


def types_of(instruction: str) -> tuple[str, str, str, int]:
    """Types of A, B and the sums, and how many k lie side by side in B."""
    if instruction == BF16:
        return "bfloat16", "bfloat16", "float32", 2
    name = instruction.split(".")[1]
    kinds = {"s": "int8", "u": "uint8"}
    return kinds[name[4]], kinds[name[5]], "int32", 4


def header(instruction: str, *more: str, out: str = "") -> str:
    a, b, c, v = types_of(instruction)
    lines = [
        "module test",
        f"input A: {a} [(0, A.extent.0, 1), (0, A.extent.1, A.stride.1)]",
        f"input B: {b} [(0, {v}, 1), (0, B.extent.1, {v}), (0, B.extent.2, B.stride.2)]",
        *more,
        f"output C: {out or c} [(0, C.extent.0, 1), (0, C.extent.1, C.stride.1)]",
    ]
    return "\n".join(lines)


def a_block(m: int, k: int, base: str = "0") -> str:
    row = base if k == 1 else f"ramp({base}, 1, {k})"
    step = "A.stride.1" if k == 1 else f"x{k}(A.stride.1)"
    return row if m == 1 else f"ramp({row}, {step}, {m})"


def b_block(n: int, k: int, v: int, base: str = "0") -> str:
    groups = -(-k // v)
    row = f"ramp({base}, 1, {v * n})"
    return row if groups == 1 else f"ramp({row}, x{v * n}(B.stride.2), {groups})"


def c_block(m: int, n: int, base: str = "0") -> str:
    row = base if n == 1 else f"ramp({base}, 1, {n})"
    step = "C.stride.1" if n == 1 else f"x{n}(C.stride.1)"
    return row if m == 1 else f"ramp({row}, {step}, {m})"


def vector(value: str, lanes: int) -> str:
    return value if lanes == 1 else f"x{lanes}({value})"


def sums(m: int, n: int, offset: int = 0) -> str:
    return f"acc[{offset}]" if m * n == 1 else f"acc[ramp({offset}, 1, {m * n})]"


def kind(name: str, lanes: int) -> str:
    return name if lanes == 1 else f"{name}x{lanes}"


def product(instruction: str, m: int, n: int, k: int, a: str, b: str, offset: int = 0) -> str:
    """The statement; ``a`` and ``b`` are whole operands."""
    c = types_of(instruction)[2]
    acc = sums(m, n, offset)
    return f"{acc} = ({kind(c, m * n)}){instruction}({m}, {n}, {k}, {acc}, {a}, {b})"


def zero(instruction: str) -> str:
    return "0.0f" if instruction == BF16 else "0"


def fill(instruction: str, m: int, n: int, value: str = "", offset: int = 0) -> str:
    c = types_of(instruction)[2]
    value = value or vector(zero(instruction), m * n)
    return f"{sums(m, n, offset)} = ({kind(c, m * n)})tile.fill({value})"


def read(instruction: str, m: int, n: int, offset: int = 0) -> str:
    c = types_of(instruction)[2]
    return f"({kind(c, m * n)})tile.read({sums(m, n, offset)})"


def one_block(instruction: str, m: int, n: int, k: int) -> str:
    """C = A x B for one block; C is exactly m x n."""
    v = types_of(instruction)[3]
    body = [
        f"allocate acc[{types_of(instruction)[2]} * {m * n}] in AMXTile",
        fill(instruction, m, n),
        product(instruction, m, n, k, f"A[{a_block(m, k)}]", f"B[{b_block(n, k, v)}]"),
        f"C[{c_block(m, n)}] = {read(instruction, m, n)}",
    ]
    return "\n".join((header(instruction), "body {", *body, "}"))


def tiled(instruction: str, m: int, n: int, k: int, outer: str = "for", inner: str = "for") -> str:
    """C = A x B in blocks of m x n, k at a time; every extent is symbolic."""
    v, c = types_of(instruction)[3], types_of(instruction)[2]
    a = a_block(m, k, f"y*{m}*A.stride.1 + r*{k}")
    b = b_block(n, k, v, f"r*{k // v}*B.stride.2 + x*{n * v}")
    inside = (
        f"({_ramps(f'x*{n}', 1, n, m)} < {vector('C.extent.0', m * n)}) && "
        f"({_columns(f'y*{m}', n, m)} < {vector('C.extent.1', m * n)})"
    )
    place = c_block(m, n, f"y*{m}*C.stride.1 + x*{n}")
    return f"""{header(instruction)}
body {{
 {outer} (y, 0, (C.extent.1 + {m - 1})/{m}) {{
  {inner} (x, 0, (C.extent.0 + {n - 1})/{n}) {{
   allocate acc[{c} * {m * n}] in AMXTile
   {fill(instruction, m, n)}
   for (r, 0, (A.extent.0 + {k - 1})/{k}) {{
    {product(instruction, m, n, k, f"A[{a}]", f"B[{b}]")}
   }}
   C[{place}] = {read(instruction, m, n)} if {inside}
  }}
 }}
}}"""


def _ramps(base: str, step: int, count: int, copies: int) -> str:
    """Lanes base, base + step ... repeated."""
    return vector(f"ramp({base}, {step}, {count})", copies)


def _columns(base: str, count: int, rows: int) -> str:
    """The row number of each lane of a block."""
    return f"ramp({vector(base, count)}, {vector('1', count)}, {rows})"


# ---------------------------------------------------------------------------- running


def parsed(text: str) -> Module:
    module = parse_module(text)
    verify(module)
    return module


def plan_of(text: str) -> Plan:
    return emit(parsed(text), AMX)


def source_of(text: str) -> str:
    return plan_of(text).source


def compiled(source: str, folder: Path, *flags: str) -> Path:
    """An object file; warnings are errors."""
    path = folder / "kernel.c"
    path.write_text(source)
    target = folder / "kernel.o"
    answer = subprocess.run(
        [cpu_compile.find_compiler(), *WARNINGS, *flags, "-c", str(path), "-o", str(target)],
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    return target


_FAST = ("-std=gnu11", "-O1", "-fPIC", "-shared", "-fopenmp", "-Wall", "-Wextra", "-Werror")


def executable(plan: Plan) -> CpuExecutable:
    """The plan on software tiles, compiled fast and with warnings as errors."""
    build = cpu_compile.Build("software", (*_FAST, *SOFTWARE, "-fno-strict-aliasing"), ())
    return CpuExecutable(plan, lambda: cpu_compile.compile_library(plan.source, build).code)


def poisoned(shape: tuple[int, ...], element: str) -> Array:
    if element == "bfloat16":
        return np.full(shape, 0x7FC1, np.uint16)
    if element.startswith("float"):
        return np.full(shape, np.nan, element)
    return np.full(shape, 99, "bool" if element == "uint1" else element)


def run_both(
    text: str, arrays: Mapping[str, Array], shape: tuple[int, ...], **scalars: Any
) -> tuple[Array, Array]:
    """The output of compiled C, written over poison, and that of the interpreter."""
    module = parsed(text)
    plan = emit(module, AMX)
    out = module.buffers[-1]
    result = poisoned(shape, str(out.type))
    names = [b.name for b in module.buffers[:-1]]
    executable(plan)([], {**{n: arrays[n] for n in names}, **scalars}, out=result)
    inputs = {n: arrays[n] for n in names}
    expected = interpret(module, inputs, scalars, sizes={out.name: shape})[out.name]
    if str(out.type) == "bfloat16":
        return from_bits(result), from_bits(expected)
    return result, expected


def operands(
    instruction: str, m: int, n: int, k: int, seed: int = 0
) -> tuple[dict[str, Array], Array, Array]:
    """A and B as the program takes them, and both as float64 matrices."""
    rng = np.random.default_rng(seed)
    a_type, b_type, _, v = types_of(instruction)
    a, b = (_random(rng, t, s) for t, s in ((a_type, (m, k)), (b_type, (k, n))))
    packed = pack_vnni(b, v)
    wide = tuple(from_bits(x) if x.dtype == np.uint16 else x for x in (a, b))
    return {"A": a, "B": packed}, wide[0].astype(np.float64), wide[1].astype(np.float64)


def _random(rng: np.random.Generator, element: str, shape: tuple[int, ...]) -> Array:
    if element == "bfloat16":
        return to_bits(rng.standard_normal(shape).astype(np.float32))
    limits = np.iinfo(element)
    return rng.integers(limits.min, limits.max, shape, endpoint=True).astype(element)


def relative_error(found: Array, truth: Array) -> float:
    difference = np.linalg.norm(found.astype(np.float64) - truth)
    return float(difference) / (float(np.linalg.norm(truth)) or 1.0)


def load(path: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(path))
