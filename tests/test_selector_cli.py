"""``python -m selector`` on the text form, in a process in which Halide cannot be imported."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from selector.gpu.ir.text import parse_kernels
from selector.gpu.passes import PASSES, WRITTEN

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = Path(__file__).parent / "golden" / "conv1d-k64.vir"
WITHOUT_HALIDE = (
    "import sys; sys.modules['halide'] = sys.modules['halide_bridge'] = None;"
    "from selector.__main__ import main; sys.exit(main(sys.argv[1:]))"
)
# A maximum is no multiply-add.
UNMAPPED = """module odd
input A: float16 [(0, 256, 1)]
output C: float32 [(0, 256, 1)]
body {
 allocate mm[float32 * 256] in WMMAAccumulator
 mm[ramp(0, 1, 256)] = x256(0.000000f)
 mm[ramp(0, 1, 256)] = max(mm[ramp(0, 1, 256)], float32x256(A[ramp(0, 1, 256)]))
 C[ramp(0, 1, 256)] = mm[ramp(0, 1, 256)]
}
"""


def run(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_HALIDE, *arguments]
    return subprocess.run(
        command, cwd=ROOT, input=text, capture_output=True, text=True, check=False, timeout=120
    )


def test_dump_is_the_identity_on_its_own_output() -> None:
    first = run("dump", str(PROGRAM))
    assert first.returncode == 0, first.stderr
    assert first.stdout == PROGRAM.read_text()
    again = run("dump", "-", text=first.stdout)
    assert again.stdout == first.stdout


def test_dump_as_data() -> None:
    done = run("dump", str(PROGRAM), "--json")
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout), dict)


def test_select(golden: Callable[[str, str], None]) -> None:
    done = run("select", str(PROGRAM), "--target", "sm_80")
    assert done.returncode == 0, done.stderr
    golden("conv1d-k64.selected.vir", done.stdout)


def test_select_source_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "conv.cu"
    done = run("select", str(PROGRAM), "--target", "sm_80", "--source", "--out", str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "__global__" in path.read_text()


def test_select_kernels() -> None:
    done = run("select", str(PROGRAM), "--target", "sm_80", "--kernels")
    assert done.returncode == 0, done.stderr
    (kernel,) = parse_kernels(done.stdout)
    assert kernel.name.startswith("kernel_")
    last, first = (
        run("select", str(PROGRAM), "--target", "sm_80", "--kernels", "--after", name)
        for name in (PASSES[-1].name, WRITTEN)
    )
    assert last.stdout == done.stdout
    (written,) = parse_kernels(first.stdout)
    assert {*kernel.parameters} < {*written.parameters}
    unknown = run("select", str(PROGRAM), "--target", "sm_80", "--kernels", "--after", "other")
    assert unknown.returncode == 2
    assert "there is no pass `other`" in unknown.stderr
    refused = run("select", str(PROGRAM), "--target", "amx", "--kernels")
    assert refused.returncode == 2
    assert "amx has no kernels" in refused.stderr


def test_explain() -> None:
    done = run("explain", str(PROGRAM), "--target", "sm_80")
    assert done.returncode == 0, done.stderr
    assert "conv (update)" in done.stdout
    assert "mma" in done.stdout
    assert "toeplitz" in done.stdout
    data = json.loads(run("explain", str(PROGRAM), "--json").stdout)
    assert {s["stage"] for s in data["statements"]} == {"init", "update", "read"}


def test_explain_says_what_was_missed(tmp_path: Path) -> None:
    path = tmp_path / "odd.vir"
    path.write_text(UNMAPPED)
    explained = run("explain", str(path), "--target", "sm_80")
    assert explained.returncode == 1, explained.stderr
    assert "not selected" in explained.stdout
    selected = run("select", str(path), "--target", "sm_80")
    assert selected.returncode == 2
    assert "Traceback" not in selected.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dump", "nowhere.vir"), "cannot read nowhere.vir"),
        (("explain", str(PROGRAM), "--target", "sm_1"), "unknown target 'sm_1'"),
        (("dump", str(ROOT / "Makefile")), "where: "),
        (("dump", str(PROGRAM), "--out", "/nowhere/a.vir"), "cannot write"),
    ],
)
def test_mistakes_are_one_message(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_the_fuzzer_is_part_of_a_checkout(tmp_path: Path) -> None:
    """An installed package has no tests: one message says where the fuzzer is."""
    code = (
        "import selector.__main__ as m; from pathlib import Path;"
        f"m.__file__ = {str(tmp_path / 'site' / 'selector' / '__main__.py')!r};"
        "raise SystemExit(m.main(['fuzz', '--seconds', '1']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: the fuzzer is not installed\n  why:   it is part of the")
    assert "in a checkout of the source" in done.stderr


def test_the_fuzzer_prints_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "selector", "fuzz", "--seed", "3", "--show", "5"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith('"""Seed 3, program 5 (')
    compile(done.stdout, "<printed>", "exec")
