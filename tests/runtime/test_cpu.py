"""Kernels on the CPU: called with arrays of every kind, saved, loaded, cached, and what they are
built of.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clock import assert_quick

import selector
from selector.ir.parser import parse_module
from selector.runtime import cpu_builds, cpu_compile
from selector.runtime.artifact import from_bytes, to_bytes
from selector.runtime.cpu import CpuDriver
from selector.runtime.cpu_builds import Build, Library

MATMUL = """module mm
input A: bfloat16 [(0, 32, 1), (0, A.extent.1, A.stride.1)]
input B: bfloat16 [(0, B.extent.0, 1), (0, 32, B.stride.1)]
output C: float32 [(0, C.extent.0, 1), (0, C.extent.1, C.stride.1)]
require A dim 1 from 0 to C.extent.1 - 1
require B dim 0 from 0 to C.extent.0 - 1
body {
 parallel (y, 0, (C.extent.1 + 15)/16) {
  for (x, 0, (C.extent.0 + 15)/16) {
   allocate acc[float32 * 256] in AMXTile
   acc[ramp(0, 1, 256)] = x256(0.0f)
   acc[ramp(0, 1, 256)] = (float32x256)vector_reduce_add(
       float32x8192(A[ramp(x16(ramp(y*16*A.stride.1, 1, 32)), x512(A.stride.1), 16)])
       *x16(float32x512(B[ramp(ramp(x*16, B.stride.1, 32), x32(1), 16)]))) + acc[ramp(0, 1, 256)]
   C[ramp(ramp(y*16*C.stride.1 + x*16, 1, 16), x16(C.stride.1), 16)] = acc[ramp(0, 1, 256)] if
     (x16(ramp(x*16, 1, 16)) < x256(C.extent.0)) &&
     (ramp(x16(y*16), x16(1), 16) < x256(C.extent.1))
  }
 }
}
"""
SCALE = """module scale
input I: TYPE [(0, I.extent.0, 1), (0, I.extent.1, I.stride.1)]
output O: TYPE [(0, O.extent.0, 1), (0, O.extent.1, O.stride.1)]
scalar s: TYPE
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


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SELECTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("SELECTOR_DUMP", raising=False)
    return tmp_path / "cache"


def matmul(**options: Any) -> selector.Kernel:
    return selector.compile(parse_module(MATMUL), target="amx", **options)


def scale(element: str = "float32") -> selector.Kernel:
    return selector.compile(parse_module(SCALE.replace("TYPE", element)), target="amx")


def bits(values: Any) -> np.ndarray[Any, Any]:
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def operands(m: int, n: int) -> tuple[Any, Any, Any]:
    """Bit patterns of A and B, and their product in float64."""
    rng = np.random.default_rng(0)
    a, b = (bits(rng.standard_normal(shape)) for shape in ((m, 32), (32, n)))
    wide = [(x.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for x in (a, b)]
    return a, b, wide[0] @ wide[1]


def error(found: Any, truth: Any) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


def test_a_module_runs_on_the_cpu() -> None:
    kernel = matmul()
    assert list(kernel.stages) == ["verify", "select", "explain", "hoist", "emit"]
    assert "tile_dpbf16ps(" in kernel.source
    for m, n in ((16, 16), (45, 70), (1, 1)):
        a, b, truth = operands(m, n)
        assert error(kernel(a, b), truth) < 1e-6
        assert error(kernel.interpret(a, b), truth) < 1e-6


def test_out_is_written_and_returned() -> None:
    a, b, truth = operands(20, 30)
    room = np.full((40, 64), np.nan, np.float32)
    out = room[5:25, 7:37]
    assert matmul()(A=a, B=b, out=out) is out
    assert error(out, truth) < 1e-6
    out[...] = np.nan
    assert np.isnan(room).all()


def test_results_lie_at_cache_lines() -> None:
    kernel, (a, b, _) = matmul(), operands(20, 30)
    assert all(kernel(a, b).ctypes.data % 64 == 0 for _ in range(4))


@pytest.mark.parametrize("element", ["float32", "float64", "int16", "int32", "uint8", "float16"])
def test_scalars_of_every_type(element: str) -> None:
    values = np.arange(35).reshape(5, 7).astype(element)
    np.testing.assert_array_equal(scale(element)(values, 3), values * np.asarray(3, element))


def test_a_bfloat16_scalar() -> None:
    values = np.linspace(-3, 3, 35, dtype=np.float32).reshape(5, 7)
    kernel = scale("bfloat16")
    np.testing.assert_array_equal(kernel(bits(values), 1.5), kernel.interpret(bits(values), 1.5))


def flipped(array: Any) -> Any:
    return array[::-1, ::-1].copy()[::-1, ::-1]


def transposed(array: Any) -> Any:
    return np.asfortranarray(array)


def spread(array: Any) -> Any:
    room = np.zeros((array.shape[0], 2 * array.shape[1]), array.dtype)
    room[:, ::2] = array
    return room[:, ::2]


@pytest.mark.parametrize("lay", [flipped, transposed, spread])
def test_any_strides_will_do(lay: Any) -> None:
    values = np.arange(35, dtype=np.float32).reshape(5, 7)
    np.testing.assert_array_equal(scale()(lay(values), 2), values * 2)
    out = lay(np.zeros((5, 7), np.float32))
    assert scale()(values, 2, out=out) is out
    np.testing.assert_array_equal(out, values * 2)


def test_arrays_in_place_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuDriver, "upload", lambda *_: pytest.fail("an array was copied"))
    values = np.arange(70, dtype=np.float32).reshape(5, 14)
    np.testing.assert_array_equal(scale()(values[:, 3:10], 2), values[:, 3:10] * 2)


def test_a_repeated_call_takes_little_python() -> None:
    """At most 100 us of processor time a call, and few Python calls."""
    kernel, values, out = scale(), np.ones((5, 7), np.float32), np.zeros((5, 7), np.float32)
    kernel(values, 2, out=out)
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    kernel(values, 2, out=out)
    sys.setprofile(None)
    assert calls < 80

    def thousand() -> None:
        for _ in range(1000):
            kernel(values, 2, out=out)

    assert_quick(thousand, 0.1)


def test_nothing_to_do() -> None:
    assert scale()(np.zeros((0, 7), np.float32), 2, sizes=(0, 7)).shape == (0, 7)


def test_results_larger_than_the_inputs_allow() -> None:
    with pytest.raises(selector.diagnostics.ArgumentError, match="I: axis 0 needs 6 elements"):
        scale()(np.zeros((5, 7), np.float32), 2, sizes=(6, 7))


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    a, b, truth = operands(20, 30)
    left, right = (torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) for x in (a, b))
    found = matmul()(left, right)
    assert isinstance(found, torch.Tensor)
    assert error(found.numpy(), truth) < 1e-6


# ---------------------------------------------------------------------------- machine code


def test_machine_code_is_compiled_once_and_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, truth = operands(16, 16)
    first = matmul()
    first(a, b)
    assert "library" in first.stages
    monkeypatch.setattr(cpu_compile, "_run", lambda *_: pytest.fail("compiled again"))
    first(a, b)
    again = matmul()
    assert error(again(a, b), truth) < 1e-6
    assert list(again.stages) == ["cached"]


def test_a_build_for_other_tiles_than_this_machine_has() -> None:
    kernel = matmul(cache=False)
    hardware, software = kernel.library("hardware"), kernel.library("software")
    assert hardware != software
    assert b"\x7fELF" == hardware[:4] == software[:4]
    assert kernel.library("hardware") == hardware


def test_saved_kernels_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, truth = operands(33, 17)
    path = tmp_path / "mm.kernel"
    matmul().save(path)
    monkeypatch.setattr(cpu_compile, "_run", lambda *_: pytest.fail("compiled again"))
    loaded = selector.load(path, trust=True)
    assert error(loaded(a, b), truth) < 1e-6
    assert error(loaded.interpret(a, b), truth) < 1e-6
    assert "tile_dpbf16ps(" in loaded.source


def test_a_saved_kernel_says_how_it_was_built(tmp_path: Path) -> None:
    matmul().save(tmp_path / "mm.kernel")
    with zipfile.ZipFile(tmp_path / "mm.kernel") as archive:
        names = set(archive.namelist())
        builds = json.loads(archive.read("libraries.json"))
        assert b"tile_dpbf16ps" in archive.read("kernel.c")
    assert {"0.so", "kernel.c", "libraries.json"} <= names
    assert "hardware" in {b["tiles"] for b in builds}
    assert all("-O3" in b["flags"] and b["compiler"] for b in builds)


def test_a_saved_kernel_runs_with_numpy_alone(tmp_path: Path) -> None:
    a, b, truth = operands(16, 16)
    matmul().save(tmp_path / "mm.kernel")
    for name, array in (("a", a), ("b", b)):
        np.save(tmp_path / f"{name}.npy", array)
    script = (
        "import sys, numpy as np\n"
        "for name in ('halide', 'egglog', 'cupy'): sys.modules[name] = None\n"
        "import selector\n"
        "kernel = selector.load('mm.kernel', trust=True)\n"
        "np.save('c.npy', kernel(np.load('a.npy'), np.load('b.npy')))\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
    assert error(np.load(tmp_path / "c.npy"), truth) < 1e-6


def test_a_library_for_another_cpu_is_compiled_again(tmp_path: Path) -> None:
    """Machine code that needs what this CPU lacks is left alone; the source is compiled."""
    a, b, truth = operands(16, 16)
    kernel = matmul()
    kernel.library()
    artifact = from_bytes(to_bytes(kernel._artifact))  # pyright: ignore[reportPrivateUsage]
    strange = tuple(
        Library(replace(x.build, flags=("-O9",), needs=("avx2048",)), b"not for this machine")
        for x in artifact.libraries
    )
    (tmp_path / "mm.kernel").write_bytes(to_bytes(replace(artifact, libraries=strange)))
    loaded = selector.load(tmp_path / "mm.kernel", trust=True)
    assert error(loaded(a, b), truth) < 1e-6
    assert "library" in loaded.stages


def test_artifacts_with_libraries_are_read_back() -> None:
    kernel = scale()
    build = Build("software", ("-O3", "-march=native"), ("avx", "avx2"), "cc 1.0")
    libraries = (Library(build, b"\x7fELF code"), Library(replace(build, tiles="hardware"), b""))
    artifact = replace(kernel._artifact, libraries=libraries)  # pyright: ignore[reportPrivateUsage]
    data = to_bytes(artifact)
    assert from_bytes(data) == artifact
    assert to_bytes(from_bytes(data)) == data
    assert zipfile.is_zipfile(io.BytesIO(data))


def test_hardware_is_used_where_it_is_and_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "tile_configure(&shapes_0);"
    features = frozenset({"amx_tile", "amx_bf16", "amx_int8", "avx2"})
    for has, permitted, kind in (
        (True, True, "hardware"),
        (True, False, "software"),
        (False, False, "software"),
    ):
        monkeypatch.setattr(cpu_builds, "has_tiles", lambda has=has: has)
        monkeypatch.setattr(cpu_builds, "cpu_features", lambda: features)
        monkeypatch.setattr(cpu_builds, "tiles_permitted", lambda ok=permitted: ok)
        build = cpu_builds.wanted_build(source)
        assert build.tiles == kind
        assert ("-DSELECTOR_SOFTWARE_TILES" in build.flags) == (kind == "software")
        assert cpu_builds.wanted_build("int x;").tiles == "none"


def test_threads_are_asked_for_where_there_are_any() -> None:
    assert "-fopenmp" in cpu_builds.wanted_build(matmul().source).flags
    assert "-fopenmp" not in cpu_builds.wanted_build(scale().source).flags
