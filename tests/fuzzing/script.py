"""A drawn program as a script of its own: it imports only Halide, this compiler and NumPy, and for
attention the case study.
"""

from __future__ import annotations

from fuzzing.formats import FORMATS, bytes_of
from fuzzing.forms import result_kinds, result_shape
from fuzzing.program import Program
from fuzzing.reference import input_kinds, scalars
from fuzzing.writing import pipeline_text

SCRIPT = '''"""{title}"""
import sys

import halide as hl
import numpy as np

import halide_bridge as hb


{pipeline}

DTYPES = {{
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "s8": np.int8, "u8": np.uint8,
    "s16": np.int16, "u16": np.uint16, "s32": np.int32, "u32": np.uint32, "s64": np.int64,
}}
BYTES = {bytes}
rng = np.random.default_rng({seed})


def bits(values):
    wide = np.asarray(values, np.float32).view(np.uint32)
    return ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(np.uint16)


def real(array, kind):
    return (array.astype(np.uint32) << 16).view(np.float32) if kind == "bf16" else array


def draw(shape, kind):
    if kind in BYTES:
        return rng.choice(np.array(BYTES[kind], np.uint8), shape)
    if kind == "bool":
        return rng.random(shape) < 0.5
    if kind[0] in "su":
        held = np.iinfo(DTYPES[kind])
        low, high = (held.min, held.max) if held.bits < 32 else (-1000*(kind[0] == "s"), 1000)
        return rng.integers(low, high, shape, endpoint=True).astype(DTYPES[kind])
    values = {values}
    return bits(values) if kind == "bf16" else values.astype(np.float32).astype(DTYPES[kind])


ARRAYS = {{
{arrays}}}
arrays = {{name: draw(*array) for name, array in ARRAYS.items()}}
{apart}kernel = hb.compile(pipeline(), target="{target}", cache=False{only})
output, parameters = pipeline(scheduled=False)
held = {{n: np.ascontiguousarray(real(arrays[n], kind)) for n, (_, kind) in ARRAYS.items()}}
for q in parameters:
    q.set(hl.Buffer(held[q.name()]) if q.name() in held else {scalars}[q.name()])
made = hl.Pipeline(output).realize({extents})
several = made if isinstance(made, (list, tuple)) else [made]
truths = [np.array(one).astype(np.float64) for one in several]
if "--emulate" in sys.argv:
    from emulation import run

    found = run(kernel, {call})
else:
    found = kernel.interpret({call})
found = [*found.values()] if isinstance(found, dict) else [found]
for one, truth, kind in zip(found, truths, {results}):
    one = real(np.asarray(one), kind).astype(np.float64)
    error = np.linalg.norm(one - truth)/(np.linalg.norm(truth) or 1)
    print(f"relative error {{error:.1e}}, {{int(np.isnan(one).sum())}} of {{one.size}} are NaN")
'''


APART = """

def apart(array):
    before, behind = {pitch}
    wide = np.empty((*array.shape[:-1], before + array.shape[-1] + behind), array.dtype)
    wide.view(np.uint8)[...] = 0xFF
    wide[..., before : before + array.shape[-1]] = array
    return wide[..., before : before + array.shape[-1]]


arrays = {{name: apart(array) for name, array in arrays.items()}}
"""


def script(p: Program, title: str) -> str:
    """A program of its own that compares the selected program with Halide's own run; with
    ``--emulate`` and tests/ on the path the emitted text."""
    kinds = input_kinds(p)
    arrays = "".join(
        f'    "{name}": ({extents[::-1]}, "{kind}"),\n' for name, (kind, extents) in kinds.items()
    )
    only = f", instructions={p.instructions!r}" if p.instructions else ""
    call = "**arrays, " + "".join(f"{n}={v}, " for n, v in scalars(p).items())
    call += f"sizes={result_shape(p)}"
    values = (
        "rng.integers(1, 4, shape)*rng.choice((-1, 1), shape)"
        if p.values == "small"
        else "rng.uniform(-1, 1, shape)"
    )
    floats = {kind: bytes_of(kind, p.values) for kind, _ in kinds.values() if kind in FORMATS}
    return SCRIPT.format(
        bytes=floats,
        title=title, pipeline=pipeline_text(p), seed=p.inputs, arrays=arrays, values=values,
        target=p.target, only=only, call=call, extents=list(p.sizes), scalars=scalars(p),
        results=result_kinds(p), apart=APART.format(pitch=p.pitch) if p.pitch != (0, 0) else "",
    )  # fmt: skip
