"""Waits that end: what SELECTOR_PATIENCE makes of a kernel."""

from __future__ import annotations

import re
from typing import Any

import pytest

import halide_bridge as hb
from casestudies.gemm import build
from casestudies.gemm.problem import Problem
from selector import environment
from selector.diagnostics import UserError
from selector.emit.snippets.barriers import BARRIERS, bounded
from selector.runtime.plan_json import plan_from_json, plan_to_json

SMALL = Problem(64, 64, 64)


def compiled(monkeypatch: pytest.MonkeyPatch, seconds: str, schedule: str = "wgmma") -> Any:
    monkeypatch.setenv("SELECTOR_PATIENCE", seconds)
    target = "sm_90a" if schedule == "wgmma" else "sm_80"
    return hb.compile(build(SMALL, schedule), target=target)


def test_every_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else in the sources waits for what may never come."""
    waiting = {name for name, text in BARRIERS.items() if re.search(r"mbarrier\.\w+_wait", text)}
    assert waiting == set(bounded(1)) - {"rows_awaited"}
    for schedule in ("wgmma", "tensor"):
        usual, patient = (compiled(monkeypatch, s, schedule) for s in ("", "0.5"))
        assert usual.plan.patience is None
        assert patient.plan.patience == 0.5
        assert "globaltimer" not in usual.source
        assert "> 500000000ull" in patient.source
        assert plan_from_json(plan_to_json(patient.plan), patient.source) == patient.plan
        body = [k.source.partition('extern "C"')[2] for k in (usual, patient)]
        assert body[0] == body[1]


@pytest.mark.nvrtc
def test_instructions_stay_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    from selector.runtime.nvrtc import resource_usage, sass

    kernel = compiled(monkeypatch, "1")
    (text,) = sass(kernel.cubin()).values()
    (usage,) = resource_usage(kernel.cubin()).values()
    names = ("HGMMA", "WARPGROUP.ARRIVE", "WARPGROUP.DEPBAR")
    assert [len(re.findall(rf"\b{re.escape(n)}\b", text)) for n in names] == [4, 1, 2]
    assert not usage.local_accesses


@pytest.mark.parametrize("value", ["soon", "-1", "0", "inf", "nan"])
def test_patience_is_a_number_of_seconds(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("SELECTOR_PATIENCE", value)
    with pytest.raises(UserError, match=f"SELECTOR_PATIENCE is '{value}'"):
        environment.patience()
