"""Saved kernels: what is written is read back; what is damaged is refused."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_plans import conv_plan, scale_plan

from selector.diagnostics import ArtifactError
from selector.runtime.artifact import Artifact, from_bytes, load, save, to_bytes

KERNEL = Artifact(
    conv_plan(),
    "module conv\n",
    "conv: 8 x wmma\n",
    {"statements": [{"func": "conv"}]},
    {"sm_90a": bytes(range(256)) * 4},
    {"selector": "0.1.0"},
)
DATA = to_bytes(KERNEL)


def test_what_is_written_is_read_back() -> None:
    for plan in (conv_plan(), scale_plan()):
        artifact = replace(KERNEL, plan=plan)
        assert from_bytes(to_bytes(artifact)) == artifact


@pytest.mark.parametrize(
    "change",
    [{"once": True}, {"early": True}, {"persistent": 2}, {"cluster": 4}, {"crowd": 3}],
    ids=str,
)
def test_how_a_launch_is_made_is_read_back(change: dict[str, Any]) -> None:
    plan = conv_plan()
    (launch,) = plan.launches
    changed = replace(KERNEL, plan=replace(plan, launches=(replace(launch, **change),)))
    assert from_bytes(to_bytes(changed)) == changed


def test_equal_kernels_are_equal_files() -> None:
    assert to_bytes(KERNEL) == DATA


def test_any_zip_tool_can_look_inside() -> None:
    with zipfile.ZipFile(io.BytesIO(DATA)) as archive:
        assert archive.read("kernel.cu").decode() == KERNEL.plan.source
        assert json.loads(archive.read("manifest.json"))["target"] == "sm_90a"


def test_saving_replaces_a_kernel_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "conv.kernel"
    save(KERNEL, path)
    save(replace(KERNEL, module_text="other\n"), path)
    assert load(path).module_text == "other\n"
    assert [p.name for p in tmp_path.iterdir()] == ["conv.kernel"]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(DATA) - 1))
def test_a_truncated_file_is_refused(length: int) -> None:
    with pytest.raises(ArtifactError):
        from_bytes(DATA[:length])


@settings(max_examples=500, deadline=None)
@given(st.integers(0, len(DATA) * 8 - 1))
def test_a_flipped_bit_is_refused_or_changes_nothing(bit: int) -> None:
    damaged = bytearray(DATA)
    damaged[bit // 8] ^= 1 << bit % 8
    try:
        found = from_bytes(bytes(damaged))
    except ArtifactError:
        return
    assert found == KERNEL


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_noise_is_refused(data: bytes) -> None:
    for noise in (data, b"PK\x03\x04" + data, DATA + data[:20] + b"PK\x05\x06" + data):
        try:
            assert from_bytes(noise) == KERNEL
        except ArtifactError:
            continue


def rewritten(member: str, change: Any) -> bytes:
    """The artifact with one JSON member changed, and checksums that fit."""
    import hashlib

    with zipfile.ZipFile(io.BytesIO(DATA)) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    content = json.loads(members[member])
    change(content)
    members[member] = json.dumps(content).encode()
    manifest = json.loads(members["manifest.json"])
    for name in manifest["sha256"]:
        manifest["sha256"][name] = hashlib.sha256(members[name]).hexdigest()
    members["manifest.json"] = json.dumps(manifest).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: plan.pop("launches"),
        lambda plan: plan["buffers"][0].update(type="float17"),
        lambda plan: plan["buffers"][0].update(dims=3),
        lambda plan: plan["launches"][0].update(grid=["1", "1"]),
        lambda plan: plan["launches"][0].update(grid=["1 +", "1", "1"]),
        lambda plan: plan.update(name="other"),
        lambda plan: plan["requirements"][0].update(minimum=4),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(change: Any) -> None:
    with pytest.raises(ArtifactError, match="is damaged"):
        from_bytes(rewritten("plan.json", change))
