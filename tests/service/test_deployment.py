"""The note on deployment: its unit is one that systemd takes, and a request passes its proxy."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_tools import CONV, ROOT, Server, events, renamed

NOTE = (ROOT / "docs" / "howto" / "deployment.md").read_text(encoding="utf-8")
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
SYSTEMD = shutil.which("systemd-analyze")
AROUND = """pid {folder}/pid;
error_log {folder}/error.log;
daemon off;
events {{}}
http {{
access_log off;
{places}
{block}}}
"""


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", NOTE, re.DOTALL)
    return found


@pytest.mark.skipif(SYSTEMD is None, reason="systemd-analyze is not installed")
def test_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "tensor-selector.service"
    unit.write_text(block("ini").replace("/opt/tensor-selector/.venv/bin/python", sys.executable))
    assert SYSTEMD is not None
    done = subprocess.run([SYSTEMD, "verify", unit], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "tensor-selector" not in done.stderr


def set_up(folder: Path, server: Server) -> Path:
    """The proxy of the note, on a socket in a folder, in front of a server."""
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    made += ["-keyout", str(folder / "key"), "-out", str(folder / "certificate")]
    subprocess.run(made, check=True, capture_output=True)
    text = block("nginx")
    for old, new in (
        ("listen 443 ssl", f"listen unix:{folder}/socket ssl"),
        ("127.0.0.1:8080", f"127.0.0.1:{server.port}"),
        ("# ssl_certificate ...",
         f"ssl_certificate {folder}/certificate; ssl_certificate_key {folder}/key;"),
    ):  # fmt: skip
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "\n".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
    path = folder / "nginx.conf"
    path.write_text(AROUND.format(folder=folder, places=places, block=text))
    return path


class Proxied(http.client.HTTPSConnection):
    """A connection to a socket of the file system."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self) -> None:
        import socket

        context = ssl.create_default_context(cafile=self.path.parent / "certificate")
        plain = socket.socket(socket.AF_UNIX)
        plain.connect(str(self.path))
        self.sock = context.wrap_socket(plain, server_hostname="localhost")


@pytest.fixture
def proxy(server: Server, tmp_path: Path) -> Iterator[Path]:
    if NGINX is None or shutil.which("openssl") is None:
        pytest.skip("nginx or openssl is not installed")
    path = set_up(tmp_path, server)
    tried = subprocess.run([NGINX, "-t", "-c", path], capture_output=True, text=True, check=False)
    assert tried.returncode == 0, tried.stderr
    process = subprocess.Popen([NGINX, "-c", path], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 30
    while not (tmp_path / "socket").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    yield tmp_path / "socket"
    process.terminate()
    process.wait(10)


def ask(
    path: Path, method: str, where: str, body: bytes = b"", accept: str = "*/*"
) -> http.client.HTTPResponse:
    connection = Proxied(path)
    connection.request(method, where, body, {"Accept": accept})
    return connection.getresponse()


def test_the_proxy(server: Server, proxy: Path) -> None:
    body = json.dumps({"ir": CONV, "target": "sm_80"}).encode()
    answer = ask(proxy, "POST", "/v1/compile", body)
    assert answer.status == 200
    sha = json.loads(answer.read())["artifact"]
    through = ask(proxy, "GET", f"/v1/artifacts/{sha}").read()
    assert through == server.ask("GET", f"/v1/artifacts/{sha}").body
    assert ask(proxy, "GET", "/").status == 200
    assert ask(proxy, "GET", "/metrics").status == 403
    assert ask(proxy, "POST", "/v1/compile", bytes(5 << 20)).status == 413


def test_progress_passes_the_proxy_at_once(server: Server, proxy: Path) -> None:
    """The only worker is stopped: what arrives meanwhile was not collected on the way."""
    server.wait_ready()
    (worker,) = server.workers()
    os.kill(worker, signal.SIGSTOP)
    try:
        body = json.dumps({"ir": renamed("proxied"), "target": "sm_80"}).encode()
        answer = ask(proxy, "POST", "/v1/compile", body, "text/event-stream")
        first = answer.readline()
        assert first == b"event: progress\n"
        assert server.metric("selector_workers_busy") == 1
    finally:
        os.kill(worker, signal.SIGCONT)
    assert events(first + answer.read())[-1][0] == "result"
