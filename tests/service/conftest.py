"""The servers of this room, each for all tests that can share it, and a browser. A server costs two
seconds of a processor, a page in a window of its own as well (``browser.Windows``).
"""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Windows, chromium, missing
from service_tools import Server, exhaust_landlock, running

pytest.importorskip("fastapi", reason="extra `service`")

from selector.service import calls, sandbox


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("service"), "--workers", "1") as found:
        yield found


@pytest.fixture(scope="session")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = ("--workers", "1", "--queue", "1", "--time-limit", "4", "--memory-limit", "512",
              "--body-limit", "1", "--access-log", "--allow-host", "selector.example.org",
              "--proxy", "127.0.0.9")  # fmt: skip
    with running(tmp_path_factory.mktemp("tight"), *limits, token="secret-token") as found:
        yield found


@pytest.fixture(scope="session")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Where workers cannot be confined, have 512 MiB, and no file may have more than 3000 bytes."""

    def limit() -> None:
        exhaust_landlock()
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))

    limits = ("--workers", "1", "--memory-limit", "512", "--time-limit", "100")
    folder = tmp_path_factory.mktemp("poor")
    with running(folder, *limits, before=limit, bytecode=False) as found:
        yield found


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that takes programs in Python."""
    pytest.importorskip("halide", reason="extra `compile`")
    if sandbox.abi() < 1 or not calls.are_filtered_here():
        pytest.skip("this kernel cannot confine")
    limits = ("--workers", "1", "--python-input", "--time-limit", "8")
    with running(tmp_path_factory.mktemp("python"), *limits) as found:
        yield found


@pytest.fixture(scope="session")
def browser() -> Iterator[Windows]:
    if reason := missing():
        pytest.skip(reason)
    with chromium() as found:
        yield found


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)
