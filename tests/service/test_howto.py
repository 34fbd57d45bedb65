"""What the page on the service says, run as it stands (on another port)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from service_tools import ROOT, Server

import selector

pytestmark = pytest.mark.verified

PAGE = (ROOT / "docs" / "howto" / "service.md").read_text(encoding="utf-8")
START = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")


def block(mark: str) -> str:
    pattern = rf"<!-- {re.escape(mark)} -->\n```\w*\n(.*?)```\n"
    (found,) = re.findall(pattern, START + PAGE, re.DOTALL)
    return found


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "SELECTOR_CACHE_DIR": ""}
    variables["PATH"] = f"{folder}{os.pathsep}{variables['PATH']}"
    return subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(server: Server, tmp_path: Path) -> None:
    (tmp_path / "rules").symlink_to(ROOT / "rules")
    (tmp_path / "python3").symlink_to(sys.executable)
    text = block("commands: curl")
    assert text.count("curl ") == 6
    script = "set -e\n" + text.replace("http://127.0.0.1:8080", server.url)
    done = run(["bash", "-c", script], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "event: result\n" in done.stdout
    assert "selector_requests_total" in done.stdout
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert selector.load(tmp_path / "conv1d.kernel").source == answer["source"]
    assert (tmp_path / "conv1d.svg").read_text().startswith("<svg")
    assert json.loads((tmp_path / "reasons.json").read_text())["misses"] == 0


def test_the_client(server: Server, tmp_path: Path) -> None:
    pytest.importorskip("halide")
    program, line = block("file: blur.py"), block("change: blur.py, with a service")
    assert program.count("\nkernel = ") == 1
    line = line.replace("http://127.0.0.1:8080", server.url)
    program = re.sub(r"^kernel = .*\n", lambda _: line, program, flags=re.MULTILINE)
    (tmp_path / "blur.py").write_text(program)
    done = run([sys.executable, "blur.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 x wmma.mma" in done.stdout
    assert float(done.stdout.split()[-1]) < 1e-6


def note() -> str:
    return (ROOT / "docs" / "howto" / "deployment.md").read_text(encoding="utf-8")


def test_every_option_and_metric_of_the_note_exists(server: Server) -> None:
    help_ = run([sys.executable, "-m", "selector", "serve", "--help"], ROOT).stdout
    ours = re.sub(r"`python tests/.*?`", "", note())
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", ours))
    assert {"--workers", "--token-file", "--confined", "--access-log", "--proxy"} <= options
    assert all(option in help_ for option in options), options
    assert all(option in ours for option in re.findall(r"--[a-z][a-z-]+", help_) if option not in
               ("--help", "--host", "--port", "--json"))  # fmt: skip
    metrics = server.ask("GET", "/metrics").body.decode()
    assert all(name in metrics for name in re.findall(r"selector_\w+", ours))


def test_the_metrics_are_what_prometheus_reads(server: Server) -> None:
    """Text format 0.0.4: a line of help and one of type before the samples of each name."""
    server.compile()
    reply = server.ask("GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    known: dict[str, str] = {}
    for line in reply.body.decode().splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in known
            known[name] = kind
        elif not line.startswith("# HELP "):
            found = re.fullmatch(r'(\w+)(\{(\w+="[^"\\]*",?)+\})? [0-9.e+-]+', line)
            assert found, line
            assert found[1] in known or re.sub("_(bucket|sum|count)$", "", found[1]) in known, line
    assert set(known.values()) == {"counter", "gauge", "histogram"}


def test_every_status_of_the_description_is_explained() -> None:
    from selector.service.openapi import ROUTES

    statuses = {str(s) for route in ROUTES.values() for s in route["responses"]} - {"200", "201"}
    rows = re.findall(r"^\| (4\d\d|5\d\d|[45\d, ]+) \|", PAGE + note(), re.MULTILINE)
    assert all(status in "\n".join(rows) for status in statuses), rows
