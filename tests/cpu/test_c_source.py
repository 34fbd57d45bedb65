"""The text of emitted C: golden, deterministic, free of warnings; tight where it matters; and what
is refused with which words.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from c_programs import (
    AMX,
    BF16,
    BYTES,
    HARDWARE,
    SOFTWARE,
    a_block,
    b_block,
    c_block,
    compiled,
    fill,
    header,
    one_block,
    parsed,
    product,
    read,
    run_both,
    source_of,
    tiled,
)

from selector.cpu import emit
from selector.diagnostics import EmitError, ScheduleError, SelectionError, UserError
from selector.runtime.cpu_compile import find_compiler

pytestmark = pytest.mark.verified

PRODUCT = tiled(BF16, 32, 32, 32, "parallel")


def test_golden(golden: Callable[[str, str], None]) -> None:
    golden("product-32x32.c", source_of(PRODUCT))


def test_the_same_program_is_the_same_text() -> None:
    other = parsed(one_block(BYTES["uud"], 17, 20, 70))
    first = source_of(PRODUCT)
    emit(other, AMX)
    assert source_of(PRODUCT) == first


@pytest.mark.slow
@pytest.mark.parametrize("flags", [HARDWARE, SOFTWARE], ids=["hardware", "software"])
@pytest.mark.parametrize("optimize", ["-O0", "-O3"])
@pytest.mark.parametrize("instruction", [BF16, BYTES["sud"]])
def test_no_warnings(
    flags: tuple[str, ...], optimize: str, instruction: str, tmp_path: Path
) -> None:
    for text in (tiled(instruction, 32, 32, 64, "parallel"), one_block(instruction, 20, 24, 40)):
        compiled(source_of(text), tmp_path, optimize, *flags)


def disassembly(source: str, folder: Path, *flags: str) -> str:
    if shutil.which("objdump") is None:
        pytest.skip("objdump (binutils) is not here")
    path = compiled(source, folder, "-O3", *flags)
    command = ["objdump", "-d", "--no-show-raw-insn", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("instruction", "mnemonic"),
    [(BF16, "tdpbf16ps"), *((name, f"tdpb{key}") for key, name in BYTES.items())],
)
def test_hardware_tiles_are_instructions(instruction: str, mnemonic: str, tmp_path: Path) -> None:
    code = disassembly(source_of(tiled(instruction, 32, 32, 64)), tmp_path, *HARDWARE)
    for word in (mnemonic, "tileloadd", "tilestored", "tilezero", "ldtilecfg", "tilerelease"):
        assert re.search(rf"\b{word}\b", code), word
    called = set(re.findall(r"<(tile_\w+)", code))
    assert not {c for c in called if not c.startswith(("tile_copy", "tile_rows"))}


def test_software_tiles_are_none(tmp_path: Path) -> None:
    code = disassembly(source_of(PRODUCT), tmp_path, *SOFTWARE)
    assert not re.search(r"\btileloadd\b|\btdp", code)


def innermost_loops(assembly: str) -> list[list[str]]:
    """Instructions of every loop without jumps inside, from its label to the jump back."""
    loops: list[list[str]] = []
    label, body = "", []
    for line in assembly.splitlines():
        text = line.split("#")[0].strip()
        if re.fullmatch(r"\.L\w+:", text):
            label, body = text[:-1], []
        elif text and not text.startswith("."):
            body.append(text)
            if re.match(r"j\w+\s", text) and text.split()[-1] == label:
                loops.append(list(body))
    return loops


def test_the_inner_loop_is_loads_products_and_pointers(tmp_path: Path) -> None:
    """2 x 2 tiles of bfloat16: 4 loads, 4 products, and at most 8 instructions besides."""
    (tmp_path / "kernel.c").write_text(source_of(tiled(BF16, 32, 32, 32)))
    flags = ("-std=gnu11", "-O3", "-fno-strict-aliasing", *HARDWARE)
    subprocess.run(
        [find_compiler(), *flags, "-S", "kernel.c", "-o", "kernel.s"], cwd=tmp_path, check=True
    )
    loops = innermost_loops((tmp_path / "kernel.s").read_text())
    hot = [b for b in loops if sum(x.startswith("tdpbf16ps") for x in b) == 4]
    assert len(hot) == 1, "the tested version alone is a loop without jumps"
    (body,) = hot
    assert sum(x.startswith("tileloadd") for x in body) == 4
    others = [x for x in body if not x.startswith(("tileloadd", "tdpbf16ps"))]
    assert len(others) <= 8, others
    assert all(x.split()[0].rstrip("lq") in ("lea", "add", "sub", "cmp", "j", "jne", "inc", "mov")
               for x in others), others  # fmt: skip


def test_packing_is_vectorized(tmp_path: Path) -> None:
    """Rows to VNNI order, as hoisting leaves it: shuffles instead of single elements."""
    text = """module pack
input B: bfloat16 [(0, B.extent.0, 1), (0, B.extent.1, B.stride.1)]
output P: bfloat16 [(0, P.extent.0, 1)]
body {
 parallel (x, 0, P.extent.0/1024) {
  P[ramp(x*1024, 1, 1024)] =
    B[ramp(ramp(ramp(x*32, B.stride.1, 2), x2(1), 32), x64(2*B.stride.1), 16)]
 }
}"""
    code = disassembly(source_of(text), tmp_path, "-march=x86-64-v3")
    assert re.search(r"vpunpcklwd|vpermt2w|vpermw", code)


# ---------------------------------------------------------------------------- refusals


def block(m: int, n: int, offset: int = 0, name: str = "mm") -> str:
    statements = (
        fill(BF16, m, n, offset=offset),
        product(BF16, m, n, 32, f"A[{a_block(m, 32)}]", f"B[{b_block(n, 32, 2)}]", offset),
    )
    return "\n".join(statements).replace("acc[", f"{name}[")


def said(error: type[UserError], body: str) -> str:
    with pytest.raises(error) as caught:
        source_of(f"{header(BF16)}\nbody {{\n{body}\n}}")
    return str(caught.value)


def test_too_many_sums() -> None:
    text = said(SelectionError, f"allocate mm[float32 * 2304] in AMXTile\n{block(48, 48)}")
    assert text.startswith("`mm` needs 9 tile registers for its sums; 6 are free for them\n")
    assert "its blocks are 48 x 48" in text
    assert "hint:  compute fewer outputs at a time" in text


def test_sums_at_a_place_that_varies() -> None:
    inner = product(BF16, 16, 16, 32, f"A[{a_block(16, 32)}]", f"B[{b_block(16, 32, 2)}]")
    inner = inner.replace("acc[ramp(0,", "mm[ramp(i*256,")
    text = said(
        EmitError,
        f"allocate mm[float32 * 32768] in AMXTile\nfor (i, 0, C.extent.0) {{\n{inner}\n}}",
    )
    assert text == (
        "`mm` is kept in tile registers, which are numbered\n"
        "  why:   its index depends on i, which vary at run time\n"
        "  hint:  unroll the loops over its tiles, of at most 8 iterations each"
    )


def test_blocks_that_overlap() -> None:
    text = said(
        EmitError,
        f"allocate mm[float32 * 512] in AMXTile\n{block(16, 16)}\n{block(16, 16, offset=128)}",
    )
    assert text.startswith("blocks of `mm` overlap")


def test_gpu_loops() -> None:
    text = said(ScheduleError, "gpu_block<CUDA> (b, 0, 4) {\nC[b] = 1.0f\n}")
    assert text.startswith("the loop b is a gpu_block loop; amx has none\n")
    assert "hint:  use parallel(...)" in text


def test_gpu_memory() -> None:
    text = said(ScheduleError, "allocate s[float32 * 4] in GPUShared\ns[0] = 1.0f\nC[0] = s[0]")
    assert text.startswith("`s` is stored in GPUShared; amx has none\n")


def test_stages_on_a_cpu() -> None:
    body = "allocate s[float32 * 4] in Heap stages(3)\ns[0] = 1.0f\nC[0] = s[0]"
    text = said(ScheduleError, body)
    assert text.startswith(
        "stages of `s` cannot overlap on a CPU\n  where: in `s`\n  why:   a core"
    )
    assert "hint:  leave pipeline_stages out" in text


def test_tiles_are_loaded_one_step_ahead_at_most() -> None:
    text = said(ScheduleError, f"allocate mm[float32 * 256] in AMXTile stages(3)\n{block(16, 16)}")
    assert text.startswith("tiles of `mm` cannot be loaded 2 steps ahead\n")
    assert text.endswith("hint:  pipeline_stages of 2")


def test_nothing_is_loaded_ahead_without_a_loop_over_the_sum() -> None:
    text = said(ScheduleError, f"allocate mm[float32 * 256] in AMXTile stages(2)\n{block(16, 16)}")
    assert text.startswith("no operands of `mm` can be loaded ahead\n")
    assert "hint:  a loop over the sum" in text


def test_a_vector_that_may_have_changed() -> None:
    body = "let v = C[ramp(0, 1, 4)]\nC[ramp(0, 1, 4)] = x4(1.0f)\nC[ramp(8, 1, 4)] = v"
    assert said(EmitError, body) == "a vector of `C` is used after that may have changed"


def test_threads_that_share_sums() -> None:
    store = f"C[{c_block(16, 16)}] = {read(BF16, 16, 16)}".replace("acc[", "mm[")
    text = said(
        ScheduleError,
        "allocate mm[float32 * 256] in AMXTile\n"
        f"{block(16, 16)}\nparallel (i, 0, 4) {{\n{store}\n}}",
    )
    assert text.startswith("the parallel loop i uses tile registers that another thread fills")
    assert "hint:  compute the Func inside the parallel loop" in text


def test_a_function_without_a_form() -> None:
    text = said(EmitError, "C[0] = (float32)bessel(C[1])")
    assert text.startswith("the function 'bessel' has no form in C")


def test_limits_that_are_statements_stand_ahead_of_a_shared_loop() -> None:
    """OpenMP takes no statements in a head, and the macro for Halide's division is some."""
    text = """module test
output C: float32 [(0, C.extent.0, 1)]
body {
 parallel (y, 0, ((C.extent.0 - 3)/33) + 1) {
  for (x, 0, 33) {
   if (((y*33) + x) < C.extent.0) {
    C[(y*33) + x] = 1.000000f
   }
  }
 }
}"""
    lines = source_of(text).splitlines()
    (at,) = (i for i, line in enumerate(lines) if "#pragma omp" in line)
    assert "_end = floor_div(" in lines[at - 1]
    assert "_end; ++" in lines[at + 1]
    found, expected = run_both(text, {}, (40,))
    assert found.tolist() == expected.tolist() == [1.0] * 40
