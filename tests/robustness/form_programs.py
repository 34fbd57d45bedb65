"""The scopes whose forms are proved: of the corpus, of sums in other words, of operands that are
computed, of bytes that are decoded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / room) for room in ("bridge", "gpu", "schedules")]

import halide as hl  # noqa: E402
import test_computed_operands as operands  # noqa: E402
from machines import MACHINES  # noqa: E402
from plain_pipelines import U8  # noqa: E402
from plain_sums import matrices, stored, summed, x, y  # noqa: E402
from sums import jobs, scheduled  # noqa: E402
from test_halide_variants import corpus as pipelines  # noqa: E402
from test_text_variants import corpus as texts  # noqa: E402

import halide_bridge as hb  # noqa: E402
from selector.diagnostics import ScheduleError  # noqa: E402
from selector.eqsat.facts import legal_instructions  # noqa: E402
from selector.eqsat.select import executing  # noqa: E402
from selector.intrinsics import TensorInstruction  # noqa: E402
from selector.ir.module import Module  # noqa: E402
from selector.ir.nodes import Allocate, Stmt  # noqa: E402
from selector.ir.parser import parse_module  # noqa: E402
from selector.ir.traverse import stmt_children  # noqa: E402
from selector.operands.accumulators import is_tensor  # noqa: E402
from selector.targets import find_target  # noqa: E402

Scope = tuple[str, Allocate, tuple[TensorInstruction, ...]]


def _scopes(
    name: str, module: Module, target: str, only: tuple[str, ...] | None = None
) -> Iterator[Scope]:
    """What is allocated in tensor memory, and the instructions that there are for it."""
    legal = executing(legal_instructions(find_target(target), only), module)
    waiting: list[Stmt] = [module.body]
    while waiting:
        s = waiting.pop()
        if isinstance(s, Allocate) and is_tensor(s):
            yield name, s, legal
        else:
            waiting += stmt_children(s)


def _distinct(found: Iterable[Scope]) -> tuple[Scope, ...]:
    return tuple({(scope, legal): (name, scope, legal) for name, scope, legal in found}.values())


@cache
def of_texts() -> tuple[Scope, ...]:
    return _distinct(
        s
        for machine in MACHINES.values()
        for name, v in texts(machine.name).items()
        for s in _scopes(f"{machine.name}: {name}", v.module(), machine.target)
    )


@cache
def of_pipelines(machine: str) -> tuple[Scope, ...]:
    def found() -> Iterator[Scope]:
        m = MACHINES[machine]
        for name, p in pipelines(machine).items():
            try:
                module = hb.lower(p.build(m), target=m.target, name="variant")
            except ScheduleError:  # a miss of the corpus
                continue
            yield from _scopes(f"{machine}: {name}", module, m.target)

    return _distinct(found())


def _decoding(left: object, right: object) -> hl.Func:
    a, b, k = matrices(U8, U8)
    out = stored(summed(hl.f32(left(a[k, y])) * hl.f32(right(b[k, x]))))  # type: ignore[operator]
    hb.autoschedule(out, target="sm_90a", sizes=(4096, 4096), instructions=("fp8",))
    return out


def _half(buffer: str) -> str:
    """A byte of each lane as the upper half of a half."""
    wide = f"uint16x8({buffer}[ramp(0, 1, 8)])"
    return f"(float16x8)reinterpret((uint16x8)shift_left({wide}, x8((uint16)8)))"


SMALL = f"""module small
input A: uint8 [(0, 8, 1)]
input B: uint8 [(0, 8, 1)]
output out: float32 [(0, 4, 1)]
body {{
 allocate acc[float32 * 4] in WGMMAAccumulator
 acc[ramp(0, 1, 4)] = x4(0.0f)
 acc[ramp(0, 1, 4)] = (float32x4)vector_reduce_add(float32x8({_half("A")})*float32x8({_half("B")})) + acc[ramp(0, 1, 4)]
 out[ramp(0, 1, 4)] = acc[ramp(0, 1, 4)]
}}
"""  # noqa: E501
"""Two decoded bytes an output, of which z3 finds where they are decoded wrongly."""


@cache
def of_bytes() -> tuple[Scope, ...]:
    return tuple(_scopes("small", parse_module(SMALL), "sm_90a", ("fp8",)))


@cache
def of_sums() -> tuple[Scope, ...]:
    def found() -> Iterator[Scope]:
        made = {name: operands.product(s) for name, s in operands.PRODUCTS.items()}
        made |= {name: operands.filtered(s) for name, s in operands.FILTERS.items()}
        for name, out in made.items():
            yield from _scopes(name, hb.lower(out, target="sm_80"), "sm_80")
        for job in jobs():
            out = scheduled(job)
            yield from _scopes(job.pipeline, hb.lower(out, target="sm_90a"), "sm_90a")
        for left, right in ((hb.e4m3, hb.e5m2), (hb.e5m2, hb.e5m2)):
            module = hb.lower(_decoding(left, right), target="sm_90a")
            yield from _scopes("decoded", module, "sm_90a", ("fp8",))

    return _distinct(found())
