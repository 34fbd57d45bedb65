"""From a module's text to a kernel: stages, dumps, checks, cache, saved kernels, interpretation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import selector
from selector import pipeline
from selector.diagnostics import ArgumentError, InternalError, SelectionError
from selector.gpu.cuda.printer import print_kernel
from selector.gpu.ir.text import parse_kernels
from selector.gpu.passes import PASSES, WRITTEN
from selector.ir.module import Module
from selector.ir.nodes import Store
from selector.ir.parser import parse_module

MATMUL = """module mm
input A: float16 [(0, 16, 1), (0, 16, A.stride.1)]
input B: float16 [(0, 16, 1), (0, 16, B.stride.1)]
output out: float32 [(0, 16, 1), (0, 16, out.stride.1)]
body {
 gpu_block<CUDA> (block, 0, 1) {
  gpu_thread<CUDA> (warp, 0, 1) {
   allocate acc[float32 * 256] in WMMAAccumulator
   acc[ramp(0, 1, 256)] = x256(0.0f)
   acc[ramp(0, 1, 256)] = (float32x256)vector_reduce_add(
       float32x4096(A[ramp(x16(ramp(0, 1, 16)), x256(A.stride.1), 16)])
       *x16(float32x256(B[ramp(ramp(0, B.stride.1, 16), x16(1), 16)]))) + acc[ramp(0, 1, 256)]
   out[ramp(ramp(0, 1, 16), x16(out.stride.1), 16)] = acc[ramp(0, 1, 256)]
  }
 }
}
"""
BIAS = """module bias
input I: float32 [(0, I.extent.0, 1)]
output O: float32 [(0, O.extent.0, 1)]
scalar b: float32
require I dim 0 from 0 to O.extent.0 - 1
body {
 gpu_block<CUDA> (block, 0, (O.extent.0 + 31)/32) {
  gpu_thread<CUDA> (t, 0, 32) {
   if (((block*32) + t) < O.extent.0) {
    O[(block*32) + t] = I[(block*32) + t] + b
   }
  }
 }
}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SELECTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("SELECTOR_DUMP", raising=False)
    return tmp_path / "cache"


def matmul(**options: object) -> selector.Kernel:
    return selector.compile(parse_module(MATMUL), target="sm_90a", **options)  # type: ignore[arg-type]


def operands() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((16, 16)).astype(np.float16) for _ in range(2))
    return a, b


def test_a_module_becomes_a_kernel() -> None:
    kernel = matmul()
    assert list(kernel.stages) == ["verify", "select", "explain", "emit"]
    assert "mma" in kernel.source
    assert repr(kernel) == "<Kernel mm(A, B, out) for sm_90a>"
    assert not kernel.report.misses


def test_interpret_runs_the_selected_program() -> None:
    a, b = operands()
    kernel = matmul()
    assert "mma" in str(kernel.module)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(kernel.interpret(a, B=b), expected, rtol=1e-3, atol=1e-3)


def test_interpret_takes_scalars_and_infers_sizes() -> None:
    kernel = selector.compile(parse_module(BIAS), target="sm_80")
    x = np.arange(77, dtype=np.float32)
    np.testing.assert_array_equal(kernel.interpret(x, b=0.5), x + 0.5)
    np.testing.assert_array_equal(kernel.interpret(x, 0.5, sizes=5), x[:5] + 0.5)
    with pytest.raises(ArgumentError, match="I: axis 0 needs 78 elements, has 77"):
        kernel.interpret(x, 0.5, sizes=(78,))


def test_a_second_compilation_is_found(own_cache: Path) -> None:
    first, second = matmul(), matmul()
    assert list(second.stages) == ["cached"]
    assert second.source == first.source
    assert str(second.module) == str(first.module)
    assert second.report == first.report
    assert list(matmul(cache=False).stages) == ["verify", "select", "explain", "emit"]


def test_a_damaged_entry_is_compiled_again(own_cache: Path) -> None:
    matmul()
    (entry,) = own_cache.glob("*/*.kernel")
    entry.write_bytes(entry.read_bytes()[:100])
    assert list(matmul().stages) == ["verify", "select", "explain", "emit"]
    assert list(matmul().stages) == ["cached"]


@pytest.mark.nvrtc
def test_machine_code_is_cached_too(own_cache: Path) -> None:
    code = matmul().cubin()
    again = matmul()
    assert again.cubin() == code
    assert list(again.stages) == ["cached"]


def test_another_target_or_mode_is_another_entry(own_cache: Path) -> None:
    matmul()
    matmul(strict=False)
    selector.compile(parse_module(MATMUL), target="sm_80")
    assert len(list(own_cache.glob("*/*.kernel"))) == 3


def test_stages_are_dumped_as_numbered_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELECTOR_DUMP", str(tmp_path / "dump"))
    for _ in range(2):
        kernel = matmul()
    folders = sorted(p.name for p in (tmp_path / "dump").iterdir())
    assert folders == ["000-mm-sm_90a", "001-mm-sm_90a"]
    files = {p.name: p.read_text() for p in (tmp_path / "dump" / folders[0]).iterdir()}
    assert sorted(files) == [
        "00-verify.vir",
        "01-select.egg",
        "01-select.vir",
        "02-explain.report.txt",
        *(
            f"03-emit.{n:02}-{name}.kir"
            for n, name in enumerate([WRITTEN, *(p.name for p in PASSES)])
        ),
        "03-emit.cu",
        "03-emit.kir",
    ]
    assert files["03-emit.kir"] == files[f"03-emit.{len(PASSES):02}-{PASSES[-1].name}.kir"]
    assert len(parse_kernels(files[f"03-emit.00-{WRITTEN}.kir"])) == 1
    assert files["03-emit.cu"] == kernel.source
    (dumped,) = parse_kernels(files["03-emit.kir"])
    assert kernel.source.endswith(print_kernel(dumped))
    assert files["01-select.vir"] == str(kernel.module)


def test_the_dumped_egg_file_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from egglog import bindings

    monkeypatch.setenv("SELECTOR_DUMP", str(tmp_path / "dump"))
    matmul()
    program = (tmp_path / "dump" / "000-mm-sm_90a" / "01-select.egg").read_text()
    graph = bindings.EGraph()
    outputs = graph.run_program(*graph.parse_program(program))
    extracted = [o for o in outputs if isinstance(o, bindings.ExtractBest)]
    assert len(extracted) == 3


def test_checking_names_the_stage_that_broke_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_it(work: pipeline.Work) -> pipeline.Work:
        module = work.module
        assert isinstance(module, Module)
        store = Store("nowhere", *_store_parts())
        return pipeline.replace(work, module=pipeline.replace(module, body=store))

    stages = list(pipeline.STAGES)
    stages[1] = pipeline.replace(stages[1], run=break_it)
    monkeypatch.setattr(pipeline, "STAGES", tuple(stages))
    monkeypatch.setenv("SELECTOR_CHECK", "1")
    with pytest.raises(InternalError, match="not valid after stage 'select'"):
        matmul()


def _store_parts() -> tuple:
    from selector.ir.nodes import FloatImm, IntImm
    from selector.ir.types import FLOAT32

    return IntImm(0), FloatImm(0.0, FLOAT32)


@pytest.mark.nvrtc
def test_a_saved_kernel_is_the_same_kernel(tmp_path: Path) -> None:
    kernel = matmul()
    kernel.save(tmp_path / "mm.kernel")
    loaded = selector.load(tmp_path / "mm.kernel")
    assert loaded.plan == kernel.plan
    assert loaded.cubin() == kernel.cubin()
    assert loaded.report == kernel.report
    a, b = operands()
    np.testing.assert_array_equal(loaded.interpret(a, b), kernel.interpret(a, b))


@pytest.mark.nvrtc
def test_loading_and_interpreting_needs_none_of_the_compiler(tmp_path: Path) -> None:
    matmul().save(tmp_path / "mm.kernel")
    program = """
import sys
for name in ("egglog", "halide", "cupy", "cuda", "torch"):
    sys.modules[name] = None
import numpy, selector
kernel = selector.load(sys.argv[1])
kernel.cubin(), kernel.source, str(kernel.report)
a = numpy.ones((16, 16), numpy.float16)
assert (kernel.interpret(a, a) == 16).all()
rooms = ("selector.operands", "selector.eqsat", "selector.gpu", "selector.cpu", "selector.lowering")
loaded = [m for m in sys.modules if m.startswith((*rooms, "rules"))]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", program, tmp_path / "mm.kernel"], check=True)


def test_what_cannot_be_selected_is_refused_or_reported() -> None:
    text = MATMUL.replace(" + acc[ramp(0, 1, 256)]", "*acc[ramp(0, 1, 256)]")
    with pytest.raises(SelectionError, match="acc"):
        selector.compile(parse_module(text), target="sm_90a")
    for _ in range(2):  # the second one is found in the cache
        with pytest.warns(UserWarning, match="not everything was selected:\n"):
            kernel = selector.compile(parse_module(text), target="sm_90a", strict=False)
        assert kernel.report.misses
    a, b = operands()
    assert (kernel.interpret(a, b) == 0).all()


def test_only_the_instructions_asked_for_are_used() -> None:
    for family in ("wmma", "mma"):
        kernel = matmul(instructions=(family,))
        (update,) = kernel.report.updates
        assert update.block is not None
        assert update.block.instruction.startswith(f"{family}.")
