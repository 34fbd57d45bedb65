"""Plain pipelines that were compiled before are found without a schedule and without loops."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("halide")

PROGRAM = """\
import sys
import halide as hl
import halide_bridge as hb
from halide_bridge import lowering
from halide_bridge.native import native

lowered = []
run = lowering.checks.run_native
lowering.checks.run_native = lambda call, *rest: (lowered.append(call), run(call, *rest))[1]
x, y, image, out = hl.Var("x"), hl.Var("y"), hl.ImageParam(hl.Float(32), 2, "image"), hl.Func("out")
out[x, y] = hl.sqrt(image[x, y]) + {added}
shape = (40, 64)
kernel = hb.compile(out, target="sm_90a", schedule="auto", sizes={sizes})
if {sizes} is None:
    kernel.compile_for({{"image": shape, "out": shape}})
print(len(lowered), kernel.source.count("sqrtf"), len(kernel.report.statements))
"""


def told(program: str, cache: Path, **environment: str) -> str:
    own = os.environ | {"SELECTOR_CACHE_DIR": str(cache)} | environment
    done = subprocess.run(
        [sys.executable, "-c", program], env=own, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("sizes", ["(40, 64)", "None"])
def test_it_is_found_in_the_next_process(tmp_path: Path, sizes: str) -> None:
    program = PROGRAM.format(added=1, sizes=sizes)
    first, second = told(program, tmp_path), told(program, tmp_path)
    assert not first.startswith("0 ")
    assert second.startswith("0 ")
    assert first.split()[1:] == second.split()[1:]
    other = told(PROGRAM.format(added=2, sizes=sizes), tmp_path)
    assert not other.startswith("0 ")


def test_what_is_not_there_any_more_is_made_anew(tmp_path: Path) -> None:
    program = PROGRAM.format(added=1, sizes="(40, 64)")
    first = told(program, tmp_path)
    (note,) = tmp_path.glob("*/*.note")
    note.write_text("[1, 2")
    assert told(program, tmp_path) == first
    for kernel in tmp_path.glob("*/*.kernel"):
        kernel.write_bytes(b"damaged")
    assert told(program, tmp_path) == first
    assert told(program, tmp_path).startswith("0 ")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    script = Path(__file__).with_name("remembered_keys.py")
    own = os.environ | {"SELECTOR_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}
    done = subprocess.run(
        [sys.executable, script], env=own, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_all_that_decides_a_program_is_in_the_key(keys: dict[str, Any]) -> None:
    assert keys.pop("nothing again") == keys["nothing"]
    nobody = {keys.pop(name) for name in ("no cache", "a service")}
    assert nobody == {""}
    assert len({*keys.values()}) == len(keys)


def test_where_stages_are_dumped_nothing_is_left_out(tmp_path: Path) -> None:
    program = PROGRAM.format(added=1, sizes="(40, 64)")
    dumps = {"SELECTOR_DUMP": str(tmp_path / "dump")}
    for _ in range(2):
        assert not told(program, tmp_path / "cache", **dumps).startswith("0 ")
