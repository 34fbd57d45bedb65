"""Exported kernels on the CPU: results, the errors of wrong calls, size classes, the files."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ahead_calls import shared, tensor

import selector
from selector.__main__ import main
from selector.diagnostics import ArgumentError, ArtifactError, TargetError, UserError
from selector.interop.ahead.export import files_of
from selector.interop.ahead.tables import Program
from selector.ir.nodes import Call
from selector.ir.parser import parse_expr, parse_module
from selector.ir.remarks import Everywhere, Promise
from selector.ir.types import INT32
from selector.runtime.classes import SizeClass

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "runtime"))
from runtime_plans import conv_plan, scale_plan
from test_cpu import MATMUL, SCALE, operands

pytestmark = pytest.mark.verified

Array = np.ndarray[Any, Any]
gcc = pytest.mark.gcc


def compiled(text: str) -> selector.Kernel:
    return selector.compile(parse_module(text), target="amx", cache=False)


def scale() -> selector.Kernel:
    return compiled(SCALE.replace("TYPE", "float32"))


def call(library: Any, name: str, *given: Any) -> tuple[int, str]:
    """The status of a call on the CPU, and what it says then."""
    values = [ctypes.byref(tensor(g)) if isinstance(g, np.ndarray) else g for g in given]
    status = getattr(library, name)(*values, None)
    return status, getattr(library, f"{name}_message")().decode() if status else ""


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return shared(tmp_path_factory.mktemp("product"), "mm", [Program(compiled(MATMUL).plan)])


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return shared(tmp_path_factory.mktemp("scaled"), "scaled", [Program(scale().plan)])


@gcc
@pytest.mark.parametrize(("m", "n"), [(16, 16), (45, 70), (1, 1)])
def test_results(product: Any, m: int, n: int) -> None:
    a, b, truth = operands(m, n)
    room = np.full((m + 3, n + 5), np.nan, np.float32)
    assert call(product, "mm", a, b, room[2:-1, 4:-1]) == (0, "")
    assert np.linalg.norm(room[2:-1, 4:-1] - truth) < 1e-6 * np.linalg.norm(truth)
    room[2:-1, 4:-1] = np.nan
    assert np.isnan(room).all()


def floats(*shape: int) -> Array:
    return np.ones(shape, np.float32)


WRONG: dict[str, Callable[[], tuple[Array, Array]]] = {
    "another type": lambda: (np.ones((3, 4)), floats(3, 4)),
    "too many axes": lambda: (floats(1, 3, 4), floats(3, 4)),
    "too small": lambda: (floats(3, 4), floats(3, 5)),
    "elements that share memory": lambda: (
        floats(3, 4),
        np.lib.stride_tricks.as_strided(floats(9), (3, 4), (4, 4)),
    ),
}


@gcc
@pytest.mark.parametrize("how", WRONG)
def test_a_wrong_call_is_told_what_python_tells(scaled: Any, how: str) -> None:
    image, out = WRONG[how]()
    with pytest.raises(ArgumentError) as told:
        scale()(image, 2.0, out=out)
    assert call(scaled, "scaled", image, ctypes.c_float(2), out) == (1, told.value.what)


@gcc
def test_declared_rows_that_overlap_are_refused(tmp_path: Path) -> None:
    text = SCALE.replace("TYPE", "float32").replace("I.stride.1", "64")
    library = shared(tmp_path, "rows", [Program(compiled(text).plan)])
    two, signal = ctypes.c_float(2), floats(5000)
    for rows, columns, said in ((9, 100, True), (1, 100, True), (9, 64, False), (0, 100, False)):
        frames = np.lib.stride_tricks.as_strided(signal, (rows, columns), (256, 4))
        found = call(library, "rows", frames, two, floats(rows, columns))
        wrong = (1, "I: axis 1 has 100 elements, and axis 0 goes on after 64")
        assert found == (wrong if said else (0, ""))


@gcc
def test_what_only_c_can_get_wrong(product: Any, scaled: Any) -> None:
    """Missing arrays, arrays elsewhere, rows backwards and apart, output over input."""
    two = ctypes.c_float(2)
    room = floats(6, 8)
    assert call(scaled, "scaled", None, two, room) == (1, "missing: I")
    assert call(scaled, "scaled", room[::-1], two, floats(6, 8)) == (
        1,
        "I: axis 0 runs backwards (stride -8)",
    )
    assert call(scaled, "scaled", room[:, ::2], two, floats(6, 4)) == (
        1,
        "I: axis 1 must have stride 1, has 2 (in elements)",
    )
    assert call(scaled, "scaled", room[:5], two, room[1:]) == (
        1,
        "O: the out= array shares memory with I",
    )
    image, out = tensor(floats(3, 4), 2), tensor(floats(3, 4), 2)
    status = scaled.scaled(ctypes.byref(image), two, ctypes.byref(out), None)
    assert (status, scaled.scaled_message()) == (1, b"scaled runs on the CPU alone")
    image.device.type = 1
    assert scaled.scaled(ctypes.byref(image), two, ctypes.byref(out), None) == 1
    assert scaled.scaled_message() == b"O is on GPU 0, I on the CPU"
    image.device.type = out.device.type = 7
    assert scaled.scaled(ctypes.byref(image), two, ctypes.byref(out), None) == 1
    assert b"device of type 7" in scaled.scaled_message()
    image, out = tensor(floats(3, 4)), tensor(floats(3, 4))
    image.data = None
    assert scaled.scaled(ctypes.byref(image), two, ctypes.byref(out), None) == 1
    assert scaled.scaled_message() == b"I: its data is null"
    a, b, _ = operands(16, 16)
    assert call(product, "mm", a[:, :30], b, floats(16, 16)) == (
        1,
        "A: axis 1 must have 32 elements, has 30",
    )


@gcc
def test_nothing_to_do(scaled: Any) -> None:
    assert call(scaled, "scaled", floats(3, 4), ctypes.c_float(2), floats(0, 4))[0] == 0


@gcc
def test_promises(tmp_path: Path) -> None:
    """One on numbers and sizes, one that loops are looked at for; integers wrap as in Python."""
    plan = scale().plan
    rows, i = parse_expr("O.extent.0"), parse_expr("O.extent.1")
    loops = (("y", parse_expr("0"), i), ("x", parse_expr("0"), rows))
    types = {s.name: s.type for s in plan.scalars}
    promises = (
        Promise(parse_expr("(s < 4.0f) || (O.extent.1 == 5)", types=types), "s is below 4"),
        Promise(parse_expr("O.extent.0 == 7"), "wide", Everywhere(loops, parse_expr("x + y < 9"))),
        Promise(parse_expr("2147483647 + O.extent.0 < 0"), "it wraps"),
    )
    library = shared(tmp_path, "kept", [Program(replace(plan, promises=promises))])
    for shape, number, told in (
        ((3, 4), 1, ""), ((3, 4), 5, "s is below 4"), ((5, 4), 5, ""), ((3, 8), 1, "wide"),
        ((3, 7), 1, ""),
    ):  # fmt: skip
        found = call(library, "kept", floats(*shape), ctypes.c_float(number), floats(*shape))
        assert found == (int(bool(told)), told), shape


@gcc
def test_size_classes(tmp_path: Path) -> None:
    """The program of the class, else of the nearest one, as in Python."""
    plan = scale().plan
    classes = [
        SizeClass((("I", (None, None)), ("O", (a, b))))
        for a, b in ((64, None), (4, 256), (4, 16), (1, 1))
    ]
    programs: list[Program] = []
    for i, size_class in enumerate(classes):  # each multiplies by a number of its own
        changed = plan.source.replace("return 0;", f"O[0] = {i}; return 0;")
        assert changed != plan.source
        programs.append(Program(replace(plan, source=changed), None, size_class))
    library = shared(tmp_path, "sized", programs)
    for shape in ((64, 5), (50, 16), (4, 200), (5, 15), (1, 1), (9, 70), (30, 4000), (2, 3)):
        out = floats(*shape)
        assert call(library, "sized", floats(*shape), ctypes.c_float(3), out)[0] == 0
        shapes = {"I": shape, "O": shape}
        holding = [i for i, c in enumerate(classes) if c.holds(shapes)]
        nearest = min(range(len(classes)), key=lambda i: classes[i].away(shapes))
        assert out[0, 0] == (holding[0] if holding else nearest), shape


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    kernel = scale()
    for name in ("2d", "a-b", "int", ""):
        with pytest.raises(ArgumentError, match="is no name for a function in C"):
            kernel.export(name, tmp_path)
    gpu = Program(conv_plan(), b"code")
    with pytest.raises(ArgumentError, match="there are two kernels for sm_90a"):
        files_of("conv", [gpu, Program(conv_plan(), b"other")])
    with pytest.raises(ArgumentError, match="take different arguments"):
        files_of("conv", [gpu, Program(scale_plan("sm_80"), b"code")])
    (launch,) = conv_plan().launches
    odd = (Call(INT32, "random", ()), *launch.grid[1:])
    plan = replace(conv_plan(), launches=(replace(launch, grid=odd),))
    with pytest.raises(TargetError, match="a size or a promise cannot be exported: random"):
        files_of("conv", [Program(plan, b"code")])
    half = Promise(parse_expr("float16(O.extent.0) < 2.0h"), "half")
    with pytest.raises(TargetError, match="has the type float16"):
        files_of("half", [Program(replace(kernel.plan, promises=(half,)))])
    read = selector.load(saved(kernel, tmp_path))
    with pytest.raises(ArtifactError, match="was read from a file"):
        read.export("scaled", tmp_path / "out")


def saved(kernel: selector.Kernel, folder: Path) -> Path:
    from selector.runtime import artifact

    path = folder / "scale.kernel"
    artifact.write(kernel.to_bytes(machine_code=False), path, True)
    return path


def test_files_are_the_same_and_replace_only_their_like(tmp_path: Path) -> None:
    kernel, folder = scale(), tmp_path / "out"
    kernel.export("scaled", folder)
    first = {p.name: p.read_bytes() for p in folder.iterdir()}
    kernel.export("scaled", folder)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == first
    assert set(first) == {
        "CMakeLists.txt", "runtime_arrays.h", "runtime_host.h", "scaled.cpp", "scaled.h",
        "scaled_0.c", "scaled_0_none.c", "tensor_selector.h",
    }  # fmt: skip
    (folder / "scaled.h").write_text("mine")
    with pytest.raises(ArtifactError, match="was not written by an export"):
        kernel.export("scaled", folder)
    assert (folder / "scaled.h").read_text() == "mine"


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Programs in the text form and saved kernels."""
    text = tmp_path / "scale.vir"
    text.write_text(SCALE.replace("TYPE", "float32"))
    assert main(["aot", str(text), "--target", "amx", "--out", str(tmp_path / "one")]) == 0
    assert (
        "int scale(const DLTensor *I, float s, const DLTensor *O, void *stream);"
        in (tmp_path / "one/scale.h").read_text()
    )
    kernel = str(saved(scale(), tmp_path))
    wanted = ["--name", "twice", "--out", str(tmp_path / "two")]
    assert main(["aot", kernel, *wanted]) == 2
    assert "was read from a file" in capsys.readouterr().err
    assert main(["aot", kernel, "--trust", *wanted]) == 0
    assert (tmp_path / "two/twice.cpp").exists()


def test_names_of_arguments(tmp_path: Path) -> None:
    """What C does not take for a name is changed."""
    plan = conv_plan()
    text = files_of("conv", [Program(plan, b"code")])["conv.h"]
    assert "const DLTensor *I, const DLTensor *K, const DLTensor *output, void *stream" in text
    module = SCALE.replace("TYPE", "float32").replace("I[", "in.t[").replace("I.", "in.t.")
    module = module.replace("input I:", "input in.t:").replace("require I ", "require in.t ")
    try:
        other = compiled(module.replace("scalar s:", "scalar stream:").replace("*s", "*stream"))
    except UserError:
        pytest.skip("such names cannot be written")
    other.export("odd", tmp_path)
    assert "int odd(const DLTensor *in_t, float stream_, " in (tmp_path / "odd.h").read_text()
