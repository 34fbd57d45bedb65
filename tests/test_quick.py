"""`make quick`: which tests a change needs."""

from __future__ import annotations

import pytest
from quick import ROOT, ROOT_OF_SELECTOR, SMOKE, chosen, needed_by
from test_imports import ALLOWED


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("selector/gpu/codegen/warpgroups/warp_specialised.py", ["tests/codegen"]),
        ("selector/cpu/tiles.py", ["tests/cpu"]),
        ("selector/api.py", list(ROOT_OF_SELECTOR)),
        ("selector/gpu/ir/nodes.py", ["tests/kernels"]),
        ("rules/30_nests.egg", ["tests/rules", "tests/eqsat"]),
        ("selector/eqsat/cost.py", ["tests/eqsat", "tests/rules/test_soundness.py"]),
        ("halide_bridge/lowering.py", ["tests/bridge"]),
        ("cpp/bridge.cpp", ["tests/bridge"]),
        ("cpp/launch/arrays.h", ["tests/bridge", "tests/runtime"]),
        ("tests/eqsat/test_chains.py", ["tests/eqsat/test_chains.py"]),
        ("tests/eqsat/subsets.py", ["tests/eqsat"]),
        ("tests/eqsat/test_that_was_removed.py", []),
        ("tests/gpu/corpus_rows.py", ["tests/gpu", "tests/codegen/test_corpus.py"]),
        ("docs/index.md", ["tests/docs"]),
        ("README.md", ["tests/docs/test_links.py"]),
        ("Makefile", []),
    ],
)  # fmt: skip
def test_a_change_needs_the_tests_of_its_room(path: str, tests: list[str]) -> None:
    assert needed_by(path) == tests


def test_a_case_study_needs_what_imports_it() -> None:
    found = needed_by("casestudies/gemm/schedule.py")
    assert "tests/casestudies/test_gemm_warpgroups.py" in found
    assert "tests/casestudies/test_filter_warpgroups.py" not in found
    programs = [t.partition("[")[2] for t in found if "::" in t]
    assert "gemm-s8-s32-128x128x64]" in programs
    assert not [p for p in programs if not p.startswith("gemm-")]


def test_every_room_has_tests() -> None:
    for room in ALLOWED:
        path = room.replace(".", "/")
        assert needed_by(f"{path}/any.py"), room


def test_a_folder_is_named_once_and_smoke_tests_always() -> None:
    assert chosen([]) == list(SMOKE)
    found = chosen(["selector/ir/nodes.py", "tests/ir/test_ir_text.py", "selector/ir/types.py"])
    assert found == ["tests/ir", *SMOKE]


def test_smoke_tests_are_there() -> None:
    files = {test.partition("::")[0] for test in SMOKE}
    assert all((ROOT / name).exists() for name in files)
