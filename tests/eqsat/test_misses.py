"""One named scenario for each refusal; the message names the Func, the condition and the way
out."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tensor_programs import SM80, Spec, convolution, matmul, program

from selector.diagnostics import SelectionError
from selector.eqsat import select
from selector.ir.nodes import Module
from selector.ir.parser import parse_module
from selector.targets import find_target

A = "A[ramp(x16(ramp(0, 1, 16)), x256(A.stride.1), 16)]"
B = "B[x16(ramp(ramp(0, B.stride.1, 16), x16(1), 16))]"
ACC = "acc[ramp(0, 1, 256)]"
HALVES = {"A": ("float16", (16, 16)), "B": ("float16", (16, 16))}


def f32(value: str) -> str:
    return f"float32x4096({value})"


def update(
    value: str, buffers: dict[str, tuple[str, tuple[int, ...]]] | None = None, lanes: int = 256,
    **rest: str,
) -> Module:  # fmt: skip
    """A module whose update stores ``value``."""
    acc = f"acc[ramp(0, 1, {lanes})]"
    module = program(buffers or HALVES, f"{acc} = {value}", lanes, Spec(), **rest)
    text = str(module).replace("body {", 'origin acc: func "mm" at "user.py:12"\nbody {', 1)
    return parse_module(text)


def reduce(value: str, op: str = "add", kind: str = "float32", lanes: int = 256) -> str:
    return f"({kind}x{lanes})vector_reduce_{op}({value})"


def product(a: str = A, b: str = B, op: str = "add") -> str:
    return reduce(f"{f32(a)}*{f32(b)}", op)


PRODUCT = product()
HALVED = "A[ramp(x16(ramp(0, 1, 16)), x256(A.stride.1), 16)/x4096(2)]"
GATHERED = "A[ramp(x16(ramp(0, 1, 16)), x256(A.stride.1), 16) + J[ramp(0, 1, 4096)]]"
ALONG_N = "A[ramp(ramp(ramp(0, 1, 16), x16(2), 16), x256(A.stride.1), 16)]"


@dataclass(frozen=True)
class Scenario:
    module: Module
    why: str
    hint: str
    stage: str = "update"
    target: str = "sm_80"
    only: tuple[str, ...] | None = None


WIDE = {"A": ("float32", (16, 16)), "B": ("float32", (16, 16))}
MIXED = {"A": ("float16", (16, 16)), "B": ("bfloat16", (16, 16))}

SCENARIOS: dict[str, Scenario] = {
    "operands of 32 bits": Scenario(
        update(reduce(f"{A}*{B}") + f" + {ACC}", WIDE),
        "no instruction multiplies float32 by float32 into float32",
        "float16 x float16 -> float32",
    ),
    "operands of two types": Scenario(
        update(f"{PRODUCT} + {ACC}", MIXED),
        "the operands have different types, float16 and bfloat16",
        "convert one into the other's type",
    ),
    "a tile that no shape divides": Scenario(
        matmul(4, 64, 16), "its tile is 4 x 64 (m x n); no instruction's shape divides it",
        "make it 8 x 64",
    ),
    "outputs that no shape divides": Scenario(
        convolution(100, 8), "its 100 lanes are no multiple of any instruction's m x n",
        "vectorize 128 outputs at once",
    ),
    "no reduction": Scenario(
        update(f"float32x256(A[ramp(0, 1, 256)])*float32x256(B[ramp(0, 1, 256)]) + {ACC}"),
        "there is no vectorized reduction in it", ".update().atomic().vectorize(r)",
    ),
    "a maximum instead of a sum": Scenario(
        update(f"{product(op='max')} + {ACC}"),
        "it reduces with `max`; tensor instructions only add",
        "keep this Func out of tensor memory",
    ),
    "a sum without a product": Scenario(
        update(f"{reduce(f32(A))} + {ACC}"),
        "the terms of the sum are not products", "multiply by a Func of ones",
    ),
    "a product rounded before the cast": Scenario(
        update(reduce(f32(f"{A}*{B}")) + f" + {ACC}"),
        "the product is taken in the operands' type and cast afterwards", "f32(a)*f32(b)",
    ),
    "an operand computed on the fly": Scenario(
        update(f"{product(f'{A} + {A}')} + {ACC}"),
        "an operand is computed on the fly", "compute it into its own Func",
    ),
    "an index with a division": Scenario(
        update(f"{product(HALVED)} + {ACC}"),
        "`A` is read at an index that is not affine", "do not vectorize over the variable",
    ),
    "a gather": Scenario(
        update(f"{product(GATHERED)} + {ACC}", {**HALVES, "J": ("int32", (4096,))}),
        "`A` is read at an index that is not affine", "copy it into a Func",
    ),
    "both operands along n": Scenario(
        update(f"{product(ALONG_N)} + {ACC}"),
        "both operands vary along n: `A` is read with stride 2 and `B` with stride 1",
        "one of them must not depend on n",
    ),
    "added to something else": Scenario(
        update(f"{PRODUCT} + float32x256(A[ramp(0, 1, 256)]) + {ACC}"),
        "the sum is not added to the lanes of `acc` that are stored", "f(x, y) += a*b",
    ),
    "added to other lanes of itself": Scenario(
        update(f"{PRODUCT} + acc[ramp(256, 1, 256)]"),
        "the sum is not added to the lanes of `acc` that are stored", "f(x, y) += a*b",
    ),
    "an accumulator with gaps": Scenario(
        program(
            HALVES, f"acc[ramp(0, 2, 256)] = {PRODUCT} + acc[ramp(0, 2, 256)]", 512, Spec(),
            "out[ramp(0, 1, 512)] = acc[ramp(0, 1, 512)]",
        ),
        "`acc` is stored at an index that is not dense", "innermost first",
    ),
    "an accumulator stored by scalars": Scenario(
        update(f"{PRODUCT} + {ACC}", init="for (i, 0, 256) {\nacc[i] = 0.0f\n}"),
        "`acc` is stored by scalar code", "vectorize all dimensions", "init",
    ),
    "an accumulator read by scalars": Scenario(
        update(f"{PRODUCT} + {ACC}", readout="for (i, 0, 256) {\nout[i] = acc[i]\n}"),
        "`acc` is read by scalar code", "vectorize the reading stage", "read",
    ),
    "an accumulator read transposed": Scenario(
        update(
            f"{PRODUCT} + {ACC}",
            readout="out[ramp(0, 1, 256)] = acc[ramp(ramp(0, 16, 16), x16(1), 16)]",
        ),
        "`acc` is read with stride 16", "in the order in which it is stored", "read",
    ),
    "an accumulator read in a condition": Scenario(
        update(
            f"{PRODUCT} + {ACC}",
            readout="if (acc[0] < 1.0f) {\nout[0] = 1.0f\n}\n"
            "out[ramp(0, 1, 256)] = acc[ramp(0, 1, 256)]",
        ),
        "an accumulator is read in a condition", "copy it to an ordinary Func first", "condition",
    ),
    "a predicated update": Scenario(
        update(f"{PRODUCT} + {ACC} if ramp(0, 1, 256) < x256(7)"),
        "the store to `acc` has a predicate", "round the accumulator's tile up",
    ),
    "a target without tensor units of that kind": Scenario(
        update(f"{PRODUCT} + {ACC}"), "has no wmma or mma instructions", "compile for sm_80, ",
        target="amx",
    ),
    "a restriction that leaves nothing": Scenario(
        matmul(16, 16, 16, Spec("int8", "int32")),
        "has no instruction for int8 x int8 -> int32", "lift the restriction",
        only=("wmma.mma.m16n16k16.f16.f32",),
    ),
    "the paper's unit on another target": Scenario(
        parse_module(str(matmul(16, 16, 16)).replace("WMMAAccumulator", "AMXTile")),
        "is placed in amx memory", "place the Func in MemoryType.WMMAAccumulator",
    ),
    "a running maximum": Scenario(
        update(f"max({PRODUCT.replace('vector_reduce_add', 'vector_reduce_max')}, {ACC})"),
        "it reduces with `max`", "only sums of products",
    ),
    "a scaled sum": Scenario(
        update(f"{PRODUCT}*float32x256(A[ramp(0, 1, 256)]) + {ACC}"),
        "its reduction is scaled", "do the rest where the result is read",
    ),
    "a vector instead of a matrix": Scenario(
        matmul(1, 256, 16), "every row of the tile would be the same", "slide over",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_refusal_says_what_why_and_how(name: str):
    s = SCENARIOS[name]
    with pytest.raises(SelectionError) as caught:
        select(s.module, find_target(s.target), instructions=s.only)
    error = caught.value
    assert "cannot go to the tensor unit" in error.what
    assert s.why in error.why
    assert s.hint in error.hint
    assert error.why
    assert error.hint
    assert error.where is not None
    assert error.where.statement
    assert s.stage in (error.where.stage or "condition")
    assert "loc" not in error.where.statement, "the user never wrote a movement"


def test_the_users_names_are_used():
    with pytest.raises(SelectionError) as caught:
        select(SCENARIOS["a sum without a product"].module, SM80)
    error = caught.value
    assert error.where is not None
    assert (error.where.func, error.where.location) == ("mm", "user.py:12")
    assert "`mm` (update)" in error.what
    assert "nearest instruction" in str(select_error("no reduction"))


def select_error(name: str) -> SelectionError:
    with pytest.raises(SelectionError) as caught:
        select(SCENARIOS[name].module, SM80)
    return caught.value


@pytest.mark.parametrize("name", list(SCENARIOS)[:8])
def test_without_strict_it_is_reported(name: str):
    s = SCENARIOS[name]
    selection = select(s.module, find_target(s.target), strict=False, instructions=s.only)
    misses = [m for m in selection.report.misses if s.why in m.miss]
    assert misses
    assert "not selected" in str(selection.report)
