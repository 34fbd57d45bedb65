"""What is foretold to take long is compiled apart, and said to be too large."""

from __future__ import annotations

import json

import pytest

from selector.diagnostics import InternalError, LimitError, ScheduleError, UserError, Where
from selector.runtime import nvrtc
from selector.runtime.nvrtc import compile_apart
from selector.runtime.plan import Part, Plan, TextSize
from selector.runtime.plan_json import plan_from_json, plan_to_json


def kernel(*lines: str) -> str:
    return "\n".join(('extern "C" __global__ void k(float* a) {', *lines, "}"))


HUGE = kernel(*(f"a[{i}] = a[{i} + threadIdx.x] * 2.0f;" for i in range(8000)))
LARGE = kernel(*(f"a[{i}] = {' + '.join(['1.0f'] * 300)};" for i in range(120)))
PART = Part(Where("a", "init", "here.py:3", "a[0] = 2.0f;"), ("i",), 8000, 272000)
SIZE = TextSize(300000, 7, PART)


def test_only_what_takes_long_is_compiled_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def here(*_: object) -> tuple[bytes, str]:
        return b"here", ""

    def apart(*_: object) -> tuple[bytes, str]:
        return b"apart", ""

    monkeypatch.setattr(nvrtc, "compiled", here)
    monkeypatch.setattr(nvrtc, "compile_apart", apart)
    monkeypatch.setattr(nvrtc, "bindings", lambda: None)
    monkeypatch.setattr(nvrtc, "_check_arch", here)
    for size, code in ((None, b"here"), (TextSize(9, 1), b"here"), (SIZE, b"apart")):
        assert nvrtc.compile_to_cubin("", "sm_80", size=size) == code


@pytest.mark.nvrtc
def test_what_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELECTOR_NVRTC_SECONDS", "1")
    with pytest.raises(ScheduleError) as caught:
        nvrtc.compile_to_cubin(HUGE, "sm_80", size=SIZE)
    error = caught.value
    assert "in 1 s: it is 300000 characters" in error.what
    assert "has 7 others" in error.what
    assert "for `a` (init): 8000 unrolled copies" in error.why
    assert "unroll fewer loops around `a` (here `i`)" in error.hint
    assert error.where == PART.where


@pytest.mark.nvrtc
def test_a_large_kernel_is_the_same_wherever_it_is_compiled() -> None:
    code = nvrtc.compile_to_cubin(LARGE, "sm_80", size=SIZE)
    assert code == nvrtc.compiled(LARGE, "sm_80", ())[0]
    with pytest.raises(InternalError, match="does not compile"):
        nvrtc.compile_to_cubin(LARGE.replace("a[17]", "b[17]"), "sm_80", size=SIZE)


def test_a_process_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(LimitError):
        compile_apart(HUGE, "sm_80", (), 1)


@pytest.mark.nvrtc
def test_seconds_that_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELECTOR_NVRTC_SECONDS", "soon")
    with pytest.raises(UserError, match="SELECTOR_NVRTC_SECONDS is 'soon'"):
        nvrtc.compile_to_cubin(HUGE, "sm_80", size=SIZE)


@pytest.mark.parametrize("size", [None, TextSize(9, 1), SIZE])
def test_a_saved_plan_has_its_size(size: TextSize | None) -> None:
    plan = Plan("p", "sm_80", "", (), (), (), (), (), size=size)
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan))), "") == plan
