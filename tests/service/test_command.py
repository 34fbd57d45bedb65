"""``python -m selector serve`` with options that make no sense: one message each, and no server."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from selector.__main__ import main


def said(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """What the command says; it has to end by itself, with an error."""
    assert main(["serve", "--json", *options]) == 2
    return str(json.loads(capsys.readouterr().out)["what"])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--workers", "0"), "--workers has to be positive"),
        (("--time-limit", "-1"), "--time-limit has to be positive"),
        (("--time-limit", "nan"), "--time-limit has to be positive"),
        (("--patience", "inf"), "--patience has to be positive, and finite"),
        (("--read-limit", "0"), "--read-limit has to be positive"),
        (("--memory-limit", "100"), "--memory-limit 100 is too small"),
        (("--bodies", "3"), "--bodies is less than --body-limit"),
        (("--connections", "0"), "--connections has to be positive"),
        (("--port", "99999"), "--port 99999 is none"),
        (("--port", "-1"), "--port -1 is none"),
        (("--host", "no.such.host.invalid"), "cannot listen on"),
    ],
)
def test_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], what: str
) -> None:
    assert what in said(capsys, "--store", str(tmp_path), *options)


def test_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert "cannot listen" in said(capsys, "--store", str(tmp_path), "--port", port)


def test_a_store_that_is_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    text = said(capsys, "--store", str(tmp_path / "file"), "--port", "0")
    assert "cannot be used as a store" in text


@pytest.mark.parametrize("content", [None, b"", b"# only a comment\n", b"\xff\xfe\n", b"a b\n"])
def test_token_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    path = tmp_path / "tokens"
    if content is not None:
        path.write_bytes(content)
    store = str(tmp_path / "store")
    assert "token file" in said(capsys, "--store", store, "--port", "0", "--token-file", str(path))
    assert "token file" in said(
        capsys, "--store", store, "--port", "0", "--token-file", str(tmp_path)
    )
