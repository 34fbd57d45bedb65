"""Two servers for all tests of this room, an ordinary one and one with tight limits; a browser."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, missing
from service_tools import Server, running

pytest.importorskip("fastapi", reason="extra `service`")


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
def browser() -> Iterator[Any]:
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
