"""One named scenario for each refusal in the text form: the message names the Func, the condition
and the way out, and the program that follows the hint is selected.

``tests/bridge/test_unselected.py`` has those that begin with a Halide pipeline.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import dictionary
import pytest
from tensor_programs import (
    Spec,
    check_same,
    convolution,
    instructions,
    matmul,
    program,
)

from selector.diagnostics import SelectionError
from selector.eqsat import select
from selector.ir.module import Module
from selector.ir.parser import parse_module
from selector.targets import find_target

A = "A[ramp(x16(ramp(0, 1, 16)), x256(A.stride.1), 16)]"
B = "B[x16(ramp(ramp(0, B.stride.1, 16), x16(1), 16))]"
ACC = "acc[ramp(0, 1, 256)]"
SPEC = Spec()
HALVES = {"A": ("float16", (16, 16)), "B": ("float16", (16, 16))}


def f32(value: str) -> str:
    return f"float32x4096({value})"


def update(
    value: str, buffers: dict[str, tuple[str, tuple[int, ...]]] | None = None, lanes: int = 256,
    spec: Spec = SPEC, whole: bool = False, size: int = 0, **rest: str,
) -> Module:  # fmt: skip
    """A module whose update stores ``value``; ``whole``: is ``value``."""
    line = value if whole else f"acc[ramp(0, 1, {lanes})] = {value}"
    if size:
        rest |= {
            "init": f"acc[ramp(0, 1, {size})] = x{size}(0.0f)",
            "readout": f"out[ramp(0, 1, {size})] = acc[ramp(0, 1, {size})]",
        }
    module = program(buffers or HALVES, line, size or lanes, spec, **rest)
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
    """A program that is refused, what the message says, and the program that follows the hint."""

    module: Module
    why: str
    hint: str
    stage: str = "update"
    target: str = "sm_80"
    only: tuple[str, ...] | None = None
    fixed: Module | None = None


WIDE = {"A": ("float32", (16, 16)), "B": ("float32", (16, 16))}
MIXED = {"A": ("float16", (16, 16)), "B": ("bfloat16", (16, 16))}
BF16 = Spec("bfloat16", "float32")
GOOD = update(f"{PRODUCT} + {ACC}")


def on_amx(module: Module) -> Module:
    return parse_module(str(module).replace("WMMAAccumulator", "AMXTile"))


def on_groups(module: Module) -> Module:
    return parse_module(str(module).replace("WMMAAccumulator", "WGMMAAccumulator"))


def by_group(module: Module, why: str, hint: str, fixed: Module) -> Scenario:
    """A program that registers of a warp have as it is: their operands may be computed."""
    return Scenario(on_groups(module), why, hint, target="sm_90a", fixed=fixed)


def from_one(module: Module) -> Module:
    """A sum that starts from one: what is left out of it cannot be left out of the result."""
    return parse_module(str(module).replace("x256(0.000000f)", "x256(1.000000f)", 1))


def tall(condition: str) -> Module:
    """A product of 64 rows in a warpgroup's registers, where a condition of 16384 lanes holds."""
    text = next(x.strip() for x in str(matmul(64, 16, 16)).splitlines() if "vector_reduce" in x)
    terms = text[text.index("_add(") + 5 : text.rindex(") + acc")]
    line = text.replace(terms, f"select({condition}, {terms}, x16384(0.0f))")
    buffers = {"A": ("float16", (16, 64)), "B": ("float16", (16, 16))}
    return on_groups(update(line, buffers, whole=True, size=1024))


def where(left: str, right: str, otherwise: str = "0.0f", zero_first: bool = False) -> Module:
    """The product where a comparison of 4096 lanes holds, another number elsewhere."""
    terms = f"{f32(A)}*{f32(B)}"
    values = f"x4096({otherwise}), {terms}" if zero_first else f"{terms}, x4096({otherwise})"
    return update(f"{reduce(f'select({left} < {right}, {values})')} + {ACC}")


ROWS = "ramp(x256(0), x256(1), 16)"
COLUMNS = "x16(ramp(x16(0), x16(1), 16))"
DEPTH = "x256(ramp(0, 1, 16))"


def two_tiles(*tiles: tuple[int, int]) -> Module:
    """An update for each tile (m, n), all into one accumulator, with operands of their own."""
    buffers: dict[str, tuple[str, tuple[int, ...]]] = {}
    lines: list[str] = []
    for i, (m, n) in enumerate(tiles):
        one = str(matmul(m, n, 16)).replace("A", f"A{i}").replace("B", f"B{i}")
        lines += [x.strip() for x in one.splitlines() if "vector_reduce" in x]
        buffers |= {f"A{i}": ("float16", (16, m)), f"B{i}": ("float16", (n, 16))}
    return program(buffers, "\n".join(lines), 256, Spec())


SHIFTED = "ramp(x256(1), x256(1), 16)"
THIRDS = f"A[x256(ramp(0, 1, 16)) + ({SHIFTED}/x4096(3))*x4096(A.stride.1)]"
WRAPPED = f"A[({DEPTH} + x4096(3)) % x4096(16) + ramp(x256(0), x256(A.stride.1), 16)]"
CLAMPED = f"A[min({DEPTH}, x4096(9)) + ramp(x256(0), x256(A.stride.1), 16)]"
TIMES = f"A[{DEPTH}*{ROWS}]"
COPIES = (
    f"{f32('A[x2(ramp(x16(ramp(0, 1, 16)), x256(A.stride.1), 8))]')}*"
    f"{f32('B[x16(ramp(ramp(0, B.stride.1, 16), x16(1), 16))]')}"
)
WEIGHTS = A.replace("A", "W")


SCENARIOS: dict[str, Scenario] = {
    # types
    "operands of 32 bits": Scenario(
        update(reduce(f"{A}*{B}") + f" + {ACC}", WIDE),
        "no instruction for float32 x float32 -> float32 that does not round them",
        '`instructions=("tf32",)` allows that', fixed=GOOD,
    ),
    "operands of two types": Scenario(
        update(f"{PRODUCT} + {ACC}", MIXED),
        "the operands have different types, float16 (`A`) and bfloat16 (`B`)",
        "convert one into the other's type", fixed=GOOD,
    ),
    "an operand converted on the way": by_group(
        update(f"{product(f'float16x4096({A})')} + {ACC}", {"A": WIDE["A"], "B": HALVES["B"]}),
        "`A` is float32 in memory and converted to float16 inside the update",
        "convert it in a Func of its own (float16", fixed=GOOD,
    ),
    "halves on amx": Scenario(
        on_amx(matmul(16, 16, 32)), "target amx has no instruction for float16 x float16",
        "store the operands as bfloat16 x bfloat16 -> float32", target="amx",
        fixed=on_amx(matmul(16, 16, 32, BF16)),
    ),
    "an accumulator of 16 bits on amx": Scenario(
        on_amx(matmul(16, 16, 32, Spec("int8", "int16"))),
        "no instruction multiplies int8 by int8 into int16", "accumulate in int32",
        target="amx", fixed=on_amx(matmul(16, 16, 32, Spec("int8", "int32"))),
    ),
    "a float sum of bytes": by_group(
        matmul(16, 16, 16, Spec("int8", "float32")),
        "no instruction multiplies int8 by int8 into float32", "accumulate in int32",
        fixed=matmul(16, 16, 16, Spec("int8", "int32")),
    ),
    "words on amx": Scenario(
        on_amx(matmul(16, 16, 32, Spec("int16", "int32"))),
        "no instruction multiplies int16 by int16 into int32", "int8 x int8 -> int32",
        target="amx", fixed=on_amx(matmul(16, 16, 32, Spec("int8", "int32"))),
    ),
    # tiles
    "a tile that no shape divides": Scenario(
        matmul(4, 64, 16), "its tile is 4 x 64 (m x n); no instruction's shape divides it",
        "make it 8 x 64", fixed=matmul(8, 64, 16),
    ),
    "a tile that the allowed instructions do not divide": Scenario(
        matmul(32, 8, 16), "its tile is 32 x 8 (m x n); no instruction's shape divides it",
        "or lift the restriction: wmma.mma.m32n8k16.f16.f32 fits",
        only=("wmma.mma.m16n16k16.f16.f32",), fixed=matmul(32, 16, 16),
    ),
    "outputs that no shape divides": Scenario(
        convolution(100, 8), "its 100 lanes are no multiple of any instruction's m x n",
        "vectorize 128 outputs at once", fixed=convolution(128, 8),
    ),
    "half of the outputs of a warpgroup": Scenario(
        on_groups(convolution(256, 8)),
        "its 256 lanes are no multiple of any instruction's m x n (512, ",
        "vectorize 512 outputs at once", target="sm_90a", fixed=on_groups(convolution(512, 8)),
    ),
    "a column of outputs on amx": Scenario(
        on_amx(convolution(250, 8, spec=BF16)),
        "needs 16 tile registers for its sums (a block of 250 x 1",
        "vectorize a multiple of 16 outputs at once, so that a tile has 16 columns",
        target="amx", fixed=on_amx(convolution(256, 8, spec=BF16)),
    ),
    "updates of different tiles": Scenario(
        two_tiles((32, 8), (8, 32)), "agree on no common instruction and tile; this one fits",
        "the same types and the same tile", fixed=two_tiles((32, 8), (32, 8)),
    ),
    "more tiles than amx has registers": Scenario(
        on_amx(matmul(64, 32, 4, BF16)),
        "`acc` needs 8 tile registers for its sums (a block of 64 x 32, a register holds 16 x 16), "
        "and 6 of the 8 are free",
        "compute fewer outputs at a time", target="amx", fixed=on_amx(matmul(48, 32, 4, BF16)),
    ),
    "a vector instead of a matrix": Scenario(
        matmul(1, 256, 16), "every row of the tile would be the same", "slide over",
        fixed=matmul(16, 16, 16),
    ),
    # the sum
    "no reduction": Scenario(
        update(f"float32x256(A[ramp(0, 1, 256)])*float32x256(B[ramp(0, 1, 256)]) + {ACC}"),
        "there is no vectorized reduction in it", ".update().atomic().vectorize(r)", fixed=GOOD,
    ),
    "a reduction that is a loop": Scenario(
        update(
            "for (mm.s1.r$x, 0, 16) {\n"
            f"{ACC} = (float32x256(A[ramp(x16(mm.s1.r$x), x16(A.stride.1), 16)])*"
            "float32x256(x16(B[ramp(mm.s1.r$x*B.stride.1, 1, 16)]))) + "
            f"{ACC}\n}}", whole=True,
        ),
        "there is no vectorized reduction in it: the loop over `r.x` is serial",
        "vectorize it: `mm.update().atomic().vectorize(r.x)`", fixed=GOOD,
    ),
    "a maximum instead of a sum": Scenario(
        update(f"{product(op='max')} + {ACC}"),
        "it reduces with `max`; tensor instructions only add", "keep `mm` out of tensor memory",
    ),
    "a minimum of products": Scenario(
        update(f"min({PRODUCT.replace('vector_reduce_add', 'vector_reduce_min')}, {ACC})"),
        "it reduces with `min`", "only sums of products",
    ),
    "a running maximum": Scenario(
        update(f"max({PRODUCT.replace('vector_reduce_add', 'vector_reduce_max')}, {ACC})"),
        "it reduces with `max`", "only sums of products",
    ),
    "a sum without a product": by_group(
        update(f"{reduce(f32(A))} + {ACC}"), "the terms of the sum are not products",
        "multiply `A` by a Func of ones (of type float16", fixed=GOOD,
    ),
    "a sum without a product or an instruction": Scenario(
        update(f"{reduce(A)} + {ACC}", WIDE),
        "no instruction of target sm_80 multiplies float32 into float32",
        "store `A` in a type that has one (bfloat16 x bfloat16; float16 x float16)", fixed=GOOD,
    ),
    "a product rounded before the cast": Scenario(
        update(reduce(f32(f"{A}*{B}")) + f" + {ACC}"),
        "the product is taken in the operands' type, float16, and cast to float32 afterwards, "
        "which rounds it", "`hl.f32(a)*hl.f32(b)` instead of `hl.f32(a*b)`", fixed=GOOD,
    ),
    "a product of three": Scenario(
        update(
            f"{reduce(f'({f32(A)}*{f32(B)})*{f32(WEIGHTS)}')} + {ACC}",
            {**HALVES, "W": ("float16", (16, 16))},
        ),
        "products of 3 operands: `A` and `B` and `W`", "multiply two of them in a Func", fixed=GOOD,
    ),
    "squared differences": Scenario(
        update(reduce(f"({f32(A)} - {f32(B)})*({f32(A)} - {f32(B)})") + f" + {ACC}"),
        "it sums squared differences", "expand the square", fixed=GOOD,
    ),
    "a select that does not end in zero": Scenario(
        where(ROWS, "x4096(10)", "1.0f"), "a select that does not end in zero",
        "`select(condition, a*b, 0)`", fixed=where(ROWS, "x4096(10)"),
    ),
    "a scaled sum": Scenario(
        update(f"{PRODUCT}*float32x256(A[ramp(0, 1, 256)]) + {ACC}"),
        "its reduction is scaled", "do the rest where `mm` is read", fixed=GOOD,
    ),
    "added to something else": Scenario(
        update(f"{PRODUCT} + {ACC}*{ACC}"),
        "the sum is not added to the lanes of `mm` that are stored", "f(x, y) += a*b", fixed=GOOD,
    ),
    "added to other lanes of itself": Scenario(
        update(f"{PRODUCT} + acc[ramp(256, 1, 256)]", size=512),
        "the sum is not added to the lanes of `mm` that are stored", "f(x, y) += a*b", fixed=GOOD,
    ),
    # the operands
    "an operand computed on the fly": by_group(
        update(f"{product(f'{A} + {A}')} + {ACC}"), "an operand is computed on the fly from `A`",
        "compute it into its own Func", fixed=GOOD,
    ),
    "an operand that is a number": by_group(
        update(f"{reduce(f'{f32(A)}*x4096(3.0f)')} + {ACC}"),
        "one operand is the same value in every lane, 3.000000f",
        "multiply where `mm` is read", fixed=GOOD,
    ),
    "an index with a division": by_group(
        update(f"{product(THIRDS)} + {ACC}"), "`A` is read at an index that is divided by 3",
        "copy what is read of `A` into a Func", fixed=GOOD,
    ),
    "an index that wraps around": by_group(
        update(f"{product(WRAPPED)} + {ACC}"),
        "`A` is read at an index that is wrapped around at 16", "copy what is read of `A`",
        fixed=GOOD,
    ),
    "an index that is clamped": by_group(
        update(f"{product(CLAMPED)} + {ACC}"), "`A` is read at an index that is clamped",
        "so that the clamp happens there", fixed=GOOD,
    ),
    "an index that is a product": by_group(
        update(f"{product(TIMES)} + {ACC}", {"A": ("float16", (256,)), "B": HALVES["B"]}),
        "an index that is a product of two vectorized variables", "copy what is read of `A`",
        fixed=GOOD,
    ),
    "a gather": Scenario(
        update(f"{product(GATHERED)} + {ACC}", {**HALVES, "J": ("int32", (4096,))}),
        "`A` is read at an index that is looked up in `J`", "copy what is read of `A` into a Func",
        fixed=GOOD,
    ),
    "both operands along n": Scenario(
        update(f"{product(ALONG_N)} + {ACC}"),
        "both operands vary along n: `A` is read with stride 2 and `B` with stride 1",
        "one of them must not depend on n", fixed=GOOD,
    ),
    "a dimension that moves nothing": by_group(
        update(f"{reduce(COPIES)} + {ACC}"),
        "neither operand varies along one dimension of the tile (extent 2)",
        "compute `mm` without that dimension", fixed=GOOD,
    ),
    "a condition on rows and columns": Scenario(
        from_one(where(ROWS, COLUMNS)), "varies along rows and columns of the tile",
        "where `mm` is read: multiply by the condition, `hl.f32(condition)`",
        fixed=where(ROWS, "x4096(10)"),
    ),
    "a condition on values": by_group(
        where("x4096(0.0f)", f32(A)), "is not affine in the vectorized variables",
        "compare indices, not values", fixed=where(COLUMNS, "x4096(10)"),
    ),
    "a condition that wraps around": Scenario(
        tall("(x1024(ramp(0, 1, 16)) % x16384(4)) < ramp(x256(0), x256(1), 64)"),
        "divides an index or wraps it around", "mask an operand in a Func of its own",
        target="sm_90a", fixed=where(ROWS, "x4096(10)"),
    ),
    "one condition or the other": Scenario(
        from_one(where(f"{COLUMNS} < x4096(3) || x4096(9)", ROWS)),
        "joins comparisons by more than `&&`",
        "mask an operand in a Func of its own", fixed=where(ROWS, "x4096(10)"),
    ),
    # the accumulator
    "an accumulator with gaps": Scenario(
        program(
            HALVES, f"acc[ramp(0, 2, 256)] = {PRODUCT} + acc[ramp(0, 2, 256)]", 512, Spec(),
            "out[ramp(0, 1, 512)] = acc[ramp(0, 1, 512)]",
        ),
        "`acc` is stored at an index that is not dense", "innermost first", fixed=GOOD,
    ),
    "an accumulator stored by scalars": Scenario(
        update(f"{PRODUCT} + {ACC}", init="for (mm.s0.x, 0, 256) {\nacc[mm.s0.x] = 0.0f\n}"),
        "`mm` is stored by scalar code, in the loops over `x` (256)",
        "vectorize `x` in the pure definition", "init", fixed=GOOD,
    ),
    "an accumulator read by scalars": Scenario(
        update(f"{PRODUCT} + {ACC}", readout="for (out.s0.x, 0, 256) {\n"
               "out[out.s0.x] = acc[out.s0.x]\n}"),
        "`mm` is read by scalar code, in the loop over `x`",
        "vectorize the reading stage (`out`)", "read", fixed=GOOD,
    ),
    "an accumulator read transposed": Scenario(
        update(
            f"{PRODUCT} + {ACC}",
            readout="out[ramp(0, 1, 256)] = acc[ramp(ramp(0, 16, 16), x16(1), 16)]",
        ),
        "`mm` is read with stride 16", "in the order in which it is stored", "read", fixed=GOOD,
    ),
    "an accumulator read with a stride": Scenario(
        update(f"{PRODUCT} + {ACC}", readout="out[ramp(0, 1, 128)] = acc[ramp(0, 2, 128)]"),
        "`mm` is read with stride 2: a tile is read as one dense vector",
        "in the order in which it is stored", "read", fixed=GOOD,
    ),
    "an accumulator read in a condition": Scenario(
        update(
            f"{PRODUCT} + {ACC}",
            readout="if (acc[0] < 1.0f) {\nout[0] = 1.0f\n}\n"
            "out[ramp(0, 1, 256)] = acc[ramp(0, 1, 256)]",
        ),
        "the accumulator `acc` is read in a condition", "copy it to an ordinary Func first",
        "condition", fixed=GOOD,
    ),
    "an accumulator read by a reduction with a stride": Scenario(
        update(
            f"{PRODUCT} + {ACC}",
            readout="out[ramp(0, 1, 16)] = (float32x16)vector_reduce_add(acc[ramp(0, 2, 128)])",
        ),
        "a tile is read as one dense vector", "over the whole tile of `mm`", "read", fixed=GOOD,
    ),
    "a predicated update": Scenario(
        update(f"{PRODUCT} + {ACC} if ramp(0, 1, 256) < x256(7)"),
        "the store to `mm` has a predicate", "round the accumulator's tile up", fixed=GOOD,
    ),
    # the target
    "a target without tensor units of that kind": Scenario(
        GOOD, "has no wmma or mma instructions", "or place the Func in MemoryType.AMXTile",
        target="amx", fixed=on_amx(matmul(16, 16, 16, BF16)),
    ),
    "amx on a GPU": Scenario(
        on_amx(matmul(16, 16, 16)), "`acc` is placed in amx memory, and target sm_80 has no amx",
        "compile for amx, or place the Func in MemoryType.WMMAAccumulator",
        fixed=matmul(16, 16, 16),
    ),
    "a restriction that leaves no type": Scenario(
        matmul(16, 16, 16, Spec("int8", "int32")),
        "has no instruction for int8 x int8 -> int32 among those that `instructions=` allows",
        "lift the restriction: wmma.mma.m16n16k16.s8.s32 has these types",
        only=("wmma.mma.m16n16k16.f16.f32",),
    ),
    "a restriction that leaves nothing": Scenario(
        GOOD, "target sm_80 (as restricted) has no wmma or mma instructions",
        "lift the restriction (`instructions=`)", only=("amx",),
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
    dictionary.check("text form", name, error)
    assert error.why
    assert error.hint
    assert error.where is not None
    assert error.where.statement
    assert s.stage in (error.where.stage or "condition")
    assert "loc" not in error.where.statement, "the user never wrote a movement"


def test_the_users_names_are_used():
    with pytest.raises(SelectionError) as caught:
        select(SCENARIOS["a sum without a product"].module, find_target("sm_90a"))
    error = caught.value
    assert error.where is not None
    assert (error.where.func, error.where.location) == ("mm", "user.py:12")
    assert "`mm` (update)" in error.what
    assert "nearest instruction" in str(error)


@pytest.mark.parametrize(
    ("memory", "target", "family"),
    [
        ("WMMAAccumulator", "sm_90a", "wmma"),
        ("WGMMAAccumulator", "sm_90a", "wgmma"),
        ("AMXTile", "amx", "amx"),
    ],
)
@pytest.mark.parametrize("name", ["a product of three", "no reduction", "a scaled sum"])
def test_the_nearest_instruction_is_one_of_the_accumulators_memory(
    name: str, memory: str, target: str, family: str
):
    """sm_90a has instructions of both families, for the same types."""
    text = str(SCENARIOS[name].module).replace("WMMAAccumulator", memory)
    with pytest.raises(SelectionError) as caught:
        select(parse_module(text), find_target(target))
    (nearest,) = re.findall(r"nearest instruction: (\w+)\.", str(caught.value))
    assert nearest == family


@pytest.mark.parametrize("name", [n for n, s in SCENARIOS.items() if s.fixed is not None])
def test_the_change_of_the_hint_is_selected(name: str):
    s = SCENARIOS[name]
    assert s.fixed is not None
    targets = {"AMXTile": "amx", "WGMMAAccumulator": "sm_90a"}
    target = next((t for memory, t in targets.items() if memory in str(s.fixed)), "sm_80")
    selection = select(s.fixed, find_target(target))
    assert instructions(selection.module)
    check_same(s.fixed, selection.module)


@pytest.mark.parametrize("name", list(SCENARIOS)[:8])
def test_without_strict_it_is_reported(name: str):
    s = SCENARIOS[name]
    selection = select(s.module, find_target(s.target), strict=False, instructions=s.only)
    misses = [m for m in selection.report.misses if s.why in m.miss]
    assert misses
    assert "not selected" in str(selection.report)
