"""Exported kernels launch what the launcher in Python launches: grids, shared memory, arguments,
tensor maps, what runs once and what starts early.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import ahead_calls
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/runtime"))

from fake_cuda import build  # noqa: E402
from known_calls import mapped_plan  # noqa: E402
from programs import programs_of  # noqa: E402
from runtime_plans import conv_plan, scale_plan  # noqa: E402

from casestudies.common.registry import find_case  # noqa: E402
from selector.runtime.plan import Plan  # noqa: E402
from selector.runtime.plan_json import plan_to_json  # noqa: E402

pytestmark = [pytest.mark.gcc, pytest.mark.slow, pytest.mark.verified]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a driver without a GPU."""
    folder = tmp_path_factory.mktemp("driver")
    source = ROOT / "tests/runtime/fake_libcuda.c"
    build(folder, source, "libcuda.so.1", "-lpthread", "-Wl,-soname,libcuda.so.1")
    return folder


def case(
    name: str, plan: Plan, shapes: dict[str, tuple[int, ...]], **numbers: float
) -> dict[str, Any]:
    """Three calls, the second and the third on one stream."""
    data = plan_to_json(plan)
    return {"name": name, "plan": data, "shapes": shapes, "numbers": numbers,
            "streams": [0, 7, 7]}  # fmt: skip


def compare(folder: Path, driver: Path, cases: list[dict[str, Any]]) -> dict[str, int]:
    (folder / "cases.json").write_text(json.dumps(cases))
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, ahead_calls.__file__, str(folder)], capture_output=True, text=True,
        env={**os.environ, "LD_LIBRARY_PATH": str(driver), "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_small_plans(tmp_path: Path, driver: Path) -> None:
    """Each field of a launch has a say."""
    conv = {"I": (5, 200), "K": (9,), "output": (5, 192)}
    first, second = scale_plan().launches
    (one,) = conv_plan().launches
    scale = {b.name: (100,) for b in scale_plan().buffers}
    factor = {s.name: 2.0 for s in scale_plan().scalars}

    def changed(plan: Plan, *launches: Any) -> Plan:
        return replace(plan, launches=launches)

    cases = [
        case("persistent", changed(conv_plan(), replace(one, persistent=2)), conv),
        case("clusters", changed(conv_plan(), replace(one, cluster=2, shared_bytes=60000)), conv),
        case("mapped", mapped_plan(), conv),
        case("unmapped", mapped_plan(), conv | {"I": (5, 201), "output": (5, 193)}),
        case("scale", scale_plan(), scale, **factor),
        case("early", changed(scale_plan(), first, replace(second, early=True)), scale, **factor),
        case(
            "crowded",
            changed(scale_plan(), first, replace(second, early=True, crowd=9)),
            scale,
            **factor,
        ),
        case("once", changed(scale_plan(), replace(first, once=True), second), scale, **factor),
        case("nothing", conv_plan(), conv | {"output": (0, 192)}),
    ]
    counts = compare(tmp_path, driver, cases)
    assert counts["once"] == 5  # the first stream both, the second both, then the second alone
    assert (counts["nothing"], counts["early"], counts["crowded"], counts["persistent"]) == (
        0, 6, 6, 3,
    )  # fmt: skip


REAL = {
    "gemm-s8-s32-copiedB": ("gemm", 2),  # a copy between kernels, an early launch, tensor maps
    "attention-soft_cap-d64": ("attention", 1),
    "recursive_filter": ("recursive_filter", 2),  # what lies beyond the samples: nothing here
    "resample-160x320": ("resample", 4),  # tables that are made once
}


def test_programs(tmp_path: Path, driver: Path) -> None:
    """Of case studies, at their sizes."""
    cases: list[dict[str, Any]] = []
    for name, (study, count) in REAL.items():
        (program,) = (
            p for p in programs_of(find_case(study)) if (p.name, p.target) == (name, "sm_90a")
        )
        plan = program.compile().plan
        assert len(plan.launches) == count
        problem = program.problems[0]
        specs = (*problem.inputs, problem.output)
        shapes = {s.name: s.shape for s in specs}
        cases.append(case(f"program_{len(cases)}", plan, shapes))
    counts = compare(tmp_path, driver, cases)
    assert list(counts.values()) == [6, 3, 3, 4 + 4 + 2]
