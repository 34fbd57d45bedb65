"""Saved kernels from elsewhere: what this package did not write is refused, within bounds."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime_plans import conv_plan

import selector
from selector import environment
from selector.api import Kernel, load_bytes
from selector.diagnostics import ArtifactError, UserError
from selector.ir.parser import parse_module
from selector.runtime.artifact import Artifact, from_bytes, is_artifact, to_bytes
from selector.runtime.members import MOST_BYTES, MOST_DEPTH, MOST_JSON_BYTES

pytestmark = pytest.mark.verified

ARTIFACT = Artifact(
    conv_plan(), "module conv\n", "", {"statements": [], "seconds": {}}, {"sm_90a": b"\x7fELF"}
)
DOUBLE = """module double
input I: float32 [(0, 8, 1)]
output O: float32 [(0, 8, 1)]
body {
O[ramp(0, 1, 8)] = I[ramp(0, 1, 8)] + I[ramp(0, 1, 8)]
}
"""
Members = dict[str, bytes]


def members() -> Members:
    with zipfile.ZipFile(io.BytesIO(to_bytes(ARTIFACT))) as archive:
        return {n: archive.read(n) for n in archive.namelist()}


def packed(content: Members, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as archive:
        warnings.simplefilter("ignore")  # two members of one name
        for name, data in content.items():
            archive.writestr(name.rstrip("+"), data)
    return buffer.getvalue()


def listed(content: Members) -> Members:
    """These members, and a manifest with their digests."""
    manifest = json.loads(content["manifest.json"])
    others = {n: d for n, d in content.items() if n != "manifest.json"}
    manifest["sha256"] = {n: hashlib.sha256(d).hexdigest() for n, d in others.items()}
    return {"manifest.json": json.dumps(manifest).encode(), **others}


def why(data: bytes) -> str:
    with pytest.raises(ArtifactError) as caught:
        from_bytes(data, "x")
    assert caught.value.what == "x is damaged"
    return caught.value.why


def test_a_whole_one_is_taken() -> None:
    assert from_bytes(packed(listed(members()))) == ARTIFACT


FOREIGN: dict[str, tuple[Callable[[Members], Members], str]] = {
    "a digest that does not fit": (
        lambda m: m | {"kernel.cu": m["kernel.cu"] + b" "},
        "kernel.cu has changed",
    ),
    "a member that is not listed": (
        lambda m: m | {"more.txt": b"more"},
        "more.txt is not in its manifest",
    ),
    "a member of another kind": (
        lambda m: listed(m | {"more.txt": b"more"}),
        "more.txt is no part of a saved kernel",
    ),
    "a path": (
        lambda m: listed(m | {"../sm_90a.cubin": b"more"}),
        "../sm_90a.cubin is no part of a saved kernel",
    ),
    "a member that was renamed": (
        lambda m: {("plan.jsn" if n == "plan.json" else n): d for n, d in m.items()},
        "plan.jsn is not in its manifest",
    ),
    "a member that is missing": (
        lambda m: {n: d for n, d in m.items() if n != "module.vir"},
        "module.vir is missing",
    ),
    "two members of one name": (
        lambda m: m | {"kernel.cu+": b"another"},
        "kernel.cu is there twice",
    ),
    "many members": (
        lambda m: m | {f"{i}.so": b"" for i in range(700)},
        "it has too many members",
    ),
    "deep JSON": (
        lambda m: listed(m | {"report.json": b"[" * 100_000 + b"]" * 100_000}),
        f"report.json is nested deeper than {MOST_DEPTH}",
    ),
    "a deep manifest": (
        lambda m: m | {"manifest.json": b'{"a":' * 100_000 + b"1" + b"}" * 100_000},
        f"manifest.json is nested deeper than {MOST_DEPTH}",
    ),
    "long JSON": (
        lambda m: listed(m | {"plan.json": b"[]," * MOST_JSON_BYTES}),
        f"plan.json has {3 * MOST_JSON_BYTES} bytes, more than {MOST_JSON_BYTES}",
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_was_not_written_here(name: str) -> None:
    change, reason = FOREIGN[name]
    assert why(packed(change(members()))) == reason


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_another_compression(method: int) -> None:
    assert "packed in a way that is never used here" in why(packed(members(), method))


def test_more_in_the_file_than_its_members() -> None:
    data = to_bytes(ARTIFACT)
    assert why(b"PK\x03\x04" + data) == "there is more in it than its members"
    assert "does not end with the directory" in why(data + b"more")


def test_members_that_are_longer_than_announced() -> None:
    """Both places that announce a size say less than there is."""
    content = listed(members() | {"module.vir": bytes(1 << 20)})
    data = bytearray(packed(content))
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as archive:
        start = archive.getinfo("module.vir").header_offset
    entry = data.rindex(b"module.vir") - 46
    for place in (start + 22, entry + 24):
        assert struct.unpack_from("<L", data, place) == (1 << 20,)
        struct.pack_into("<L", data, place, 100)
    assert "CRC-32" in why(bytes(data))


BOMBS: dict[str, Callable[[], bytes]] = {
    "one large member": lambda: bomb(2 * MOST_BYTES, 1),
    "many large members": lambda: bomb(MOST_BYTES, 2),
    "a member that announces little": lambda: lying(2 * MOST_BYTES),
}


def bomb(size: int, count: int) -> bytes:
    """Members of so many zeros: a thousandth of it, packed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", members()["manifest.json"])
        for i in range(count):
            with archive.open(f"{i}.so", "w", force_zip64=True) as file:
                for _ in range(size >> 20):
                    file.write(bytes(1 << 20))
    return buffer.getvalue()


def lying(size: int) -> bytes:
    data = bytearray(bomb(size, 1))
    entry = data.rindex(b"0.so") - 46
    struct.pack_into("<L", data, entry + 24, 100)
    return bytes(data)


MEASURED = """
import resource, sys
import selector
from selector.diagnostics import ArtifactError
try:
    selector.load(sys.argv[2])  # the first use loads modules
except ArtifactError:
    pass
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    selector.load(sys.argv[1])
except ArtifactError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error.why)
"""


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_takes_little_memory(name: str, tmp_path: Path) -> None:
    path, none = tmp_path / "bomb.kernel", tmp_path / "none.kernel"
    path.write_bytes(BOMBS[name]())
    none.write_bytes(to_bytes(ARTIFACT)[:-5])
    assert path.stat().st_size < 3 << 20
    root = Path(__file__).resolve().parents[2]
    answer = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path), str(none)],
        capture_output=True, text=True, check=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(root)},
    ).stdout  # fmt: skip
    kilobytes, _, reason = answer.partition(" ")
    assert reason.strip()
    assert int(kilobytes) < 32 << 10, answer


def test_a_file_without_an_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.kernel")
    for path in (tmp_path / "pipe.kernel", Path("/dev/zero")):
        with pytest.raises(ArtifactError, match="cannot be read\n  why:   it is no file"):
            selector.load(path)
        assert not is_artifact(path)


def test_a_report_that_is_too_long_is_not_saved() -> None:
    long = replace(ARTIFACT, report={"text": "x" * (MOST_JSON_BYTES + 1)})
    with pytest.raises(ArtifactError, match=r"conv cannot be saved\n  why:   report.json has"):
        to_bytes(long)


# Trust


def compiled(target: str) -> Kernel:
    return selector.compile(parse_module(DOUBLE), target=target, cache=False)


def test_code_for_the_cpu_is_not_run_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what was compiled before nor what is in the file as source."""
    values = np.arange(8, dtype=np.float32)
    path = tmp_path / "double.kernel"
    compiled("amx").save(path)

    def never(*_: Any) -> Any:
        raise AssertionError("code of a file was run")

    with monkeypatch.context() as patch:
        patch.setattr("selector.runtime.cpu_compile.compile_library", never)
        patch.setattr("selector.runtime.cpu_builds.choose", never)
        data = path.read_bytes()
        for kernel in (
            selector.load(path),
            load_bytes(data),
            pickle.loads(pickle.dumps(load_bytes(data))),
        ):
            assert not kernel.trusted
            for run in (lambda k=kernel: k(values), kernel.library):
                with pytest.raises(ArtifactError) as caught:
                    run()
                assert caught.value.what == "double was read from a file, and is code for the CPU"
                assert "selector.load(path, trust=True)" in caught.value.hint
            assert np.array_equal(kernel.interpret(values), 2 * values)
            assert "double" in kernel.source
    for kernel in (selector.load(path, trust=True), load_bytes(data, trust=True)):
        assert np.array_equal(kernel(values), 2 * values)
        assert np.array_equal(pickle.loads(pickle.dumps(kernel))(values), 2 * values)


def test_a_cache_that_others_can_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SELECTOR_CACHE_DIR", str(folder))
    assert environment.cache_directory() == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o770)
    with pytest.raises(UserError, match=f"others can write to {folder}\n.*\n.*chmod go-w"):
        environment.cache_directory()
    monkeypatch.delenv("SELECTOR_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    default = environment.cache_directory()
    assert default is not None
    default.chmod(0o777)
    assert environment.cache_directory() is None
