"""Wrong targets, saved files, environment and machines: what the user is told."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime_plans import CONV_SOURCE, conv_plan

import selector
from selector import environment
from selector.api import Kernel
from selector.diagnostics import ArtifactError, InternalError, TargetError, UserError
from selector.ir.parser import parse_module
from selector.pipeline import Clock
from selector.runtime import nvrtc
from selector.runtime.artifact import VERSION, Artifact, from_bytes, load, save, to_bytes
from selector.targets import find_target, runs_on, target_for

ARTIFACT = Artifact(conv_plan(), "module conv\n", "", {"statements": [], "seconds": {}})
COPY = """module copy
input I: float32 [(0, 8, 1)]
output O: float32 [(0, 8, 1)]
body {
O[ramp(0, 1, 8)] = I[ramp(0, 1, 8)]
}
"""


def kernel(target: str = "sm_90a") -> Kernel:
    plan = replace(conv_plan(target), source=CONV_SOURCE)
    return Kernel(replace(ARTIFACT, plan=plan), Clock(), None)


def with_manifest(**changes: Any) -> bytes:
    """The artifact with other entries in its manifest."""
    with zipfile.ZipFile(io.BytesIO(to_bytes(ARTIFACT))) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    manifest = {**json.loads(members["manifest.json"]), **changes}
    members["manifest.json"] = json.dumps(manifest).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def said(error: type[Exception], run: Callable[[], Any]) -> str:
    with pytest.raises(error) as caught:
        run()
    return str(caught.value)


# Targets


def test_unknown_target() -> None:
    text = said(TargetError, lambda: selector.compile(parse_module(COPY), target="sm_75"))
    assert text == (
        "unknown target 'sm_75'\n"
        "  hint:  known targets: cuda, sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100, sm_100a, "
        "sm_120, amx"
    )


def test_target_cuda_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    without_cupy(monkeypatch)
    text = said(TargetError, lambda: selector.compile(parse_module(COPY)))
    assert text.startswith(
        "target 'cuda' means the GPU at hand, and there is none\n  why:   a CUDA"
    )
    assert text.endswith("hint:  name a target to compile without a GPU, such as sm_80 or sm_90a")


def test_call_without_cupy_names_interpret(monkeypatch: pytest.MonkeyPatch) -> None:
    without_cupy(monkeypatch)
    image, taps = np.zeros((8, 100), np.float16), np.zeros(9, np.float16)
    text = said(TargetError, lambda: kernel()(image, taps))
    assert text.startswith("a CUDA kernel cannot be run here\n  why:   CuPy cannot be imported")
    assert "tensor-selector[cuda13]" in text
    assert "kernel.interpret(...)" in text


def without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    from selector.runtime import cuda

    monkeypatch.setitem(sys.modules, "cupy", None)
    cuda.driver.cache_clear()


def test_a_gpu_without_target() -> None:
    text = said(TargetError, lambda: target_for(75))
    assert text.startswith("this GPU (compute capability 7.5) has no target yet")


@pytest.mark.parametrize(
    ("target", "capability", "expected"),
    [
        ("sm_80", 80, True),
        ("sm_80", 86, True),
        ("sm_86", 80, False),
        ("sm_80", 90, False),
        ("sm_90", 90, True),
        ("sm_90a", 90, True),
        ("sm_90a", 100, False),
        ("sm_100", 103, True),
        ("sm_100a", 100, True),
        ("sm_100a", 103, False),
        ("sm_100", 120, False),
        ("sm_120", 121, True),
        ("sm_120", 100, False),
        ("amx", 90, False),
    ],
)
def test_which_code_runs_where(target: str, capability: int, expected: bool) -> None:
    assert runs_on(find_target(target), capability) is expected


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        (80, "sm_80"),
        (86, "sm_86"),
        (87, "sm_86"),
        (89, "sm_89"),
        (90, "sm_90a"),
        (100, "sm_100a"),
        (120, "sm_120"),
        (121, "sm_120"),
    ],
)
def test_the_best_target_for_a_gpu(capability: int, name: str) -> None:
    assert target_for(capability).name == name


# Saved kernels


def test_loading_what_is_not_there(tmp_path: Path) -> None:
    text = said(ArtifactError, lambda: selector.load(tmp_path / "conv.kernel"))
    assert text == f"{tmp_path / 'conv.kernel'} cannot be read\n  why:   No such file or directory"


def test_loading_a_folder(tmp_path: Path) -> None:
    assert "cannot be read" in said(ArtifactError, lambda: selector.load(tmp_path))


def test_loading_something_else() -> None:
    assert said(ArtifactError, lambda: from_bytes(b"\x7fELF", "x")).startswith(
        "x is not a saved kernel"
    )


def test_loading_another_zip() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", "a")
    text = said(ArtifactError, lambda: from_bytes(buffer.getvalue(), "x"))
    assert text == "x is not a saved kernel\n  why:   it has no manifest"


def test_loading_another_format() -> None:
    text = said(ArtifactError, lambda: from_bytes(with_manifest(format="halide kernel"), "x"))
    assert text == "x is not a saved kernel\n  why:   it calls itself 'halide kernel'"


def test_loading_an_older_version() -> None:
    text = said(ArtifactError, lambda: from_bytes(with_manifest(version=1), "x"))
    reads = f"x has format version 1, this package reads {VERSION}\n"
    assert text.startswith(f"{reads}  hint:  save it again")


def test_loading_half_a_file() -> None:
    text = said(ArtifactError, lambda: from_bytes(to_bytes(ARTIFACT)[:-30], "x"))
    assert text.startswith("x is damaged\n  why:")


def test_loading_a_changed_member() -> None:
    with zipfile.ZipFile(io.BytesIO(to_bytes(ARTIFACT))) as archive:
        sums = json.loads(archive.read("manifest.json"))["sha256"]
    changed = with_manifest(sha256={**sums, "kernel.cu": "0" * 64})
    text = said(ArtifactError, lambda: from_bytes(changed, "x"))
    assert text.startswith("x is damaged\n  why:   kernel.cu has changed")


def test_saving_over_something_else(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("precious")
    text = said(ArtifactError, lambda: save(ARTIFACT, path))
    assert text.startswith(f"{path} exists and is no saved kernel")
    assert path.read_text() == "precious"
    save(ARTIFACT, path, overwrite=True)
    assert load(path) == ARTIFACT


def test_saving_into_a_folder_that_is_not_there(tmp_path: Path) -> None:
    text = said(ArtifactError, lambda: save(ARTIFACT, tmp_path / "no" / "conv.kernel"))
    assert text.endswith("conv.kernel cannot be written\n  why:   No such file or directory")


def test_saving_onto_a_folder(tmp_path: Path) -> None:
    assert said(ArtifactError, lambda: save(ARTIFACT, tmp_path)).startswith(
        f"{tmp_path} is a folder\n  hint:  name a file"
    )


# Environment


def test_check_that_is_neither_on_nor_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELECTOR_CHECK", "yes")
    assert said(UserError, environment.checks_enabled) == (
        "SELECTOR_CHECK is 'yes'\n  hint:  set it to 1 or 0"
    )


@pytest.mark.parametrize(
    ("variable", "read"),
    [
        ("SELECTOR_DUMP", environment.dump_directory),
        ("SELECTOR_CACHE_DIR", environment.cache_directory),
    ],
)
def test_a_file_for_a_folder(
    variable: str, read: Callable[[], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(variable, str(tmp_path / "file"))
    assert said(UserError, read).startswith(f"{variable}: {tmp_path / 'file'} cannot be used as")


def test_there_are_few_variables_and_all_are_documented() -> None:
    assert environment.__doc__ is not None
    sources = (Path(environment.__file__).parent).rglob("*.py")
    import re

    used = {v for p in sources for v in re.findall(r"(?<!_)SELECTOR_[A-Z_]+", p.read_text())}
    used.remove("SELECTOR_SOFTWARE_TILES")  # a macro of emitted C
    assert used == set(re.findall(r"``(SELECTOR_[A-Z_]+)``", environment.__doc__))
    assert len(used) <= 5


# Compiling CUDA


@pytest.mark.nvrtc
def test_source_that_does_not_compile_shows_log_and_line() -> None:
    source = CONV_SOURCE.replace("float sum = 0;", "float sum = nothing;")
    text = said(InternalError, lambda: nvrtc.compile_to_cubin(source, "sm_80"))
    assert 'kernel.cu(7): error: identifier "nothing" is undefined' in text
    assert text.endswith("kernel.cu:7: float sum = nothing;")


@pytest.mark.nvrtc
@pytest.mark.parametrize("arch", ["sm_20", "sm_90b", "compute_90", "volta"])
def test_an_architecture_that_nvrtc_does_not_know(arch: str) -> None:
    text = said(UserError, lambda: nvrtc.compile_to_cubin(CONV_SOURCE, arch))
    assert f"cannot compile for {arch!r}" in text
    assert "sm_90" in text


def test_no_nvrtc_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    nvrtc.bindings.cache_clear()
    text = said(UserError, lambda: nvrtc.compile_to_cubin(CONV_SOURCE, "sm_80"))
    nvrtc.bindings.cache_clear()
    assert text.startswith("CUDA source cannot be compiled here\n  why:   NVRTC was not found")
    assert text.endswith("install the compiler: pip install tensor-selector[compile]")
