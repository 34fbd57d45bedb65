"""Two servers for all tests of this room: an ordinary one, and one with tight limits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from service_tools import Server, running

pytest.importorskip("fastapi", reason="extra `service`")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("service"), "--workers", "1") as found:
        yield found


@pytest.fixture(scope="session")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = ("--workers", "1", "--queue", "1", "--time-limit", "4", "--memory-limit", "512",
              "--body-limit", "1")  # fmt: skip
    with running(tmp_path_factory.mktemp("tight"), *limits, token="secret-token") as found:
        yield found
