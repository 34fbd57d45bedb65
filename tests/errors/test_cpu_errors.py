"""Kernels for the CPU in wrong hands: arrays, compilers, saved files; what the user is told."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from runtime_plans import conv_plan

import selector
from selector.api import Kernel
from selector.diagnostics import ArgumentError, ArtifactError, InternalError, TargetError
from selector.ir.parser import parse_module
from selector.pipeline import Clock
from selector.runtime import cpu_builds, cpu_compile
from selector.runtime.artifact import Artifact, from_bytes, to_bytes
from selector.runtime.cpu import CpuDriver
from selector.runtime.cpu_builds import Build, Library

TEXT = """module scale
input I: float32 [(0, I.extent.0, 1), (0, I.extent.1, I.stride.1)]
output O: float32 [(0, O.extent.0, 1), (0, O.extent.1, O.stride.1)]
scalar s: float32
require I dim 0 from 0 to O.extent.0 - 1
require I dim 1 from 0 to O.extent.1 - 1
body {
 for (y, 0, O.extent.1) {
  for (x, 0, O.extent.0) {
   O[y*O.stride.1 + x] = I[y*I.stride.1 + x]*s
  }
 }
}
"""
DENSE = TEXT.replace("I.stride.1", "8").replace("I.extent.0", "8")


@cache
def kernel(text: str = TEXT) -> Kernel:
    return selector.compile(parse_module(text), target="amx", cache=False)


def fresh(text: str = TEXT) -> Kernel:
    return selector.compile(parse_module(text), target="amx", cache=False)


def said(error: type[Exception], run: Callable[[], Any]) -> str:
    with pytest.raises(error) as caught:
        run()
    return str(caught.value)


IMAGE = np.zeros((5, 8), np.float32)


def read_only() -> Any:
    out = IMAGE.copy()
    out.flags.writeable = False
    return out


class OnGpu:
    """What a CuPy array looks like from afar."""

    __cuda_array_interface__ = {  # noqa: RUF012
        "shape": (5, 8), "typestr": "<f4", "data": (4096, False), "version": 3,
    }  # fmt: skip


CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "missing input": (lambda: kernel()(IMAGE), "missing: s\n  why:   scale takes I, s"),
    "too many": (lambda: kernel()(IMAGE, 2, 3), "scale takes 2 arguments, got 3"),
    "no array": (lambda: kernel()([[1.0]], 2), "I: expected an array, got list"),
    "wrong dtype": (
        lambda: kernel()(IMAGE.astype("float16"), 2),
        "I: expected float32, got float16\n  hint:  convert it: I.astype('float32')",
    ),
    "byte order": (
        lambda: kernel()(IMAGE.astype(">f4"), 2),
        "I: expected float32, got byte-swapped float32",
    ),
    "too few axes": (lambda: kernel()(IMAGE[0], 2), "I: expected 2 axes, got 1"),
    "a scalar that is none": (lambda: kernel()(IMAGE, IMAGE), "s: expected a number, got an array"),
    "wrong extent": (
        lambda: kernel(DENSE)(np.zeros((5, 9), np.float32), 2),
        "I: axis 1 must have 8 elements, has 9\n  why:   the pipeline was compiled for that size",
    ),
    "rows that lie apart where they may not": (
        lambda: kernel(DENSE)(np.zeros((5, 16), np.float32)[:, :8], 2),
        "I: axis 0 must have stride 8, has 16 (in elements)\n"
        "  hint:  pass a contiguous copy: numpy.ascontiguousarray(I)",
    ),
    "input too small": (
        lambda: kernel()(IMAGE, 2, sizes=(6, 8)),
        "I: axis 0 needs 6 elements, has 5, for O of shape (6, 8)",
    ),
    "out of wrong dtype": (
        lambda: kernel()(IMAGE, 2, out=IMAGE.astype("float64")),
        "O: expected float32, got float64",
    ),
    "out of wrong rank": (lambda: kernel()(IMAGE, 2, out=IMAGE[0]), "O: expected 2 axes, got 1"),
    "out too large": (
        lambda: kernel()(IMAGE, 2, out=np.zeros((5, 9), np.float32)),
        "I: axis 1 needs 9 elements, has 8, for O of shape (5, 9)",
    ),
    "out read-only": (
        lambda: kernel()(IMAGE, 2, out=read_only()),
        "O: the out= array is read-only",
    ),
    "out read-only and backwards": (
        lambda: kernel()(IMAGE, 2, out=read_only()[::-1]),
        "O: the out= array is read-only",
    ),
    "out is the input": (
        lambda: kernel()(IMAGE, 2, out=IMAGE),
        "O: the out= array shares memory with I",
    ),
    "out is part of the input, backwards": (
        lambda: kernel()(IMAGE, 2, out=IMAGE[::-1]),
        "O: the out= array shares memory with I",
    ),
    "out and sizes": (
        lambda: kernel()(IMAGE, 2, out=IMAGE.copy(), sizes=(5, 8)),
        "out= and sizes= exclude each other",
    ),
    "array on a GPU": (
        lambda: kernel()(OnGpu(), 2),
        "I is on a GPU; scale runs on the CPU\n  hint:  copy it first: I.get(), or I.cpu()",
    ),
    "out on a GPU": (lambda: kernel()(IMAGE, 2, out=OnGpu()), "O is on a GPU; scale runs on"),
    "stream": (
        lambda: kernel()(IMAGE, 2, stream=7),
        "stream= has no meaning for a kernel that runs on the CPU\n  hint:  leave it out",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_calls(name: str) -> None:
    run, start = CALLS[name]
    assert said(ArgumentError, run).startswith(start)


def test_memory_that_is_not_there() -> None:
    full = SimpleNamespace(kernel_scale=lambda *_: 1)
    function = CpuDriver().function(full, "kernel_scale", 0)
    text = said(TargetError, lambda: function((1, 1, 1), (1, 1, 1), [], 0, None))
    assert text.startswith("there is not enough memory for the kernel's temporaries\n  hint:")


def test_memory_that_runs_out_in_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary beyond what there is, asked for by the emitted code itself."""
    text = TEXT.replace(
        " for (y, 0", " allocate t[float32 * O.extent.0 * 200000000] in Heap\n for (y, 0"
    )
    text = text.replace("O[y*O.stride.1 + x] =", "t[x] = 1.0f\n   O[y*O.stride.1 + x] = t[x]*")
    made = fresh(text)
    plan = replace(made.plan, source=made.source.replace("aligned_alloc(64, ", "no_memory("))
    source = plan.source.replace(
        "static u8 *kept[", "#define no_memory(size) NULL\nstatic u8 *kept["
    )
    artifact = made._artifact  # pyright: ignore[reportPrivateUsage]
    broke = Kernel(replace(artifact, plan=replace(plan, source=source)), Clock(), None)
    said_so = said(TargetError, lambda: broke(IMAGE, 2))
    assert said_so.startswith("there is not enough memory for the kernel's temporaries")


# Compilers


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    text = said(TargetError, lambda: fresh()(IMAGE, 2))
    assert text.startswith("there is no C compiler here\n  why:   a kernel for the CPU is compiled")
    assert "looked for cc, gcc, clang" in text
    assert text.endswith("kernel.interpret(...) runs the selected program on any machine")
    np.testing.assert_array_equal(fresh().interpret(IMAGE + 1, 2), IMAGE + 2)


def test_a_compiler_by_name_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-cc -m64")
    text = said(TargetError, lambda: fresh()(IMAGE, 2))
    assert text.startswith(
        "the C compiler 'no-such-cc' was not found\n  why:   the environment variable CC names it"
    )


def compiler(folder: Path, script: str) -> str:
    path = folder / "my-cc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_compiler_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        'if [ "$1" = --version ]; then echo "my-cc 4.0"; exit 0; fi\n'
        "echo \"my-cc: error: unrecognized command-line option '-mamx-tile'\" >&2; exit 1"
    )
    monkeypatch.setenv("CC", compiler(tmp_path, script))
    text = said(TargetError, lambda: fresh()(IMAGE, 2))
    assert text.startswith(
        "my-cc 4.0 cannot compile this kernel\n"
        "  why:   my-cc: error: unrecognized command-line option '-mamx-tile'\n"
        "  hint:  use gcc 12 or clang 15, or newer (environment variable CC)"
    )


def test_a_compiler_that_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", compiler(tmp_path, "exit 3"))
    text = said(TargetError, lambda: fresh()(IMAGE, 2))
    assert f"the C compiler {tmp_path / 'my-cc'} cannot be run" in text


def test_source_that_does_not_compile() -> None:
    broken = fresh()
    plan = replace(broken.plan, source=broken.source.replace("return 0;", "return nothing;"))
    artifact = broken._artifact  # pyright: ignore[reportPrivateUsage]
    text = said(
        InternalError, lambda: Kernel(replace(artifact, plan=plan), Clock(), None)(IMAGE, 2)
    )
    assert text.startswith("the emitted C does not compile with ")
    assert "nothing" in text


def test_a_type_that_the_compiler_lacks() -> None:
    text = TEXT.replace("float32", "float16")
    source = selector.compile(parse_module(text), target="amx", cache=False).source
    build = replace(cpu_builds.wanted_build(source), flags=("-std=gnu11", "-U__FLT16_MANT_DIG__"))
    text = said(TargetError, lambda: cpu_compile.compile_library(source, build))
    assert "cannot compile this kernel" in text
    assert "this compiler has no _Float16: use gcc 12 or clang 15" in text


# Machine code of another kind


def test_a_cubin_of_a_kernel_for_the_cpu() -> None:
    assert said(TargetError, lambda: kernel().cubin()) == (
        "scale is compiled for amx, which has no cubin\n"
        "  why:   a cubin is machine code for an NVIDIA GPU\n"
        "  hint:  kernel.library() gives the shared object for the CPU"
    )


def test_a_shared_object_of_a_kernel_for_a_gpu() -> None:
    plan = conv_plan("sm_90a")
    other = Kernel(Artifact(plan, "", "", {"statements": [], "seconds": {}}), Clock(), None)
    text = said(TargetError, lambda: other.library())
    assert text.startswith("conv is compiled for sm_90a, which has no shared object")


def test_tiles_that_nobody_makes() -> None:
    text = said(TargetError, lambda: kernel().library("wooden"))
    assert text.startswith("tiles='wooden' is neither 'hardware' nor 'software'")


# Saved files


def saved() -> Artifact:
    made = kernel()
    made.library()
    return made._artifact  # pyright: ignore[reportPrivateUsage]


def rewritten(change: Callable[[dict[str, bytes]], None]) -> bytes:
    """A saved kernel with changed members, and checksums that fit them."""
    with zipfile.ZipFile(io.BytesIO(to_bytes(saved()))) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    change(members)
    manifest = json.loads(members.pop("manifest.json"))
    manifest["sha256"] = {n: hashlib.sha256(d).hexdigest() for n, d in members.items()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


DAMAGE: dict[str, Callable[[dict[str, bytes]], None]] = {
    "no source": lambda m: m.pop("kernel.c") and None,
    "the source of another target": lambda m: m.update({"kernel.cu": m.pop("kernel.c")}),
    "no machine code": lambda m: m.pop("0.so") and None,
    "builds that are none": lambda m: m.update({"libraries.json": b'[{"tiles": "none"}]'}),
    "builds that are no list": lambda m: m.update({"libraries.json": b"3"}),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files(name: str) -> None:
    data = rewritten(DAMAGE[name])
    assert said(ArtifactError, lambda: from_bytes(data, "x")).startswith("x is damaged\n  why:")


def test_changed_machine_code() -> None:
    data = bytearray(to_bytes(saved()))
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as archive:
        place = archive.getinfo("0.so").header_offset + 200
    data[place] ^= 255
    assert said(ArtifactError, lambda: from_bytes(bytes(data), "x")).startswith("x is damaged")


def test_machine_code_that_is_none() -> None:
    made = saved()
    wanted = cpu_builds.wanted_build(made.plan.source)
    library = Library(Build(wanted.tiles, wanted.flags, wanted.needs, "cc"), b"no machine code")
    other = Kernel(replace(made, libraries=(library,)), Clock(), None)
    text = said(ArtifactError, lambda: other(IMAGE, 2))
    assert text.startswith("the machine code of a kernel cannot be loaded\n  why:")
