"""C for AMX: compiled with software tiles, held against the interpreter and float64."""

from __future__ import annotations

import numpy as np
import pytest
from c_programs import (
    BF16,
    BYTES,
    a_block,
    b_block,
    c_block,
    executable,
    fill,
    header,
    one_block,
    operands,
    plan_of,
    product,
    read,
    relative_error,
    run_both,
    sums,
    tiled,
    types_of,
    vector,
)

from selector.ir.bfloat16 import from_bits, to_bits

pytestmark = pytest.mark.verified


def agree(found: np.ndarray, expected: np.ndarray, truth: np.ndarray | None = None) -> None:
    """Integers are equal; floats are sums in another order."""
    if found.dtype.kind == "i":
        np.testing.assert_array_equal(found, expected)
    else:
        assert relative_error(found, expected.astype(np.float64)) < 1e-6
    if truth is not None:
        assert relative_error(found, truth) < (1e-6 if found.dtype.kind == "f" else 1e-12)


BLOCKS = [
    (16, 16, 32),
    (32, 32, 32),  # 2 x 2
    (32, 32, 96),  # three pieces of k
    (16, 64, 32),  # 1 x 4
    (48, 32, 32),  # 3 x 2
    (96, 16, 64),  # 6 x 1
    (1, 1, 1),
    (7, 5, 3),
    (17, 33, 31),  # last pieces of every extent
    (20, 24, 40),  # more shapes than registers: padded along k
    (30, 47, 130),
    (33, 17, 1),
]


@pytest.mark.parametrize("size", BLOCKS, ids=str)
def test_blocks_of_every_size(size: tuple[int, int, int]) -> None:
    m, n, k = size
    arrays, a, b = operands(BF16, m, n, k)
    agree(*run_both(one_block(BF16, m, n, k), arrays, (m, n)), a @ b)


@pytest.mark.parametrize("name", BYTES)
@pytest.mark.parametrize("size", [(32, 32, 64), (16, 16, 192), (7, 5, 3), (17, 20, 70)], ids=str)
def test_bytes(name: str, size: tuple[int, int, int]) -> None:
    m, n, k = size
    arrays, a, b = operands(BYTES[name], m, n, k)
    agree(*run_both(one_block(BYTES[name], m, n, k), arrays, (m, n)), a @ b)


LOOPS = [("for", "for"), ("parallel", "for"), ("for", "parallel"), ("parallel", "parallel")]


@pytest.mark.parametrize("loops", LOOPS, ids="-".join)
@pytest.mark.parametrize("shape", [(64, 64, 64), (33, 70, 100), (1, 1, 1), (100, 31, 32)], ids=str)
def test_ragged_products(loops: tuple[str, str], shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    arrays, a, b = operands(BF16, m, n, -(-k // 32) * 32)  # whole pieces of k
    text = tiled(BF16, 32, 32, 32, *loops)
    agree(*run_both(text, arrays, (m, n)), a @ b)


def test_ragged_products_of_bytes() -> None:
    arrays, a, b = operands(BYTES["usd"], 45, 77, 128)
    agree(*run_both(tiled(BYTES["usd"], 16, 32, 64), arrays, (45, 77)), a @ b)


def test_rows_that_lie_apart_are_read_in_place() -> None:
    arrays, a, b = operands(BF16, 64, 64, 64)
    room = np.full((64, 100), 0x7FC0, np.uint16)
    room[:, 10:74] = arrays["A"]
    found, expected = run_both(tiled(BF16, 32, 32, 32), {**arrays, "A": room[:, 10:74]}, (64, 64))
    agree(found, expected, a @ b)


# ------------------------------------------------------------------ operands that are gathered


def update(a: str, b: str, m: int = 20, n: int = 9, k: int = 11, *more: str) -> str:
    """A block of bfloat16 with operands as given."""
    body = [
        f"allocate acc[float32 * {m * n}] in AMXTile",
        fill(BF16, m, n),
        product(BF16, m, n, k, a, b),
        f"C[{c_block(m, n)}] = {read(BF16, m, n)}",
    ]
    return "\n".join((header(BF16, *more), "body {", *body, "}"))


def test_a_transposed_operand_is_gathered() -> None:
    m, n, k = 20, 9, 11
    arrays, a, b = operands(BF16, m, n, k)
    arrays["A"] = np.ascontiguousarray(arrays["A"].T)
    text = update(f"A[ramp(ramp(0, A.stride.1, {k}), x{k}(1), {m})]", f"B[{b_block(n, k, 2)}]")
    agree(*run_both(text, arrays, (m, n)), a @ b)


@pytest.mark.parametrize("limit", [0, 1, 7, 11])
def test_masked_operands(limit: int) -> None:
    m, n, k = 20, 9, 11
    arrays, a, b = operands(BF16, m, n, k)
    mask = f"(x{m}(ramp(0, 1, {k})) < x{m * k}(limit))"
    text = update(f"A[{a_block(m, k)} if {mask}]", f"B[{b_block(n, k, 2)}]", m, n, k)
    text = text.replace("body {", "scalar limit: int32\nbody {")
    found, expected = run_both(text, arrays, (m, n), limit=limit)
    agree(found, expected, a[:, :limit] @ b[:limit] if limit else np.zeros((m, n)))


@pytest.mark.parametrize("k", [11, 32])
def test_a_swizzle_that_was_left_in_place(k: int) -> None:
    m, n = 20, 9
    arrays, a, b = operands(BF16, m, n, k)
    arrays["R"] = to_bits(b)
    groups = -(-k // 2) * 2
    value = f"R[ramp(ramp(0, 1, {n}), x{n}(R.stride.1), {k})]"
    text = update(
        f"A[{a_block(m, k)}]",
        f"ExprVar((bfloat16x{groups * n})vnni({k}, {n}, 2, {value}))",
        m, n, k, "input R: bfloat16 [(0, R.extent.0, 1), (0, R.extent.1, R.stride.1)]",
    )  # fmt: skip
    agree(*run_both(text, arrays, (m, n)), a @ b)


@pytest.mark.parametrize(
    ("stride", "dilation", "phases", "taps"),
    [(1, 1, 1, 5), (2, 1, 1, 7), (1, 3, 1, 4), (1, 1, 2, 3)],
)
def test_bands(stride: int, dilation: int, phases: int, taps: int) -> None:
    """Outputs along the columns, and along the rows of the transposed band."""
    from selector.intrinsics.functions import toeplitz, toeplitz_rows

    m, n = 16, 8
    k = toeplitz_rows(taps, n, stride, dilation, phases)
    arrays, a, _ = operands(BF16, m, n, k)
    weights = to_bits(np.random.default_rng(1).standard_normal(phases * taps).astype(np.float32))
    arrays["T"] = weights
    band = toeplitz(from_bits(weights), k, n, stride, dilation, phases)
    load = f"T[ramp(0, 1, {phases * taps})]"
    call = f"(bfloat16x{k * n})toeplitz({k}, {n}, {stride}, {dilation}, {phases}, {load})"
    packed = f"(bfloat16x{-(-k // 2) * 2 * n})vnni({k}, {n}, 2, {call})"
    more = "input T: bfloat16 [(0, T.extent.0, 1)]"
    text = update(f"A[{a_block(m, k)}]", packed, m, n, k, more)
    agree(*run_both(text, arrays, (m, n)), a @ band)
    left = f"(bfloat16x{k * n})toeplitz.t({k}, {n}, {stride}, {dilation}, {phases}, {load})"
    arrays_b, _, b = operands(BF16, n, m, k)
    text = update(left, f"B[{b_block(m, k, 2)}]", n, m, k, more)
    agree(*run_both(text, {**arrays_b, "T": weights}, (n, m)), band.T @ b)


# ------------------------------------------------------------------ fills and read-outs


def with_ends(init: str, out: str, *more: str, m: int = 20, n: int = 24, result: str = "") -> str:
    body = [
        f"allocate acc[float32 * {m * n}] in AMXTile",
        init,
        product(BF16, m, n, 32, f"A[{a_block(m, 32)}]", f"B[{b_block(n, 32, 2)}]"),
        out,
    ]
    return "\n".join((header(BF16, *more, out=result), "body {", *body, "}"))


M, N = 20, 24
L = M * N
ACC = sums(M, N)
OUT = c_block(M, N)
BIAS = "input D: float32 [(0, D.extent.0, 1)]"
READ = read(BF16, M, N)
ENDS = {
    "constant": (fill(BF16, M, N, vector("1.5f", L)), f"C[{OUT}] = {READ}", ()),
    "bias": (fill(BF16, M, N, f"x{M}(D[ramp(0, 1, {N})])"), f"C[{OUT}] = {READ}", (BIAS,)),
    "scaled": (
        f"{fill(BF16, M, N, vector('2.0f', L))}\n{ACC} = {ACC}*{vector('0.25f', L)}",
        f"C[{OUT}] = {READ}",
        (),
    ),
    "masked fill": (
        f"{fill(BF16, M, N)}\n{ACC} = {vector('3.0f', L)} if "
        f"(x{M}(ramp(0, 1, {N})) < {vector('7', L)})",
        f"C[{OUT}] = {READ}",
        (),
    ),
    "relu": (fill(BF16, M, N), f"C[{OUT}] = max({READ}, {vector('0.0f', L)})", ()),
    "bias after": (fill(BF16, M, N), f"C[{OUT}] = {READ} + x{M}(D[ramp(0, 1, {N})])", (BIAS,)),
    "transposed": (
        fill(BF16, M, N),
        f"C[ramp(ramp(0, C.stride.1, {N}), x{N}(1), {M})] = {READ}",
        (),
    ),
    "rows in a loop": (
        fill(BF16, M, N),
        f"for (i, 0, {M}) {{\nC[ramp(i*C.stride.1, 1, {N})] = acc[ramp(i*{N}, 1, {N})]\n}}",
        (),
    ),
    "one row": (
        fill(BF16, M, N),
        f"C[{OUT}] = {READ}\nC[ramp(0, 1, {N})] = acc[ramp({3 * N}, 1, {N})]",
        (),
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_fills_and_read_outs(name: str) -> None:
    init, out, more = ENDS[name]
    arrays, _, _ = operands(BF16, M, N, 32)
    arrays["D"] = np.random.default_rng(2).standard_normal(N).astype(np.float32)
    shape = (N, M) if name == "transposed" else (M, N)
    agree(*run_both(with_ends(init, out, *more), arrays, shape))


def test_results_in_another_type() -> None:
    out = f"C[{OUT}] = bfloat16x{L}({READ})"
    arrays, a, b = operands(BF16, M, N, 32)
    found, expected = run_both(with_ends(fill(BF16, M, N), out, result="bfloat16"), arrays, (M, N))
    assert relative_error(found, expected.astype(np.float64)) < 1e-3
    assert relative_error(found, a @ b) < 4e-3


def test_padded_blocks_are_filled_and_read() -> None:
    """Two operands of different depths and a last row of blocks: shapes that need padding."""
    m, n = 20, 24
    body = [
        f"allocate acc[float32 * {m * n}] in AMXTile",
        fill(BF16, m, n, vector("0.5f", m * n)),
        product(BF16, m, n, 40, f"A[{a_block(m, 40)}]", f"B[{b_block(n, 40, 2)}]"),
        product(BF16, m, n, 6, f"A[{a_block(m, 6)}]", f"B[{b_block(n, 6, 2)}]"),
        f"C[{c_block(m, n)}] = {read(BF16, m, n)}",
    ]
    arrays, a, b = operands(BF16, m, n, 40)
    text = "\n".join((header(BF16), "body {", *body, "}"))
    agree(*run_both(text, arrays, (m, n)), a @ b + a[:, :6] @ b[:6] + 0.5)


# ------------------------------------------------------------------ several blocks and scopes


def test_blocks_of_one_accumulator_share_operands() -> None:
    """2 x 2 blocks of bytes as four statements, in a loop over k."""
    name = BYTES["ssd"]
    body = ["allocate acc[int32 * 1024] in AMXTile"]
    body += [fill(name, 16, 16, offset=256 * i) for i in range(4)]
    body.append("for (r, 0, 3) {")
    for i in range(4):
        a = a_block(16, 64, f"{i // 2}*16*A.stride.1 + r*64")
        b = b_block(16, 64, 4, f"r*16*B.stride.2 + {i % 2}*64")
        body.append(product(name, 16, 16, 64, f"A[{a}]", f"B[{b}]", 256 * i))
    body.append("}")
    for i in range(4):
        place = c_block(16, 16, f"{i // 2}*16*C.stride.1 + {i % 2}*16")
        body.append(f"C[{place}] = {read(name, 16, 16, 256 * i)}")
    arrays, a, b = operands(name, 32, 32, 192)
    text = "\n".join((header(name), "body {", *body, "}"))
    agree(*run_both(text, arrays, (32, 32)), a @ b)


def scope(m: int, n: int, k: int, row: str) -> str:
    a = a_block(m, k, f"({row})*A.stride.1")
    return "\n".join((
        f"allocate acc[float32 * {m * n}] in AMXTile",
        fill(BF16, m, n),
        product(BF16, m, n, k, f"A[{a}]", f"B[{b_block(n, k, 2)}]"),
        f"C[{c_block(m, n, f'({row})*C.stride.1')}] = {read(BF16, m, n)}",
    ))  # fmt: skip


@pytest.mark.parametrize("loop", ["for", "parallel"])
def test_scopes_of_different_shapes_take_turns(loop: str) -> None:
    parts = scope(16, 16, 32, "i*24"), scope(8, 16, 20, "i*24 + 16")
    body = f"{loop} (i, 0, 3) {{\n{{\n{parts[0]}\n}}\n{{\n{parts[1]}\n}}\n}}"
    arrays, a, b = operands(BF16, 72, 16, 32)
    found, expected = run_both(f"{header(BF16)}\nbody {{\n{body}\n}}", arrays, (72, 16))
    truth = a @ b
    short = a[:, :20] @ b[:20]
    for i in range(3):
        truth[24 * i + 16 : 24 * i + 24] = short[24 * i + 16 : 24 * i + 24]
    agree(found, expected, truth)


def test_a_scope_beside_a_parallel_loop() -> None:
    """The thread that runs the loop too finds its own configuration again."""
    parts = [scope(16, 16, 32, "0"), f"parallel (i, 0, 2) {{\n{scope(8, 16, 32, 'i*8 + 16')}\n}}",
             scope(16, 16, 32, "32")]  # fmt: skip
    body = "\n".join(f"{{\n{p}\n}}" for p in parts)
    arrays, a, b = operands(BF16, 48, 16, 32)
    agree(*run_both(f"{header(BF16)}\nbody {{\n{body}\n}}", arrays, (48, 16)), a @ b)


def test_nested_loops_around_products_are_tested_once() -> None:
    """Two reduction loops; the last rows of A lie outside and count as zero."""
    v = types_of(BF16)[3]
    a = a_block(16, 32, "(p + q*2)*32")
    b = b_block(16, 32, v, "(p + q*2)*16*B.stride.2")
    body = [
        "allocate acc[float32 * 256] in AMXTile",
        fill(BF16, 16, 16),
        "for (q, 0, 2) {\nfor (p, 0, 2) {",
        product(BF16, 16, 16, 32, f"A[{a}]", f"B[{b}]"),
        "}\n}",
        f"C[{c_block(16, 16)}] = {read(BF16, 16, 16)} if "
        "(ramp(x16(0), x16(1), 16) < x256(C.extent.1))",
    ]
    arrays, left, right = operands(BF16, 13, 16, 128)
    text = "\n".join((header(BF16), "body {", *body, "}"))
    agree(*run_both(text, arrays, (13, 16)), left @ right)


def test_memory_is_kept_from_call_to_call() -> None:
    """Temporaries on the heap, in threads and outside; of every size, again and again."""
    text = """module heap
input I: float32 [(0, I.extent.0, 1)]
output C: float32 [(0, C.extent.0, 1)]
body {
 allocate t[float32 * C.extent.0 * 9] in Heap
 for (i, 0, C.extent.0) {
  t[i*9] = I[i]*2.0f
 }
 parallel (j, 0, C.extent.0) {
  allocate u[float32 * (j*3000 + 1)] in Heap
  u[j*3000] = t[j*9] + 1.0f
  C[j] = u[j*3000]
 }
}"""
    run = executable(plan_of(text))
    for count in (1, 40, 3, 40, 200):
        values = np.arange(count, dtype=np.float32)
        out = np.full(count, np.nan, np.float32)
        run([], {"I": values}, out=out)
        np.testing.assert_array_equal(out, values * 2 + 1)
