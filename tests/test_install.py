"""``requirements/install.py``: what stops an installation is one line."""

from __future__ import annotations

import importlib.util
import platform
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", ROOT / "requirements" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def message(install: ModuleType) -> str:
    with pytest.raises(SystemExit) as stop:
        install.check_machine()
    text = str(stop.value.code)
    assert text.startswith("error: ")
    assert "\n" not in text
    return text


def test_this_machine_will_do(install: ModuleType) -> None:
    install.check_machine()


def test_no_compiler(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert "no C++ compiler: no-such-compiler" in message(install)


def test_old_and_new_pythons(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ((3, 10, 1), (3, 14, 0)):
        monkeypatch.setattr(sys, "version_info", version)
        assert "needs Python 3.11 to 3.13" in message(install)


def test_other_platforms(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert "Linux on x86-64" in message(install)


def test_missing_headers(install: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install.sysconfig, "get_paths", lambda: {"include": "/nowhere"})
    assert "no Python.h" in message(install)


@pytest.mark.parametrize(
    ("major", "lock", "extra"), [(0, "compile", "compile"), (12, "cuda12", "cuda12"),
                                 (13, "cuda13", "cuda13"), (14, "cuda13", "cuda13")]
)  # fmt: skip
def test_the_driver_chooses_the_lock(
    install: ModuleType, major: int, lock: str, extra: str
) -> None:
    chosen, extras = install.choose_extras(major)
    assert chosen == lock
    assert extra in extras
    assert (ROOT / "requirements" / f"{lock}.lock").exists()


@pytest.mark.parametrize(
    ("statuses", "said"), [((0,), None), ((1, 0), ""), ((1, 1), "there is none here")]
)
def test_a_library_is_taken_where_it_can_be_had(
    install: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    statuses: tuple[int, ...],
    said: str | None,
) -> None:
    """What is there stays, what is missing is no failure."""
    commands: list[list[str]] = []

    def call(command: list[str], **_: object) -> int:
        commands.append(command)
        return statuses[len(commands) - 1]

    monkeypatch.setattr(install.subprocess, "call", call)
    monkeypatch.setattr(
        install.subprocess, "run", lambda c, **_: SimpleNamespace(returncode=call(c))
    )
    install.add_library("python", ["pip", "install"], "torch")
    assert len(commands) == len(statuses)
    text = capsys.readouterr().out
    assert (text == "") if said is None else (said in text)
    assert commands[1:] in ([], [["pip", "install", "-r", "requirements/torch.lock"]])


def test_locks_name_no_hosts() -> None:
    for path in (ROOT / "requirements").glob("*.lock"):
        lines = path.read_text().splitlines()[1:]
        assert all(line.count("==") == 1 and "/" not in line for line in lines), path.name
