"""What has no form in a CUDA kernel ends in an error that says what and why."""

from __future__ import annotations

import pytest

import selector.intrinsics  # noqa: F401  (meanings of calls)
from selector.diagnostics import EmitError, ScheduleError, UserError
from selector.gpu.codegen.program import emit
from selector.ir.parser import parse_module
from selector.targets import find_target

HEAD = """module t
input I: float16 [(0, I.extent.0, 1), (0, I.extent.1, I.stride.1)]
input K: float16 [(0, K.extent.0, 1)]
output out: float32 [(0, out.extent.0, 1)]
body {
"""
FILL = "acc[ramp(0, 1, 128)] = (float32x128)tile.fill(x128(0.000000f))"
READ = "out[ramp(b*128, 1, 128)] = (float32x128)tile.read(acc[ramp(0, 1, 128)])"
MULTIPLY = (
    "acc[ramp({at}, 1, 128)] = (float32x128)mma.m16n8k16.f16.f32(16, 8, 16, "
    "acc[ramp({at}, 1, 128)], "
    "I[ramp(ramp(0, 1, 16), x16(8), 16)], I[ramp(ramp(64, 1, 8), x8(I.stride.1), 16)])"
)


def block(text: str) -> str:
    return f"gpu_block<CUDA> (b, 0, 2) {{\n{text}\n}}"


def threads(text: str, count: int | str = 2) -> str:
    return f"gpu_thread<CUDA> (t, 0, {count}) {{\n{text}\n}}"


def warps(outer: str, inner: str, text: str) -> str:
    """Two by two warps."""
    heads = [f"gpu_thread<CUDA> ({name}, 0, 2) {{\n" for name in (outer, inner)]
    return f"{''.join(heads)}{text}\n}}\n}}\n"


def two(text: str) -> str:
    """A statement on tile t + 2 * u of the accumulator."""
    return text.replace("acc[ramp(0", "acc[ramp(t*128 + u*256")


def tile(text: str, elements: int = 128) -> str:
    return f"allocate acc[float32 * {elements}] in WMMAAccumulator\n{text}"


def staged(name: str, stages: int, extent: str = "64") -> str:
    return (
        f"allocate {name}[float16 * {extent}] in GPUShared stages({stages})\n"
        f"{name}[ramp(0, 1, 64)] = I[ramp(i*64, 1, 64)]"
    )


HOST = "out[0] = 1.000000f"
GOOD = "\n".join((FILL, MULTIPLY.format(at=0), READ))

REFUSALS = {
    "host statement": (HOST, ScheduleError, "computed on the host"),
    "host loop": (f"for (i, 0, 4) {{\n{block(HOST)}\n}}", ScheduleError, "computed on the host"),
    "shared memory": (
        block("allocate s[float32 * 65536] in GPUShared\ns[0] = 1.000000f\nout[b] = s[0]"),
        ScheduleError,
        "bytes of shared memory",
    ),
    "threads": (
        block(threads("out[t] = 1.000000f", 2048)),
        ScheduleError,
        "2048 threads per block",
    ),
    "warps": (block(threads(tile(GOOD), 33)), ScheduleError, "1056 threads per block"),
    "thread extent": (
        block(threads("out[t] = 1.000000f", "out.extent.0")),
        ScheduleError,
        "no constant extent",
    ),
    "tensor statement outside the warps": (
        block(tile(f"{FILL}\n{threads(MULTIPLY.format(at=0))}")),
        ScheduleError,
        "outside the warps",
    ),
    "register index": (
        block(tile(f"for (i, 0, out.extent.0) {{\n{MULTIPLY.format(at='i*128')}\n}}", 1024)),
        EmitError,
        "only ever indexed by constants",
    ),
    "stages differ": (
        block(
            f"for (i, 0, 4) {{\n{staged('s', 2)}\n{staged('r', 3)}\n"
            f"{threads('out[t] = float32(s[t]) + float32(r[t])')}\n}}"
        ),
        ScheduleError,
        "one number of pipeline stages",
    ),
    "size of an allocation": (
        block("allocate s[float32 * out.extent.0] in GPUShared\ns[0] = 1.000000f\nout[b] = s[0]"),
        ScheduleError,
        "no constant size",
    ),
    "size of a local": (
        block(threads("allocate s[float32 * out.extent.0]\ns[0] = 1.000000f\nout[t] = s[0]")),
        UserError,
        "no constant size",
    ),
    "AMX tile": (
        block("allocate s[float32 * 256] in AMXTile\ns[0] = 1.000000f\nout[b] = s[0]"),
        ScheduleError,
        "AMX tile",
    ),
    "unknown function": (
        block(threads("out[t] = (float32)bessel_f32(float32(K[t]))")),
        EmitError,
        "'bessel_f32'",
    ),
    "part of a tile": (
        block(
            tile(
                "acc[ramp(0, 1, 64)] = (float32x64)tile.fill(x64(0.000000f))\n"
                + MULTIPLY.format(at=0)
            )
        ),
        EmitError,
        "not whole tensor tiles",
    ),
    "two shapes at one place": (
        block(
            tile(
                f"{MULTIPLY.format(at=0)}\n"
                + MULTIPLY.format(at=0)
                .replace("m16n8k16.f16.f32(16, 8", "m16n8k16.f16.f32(16, 16")
                .replace("1, 128", "1, 256")
                .replace("x128", "x256")
                .replace("ramp(64, 1, 8), x8(", "ramp(64, 1, 16), x16("),
                256,
            )
        ),
        EmitError,
        "both start at the same element|used with tiles",
    ),
    "atomic updates of one element": (
        block(threads("atomic (out) {\nout[int32(K[t])] = out[int32(K[t])] + 1.000000f\n}")),
        ScheduleError,
        "several threads update one element",
    ),
    "registers of other warps": (
        block(
            tile(
                warps("t", "u", two(FILL))
                + warps("t", "u", two(MULTIPLY.format(at=0)))
                + warps("u", "t", two(READ)),
                512,
            )
        ),
        ScheduleError,
        "read by other warps than those that hold it",
    ),
    "a vector from itself": (
        block(
            threads("allocate s[float32 * 8]\ns[ramp(0, 1, 4)] = s[ramp(1, 1, 4)]\nout[t] = s[0]")
        ),
        EmitError,
        "other elements of itself",
    ),
}


def emit_text(body: str) -> str:
    return emit(parse_module(f"{HEAD}{body}\n}}\n", "t.vir"), find_target("sm_90a")).source


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal(name: str) -> None:
    body, kind, message = REFUSALS[name]
    with pytest.raises(kind, match=message) as caught:
        emit_text(body)
    assert isinstance(caught.value, UserError)
    assert "Traceback" not in str(caught.value)


def test_the_programs_are_refused_for_what_they_name() -> None:
    """Without the fault the same program is emitted."""
    assert "mma_m16n8k16" in emit_text(block(tile(GOOD)))
    assert "mma_m16n8k16" in emit_text(block(threads(tile(GOOD), 4)))
    stages = [warps("t", "u", two(x)) for x in (FILL, MULTIPLY.format(at=0), READ)]
    assert "mma_m16n8k16" in emit_text(block(tile("".join(stages), 512)))
    apart = threads("atomic (out) {\nout[t] = out[t] + 1.000000f\n}")
    assert "out" in emit_text("gpu_block<CUDA> (b, 0, 1) {\n" + apart + "\n}")
