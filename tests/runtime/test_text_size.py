"""The size of a text with its loops unrolled, and what is said of a kernel that is too large."""

from __future__ import annotations

import pytest

from selector.diagnostics import InternalError, LimitError, ScheduleError, UserError
from selector.runtime import nvrtc
from selector.runtime.nvrtc import compile_apart
from selector.runtime.text_size import unrolled_size


def kernel(*lines: str) -> str:
    return "\n".join(('extern "C" __global__ void k(float* a) {', *lines, "}"))


STORE = "a[0] = 1.0f;"


@pytest.mark.parametrize(
    ("loop", "copies"),
    [
        ("#pragma unroll\nfor (int i = 0; i < 40; ++i) {", 40),
        ("#pragma unroll\nfor (int i = 2; i < 40; i += 4) {", 10),
        ("#pragma unroll 4\nfor (int i = 0; i < 40; ++i) {", 4),
        ("#pragma unroll 1\nfor (int i = 0; i < 8; ++i) {", 1),
        ("for (int i = 0; i < 8; ++i) {", 8),
        ("for (int i = 0; i < 40; ++i) {", 1),
        ("for (int i = (int)threadIdx.x; i < 8; i += 1) {", 1),
        ("if (a) {", 1),
    ],
)
def test_loops(loop: str, copies: int) -> None:
    assert unrolled_size(kernel(loop, STORE, "}")).largest().copies == copies


def test_nested_loops_and_equal_lines() -> None:
    text = kernel(
        "#pragma unroll", "for (int i = 0; i < 20; ++i) {", "#pragma unroll",
        "for (int j = 0; j < 30; ++j) {", "b_2[3] = b_1[7] * 2;", "b_4[5] = b_9[9] * 2;", "}", "}",
    )  # fmt: skip
    found = unrolled_size(text).largest()
    assert (found.line.text, found.copies) == ("b_2[3] = b_1[7] * 2;", 2 * 20 * 30)
    assert found.line.loops == ("i", "j")


def test_the_func_of_what_is_repeated() -> None:
    text = kernel(
        "float* to = blur_x + 7;", "#pragma unroll", "for (int i = 0; i < 9; ++i) {",
        "to[i] = sqrtf(0.5f) * sqrtf(0.25f);", "}",
    )  # fmt: skip
    found = unrolled_size(text).largest({"blur.x", "blu", "sharp"})
    assert found.line.text.startswith("to[i]")
    assert found.func == "blur.x"


def test_what_a_line_reads_is_not_what_it_is_for() -> None:
    text = kernel(
        "const int acc_s1_x_thread_id_x = warp;", "// acc: 1 instructions",
        "u32 r0 = pack16(staged[q], staged[q + 8]);", "mma(acc[0], r0);",
        "const f16* const from = staged + 2;",
    )  # fmt: skip
    found = unrolled_size(text).largest({"acc", "staged"})
    assert (found.func, found.stage) == ("acc", "update")
    assert found.line.text.startswith("u32 r0")


def test_a_func_with_many_lines_before_one_with_the_longest() -> None:
    """Most of the text is for ``blur``, though no line of it is as long as that of ``sharp``."""
    many = (f"blur[{c}] = a[0] * {'b' * 20}{c};" for c in ("p", "qq", "rrr", "ssss", "ttttt"))
    text = kernel("for (int blur_s1_y = 0; blur_s1_y < 99; ++blur_s1_y) {", *many, "}",
                  f"sharp[0] = {' + '.join(['1.0f'] * 12)};")  # fmt: skip
    found = unrolled_size(text).largest(["sharp", "blur"])
    assert (found.func, found.stage) == ("blur", "update")


def test_what_names_no_func_is_for_that_of_its_kernel() -> None:
    text = kernel("b[0] = 1.0f;", "b[1] = 1.0f;").replace("void k(", "void kernel_blur(")
    assert unrolled_size(text).largest().func == "blur"


def test_loops_are_counted() -> None:
    loop = "for (int i = (int)threadIdx.x; i < 8; i += 64) {"
    assert unrolled_size(kernel(*(loop, STORE, "}") * 5)).loops == 5


@pytest.mark.nvrtc
def test_many_loops_are_compiled_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def apart(*_: object) -> tuple[bytes, str]:
        raise LimitError("late")

    monkeypatch.setattr(nvrtc, "compile_apart", apart)
    loop = "for (int i = (int)threadIdx.x; i < 8; i += 64) {"
    store = f"a[i] = {' + '.join(['1.0f'] * 100)};"
    assert nvrtc.compile_to_cubin(kernel(*(loop, store, "}") * 5), "sm_80")
    with pytest.raises(ScheduleError, match="99 others"):
        nvrtc.compile_to_cubin(kernel(*(loop, store, "}") * 99), "sm_80")


HUGE = kernel(*(f"a[{i}] = a[{i} + threadIdx.x] * 2.0f;" for i in range(8000)))
LARGE = kernel(*(f"a[{i}] = {' + '.join(['1.0f'] * 300)};" for i in range(120)))


@pytest.mark.nvrtc
def test_what_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELECTOR_NVRTC_SECONDS", "1")
    with pytest.raises(ScheduleError) as caught:
        nvrtc.compile_to_cubin(HUGE, "sm_80")
    error = caught.value
    assert "in 1 s" in error.what
    assert "8000 unrolled copies" in error.why
    assert "unroll fewer loops" in error.hint
    assert error.where is not None
    assert error.where.statement.startswith("a[0] =")


@pytest.mark.nvrtc
def test_a_large_kernel_is_the_same_wherever_it_is_compiled() -> None:
    assert unrolled_size(LARGE).seconds > nvrtc.AT_ONCE
    code = nvrtc.compile_to_cubin(LARGE, "sm_80")
    assert code == nvrtc.compiled(LARGE, "sm_80", ())[0]
    with pytest.raises(InternalError, match="does not compile"):
        nvrtc.compile_to_cubin(LARGE.replace("a[17]", "b[17]"), "sm_80")


def test_a_process_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(LimitError):
        compile_apart(HUGE, "sm_80", (), 1)


def test_seconds_that_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELECTOR_NVRTC_SECONDS", "soon")
    with pytest.raises(UserError, match="SELECTOR_NVRTC_SECONDS is 'soon'"):
        nvrtc.compile_to_cubin(HUGE, "sm_80")
