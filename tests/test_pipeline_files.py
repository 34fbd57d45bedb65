"""``python -m selector`` on pipelines in files: Python, and what Halide has serialized."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("halide", reason="extra `compile`")

from selector.__main__ import main
from selector.workbench.programs import read_program

pytestmark = pytest.mark.verified

PLAIN = """import halide as hl
x, y = hl.Var("x"), hl.Var("y")
image, output = hl.ImageParam(hl.Float(32), 2, "image"), hl.Func("output")
output[x, y] = image[x, y] + image[x + 1, y]
"""
SERIALIZE = "hl.serialize_pipeline(hl.Pipeline(output), 'plain.hlpipe')\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With ``plain.py`` and ``plain.hlpipe``, of another process."""
    folder = tmp_path_factory.mktemp("pipelines")
    (folder / "plain.py").write_text(PLAIN)
    subprocess.run([sys.executable, "-c", PLAIN + SERIALIZE], cwd=folder, check=True)
    return folder


@pytest.mark.parametrize("name", ["plain.py", "plain.hlpipe"])
def test_the_compiler_schedules_it(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(folder / name)
    assert main(["select", file, "--schedule", "auto", "--target", "sm_80", "--source"]) == 0
    assert 'extern "C" __global__ void' in capsys.readouterr().out
    assert main(["explain", file, "--schedule", "auto"]) == 0
    assert "no statement is placed on a tensor unit" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["plain.py", "plain.hlpipe"])
def test_it_is_lowered_as_it_is(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dump", str(folder / name)]) == 0
    assert "gpu_block" not in capsys.readouterr().out


def test_both_are_the_same_program(folder: Path) -> None:
    text, data = (
        str(read_program(str(folder / name), "sm_90a", "auto"))
        for name in ("plain.py", "plain.hlpipe")
    )
    assert text == data


def test_a_library_of_a_pipeline(folder: Path, tmp_path: Path) -> None:
    options = ["--schedule", "auto", "--target", "sm_80", "--target", "sm_90a"]
    assert main(["aot", str(folder / "plain.hlpipe"), *options, "--out", str(tmp_path)]) == 0
    assert (tmp_path / "output.h").exists()


def test_python_may_import_what_lies_beside_it(folder: Path) -> None:
    (folder / "beside.py").write_text("FACTOR = 3\n")
    (folder / "scaled.py").write_text(
        "from beside import FACTOR\n" + PLAIN.replace("+ image", "* FACTOR + image")
    )
    assert "*3.000000f" in str(read_program(str(folder / "scaled.py"), "sm_90a"))


MISTAKES = {
    "a mistake in it": ("bad.py", b"x = 1\nx.y\n", (), "raises AttributeError"),
    "no output": ("none.py", b"x = 1\n", (), "has no `output`"),
    "no Python": ("none.py", b"x = (\n", (), "is no Python"),
    "no text": ("none.py", b"\xff\xfe", (), "cannot read"),
    "damaged": ("damaged.hlpipe", b"damaged" * 40, (), "no pipeline that Halide can read"),
    "empty": ("empty.hlpipe", b"", (), "no pipeline that Halide can read"),
    "loops are scheduled": ("loops.vir", b"", ("--schedule", "auto"), "has its schedule"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    name, data, options, message = MISTAKES[case]
    (tmp_path / name).write_bytes(data)
    assert main(["select", str(tmp_path / name), *options]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert message in said
    assert name in said


def test_cut_off_at_any_place(folder: Path, tmp_path: Path) -> None:
    """Halide reads where nothing is: that ends another process, not this one."""
    data = (folder / "plain.hlpipe").read_bytes()
    for length in (1, 8, 40, len(data) // 2, len(data) - 100):
        (tmp_path / "cut.hlpipe").write_bytes(data[:length])
        assert main(["dump", str(tmp_path / "cut.hlpipe")]) in (0, 2)


def test_what_the_service_takes(folder: Path) -> None:
    """Requests for both, as the service reads them."""
    from selector.diagnostics import ParseError
    from selector.service.requests import read_request

    data = base64.b64encode((folder / "plain.hlpipe").read_bytes()).decode()
    for kind, program in (("python", PLAIN), ("hlpipe", data)):
        body = {"kind": kind, "program": program, "target": "sm_80", "schedule": "auto"}
        assert read_request("compile", json.dumps(body).encode())["schedule"] == "auto"
    body = {"ir": "module x", "target": "sm_80", "schedule": "auto"}
    with pytest.raises(ParseError, match="what this service reads"):
        read_request("compile", json.dumps(body).encode())
