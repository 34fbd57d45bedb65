"""The image of the service: its parts exist, its command starts a server, and where there is a tool
for it, it is built and asked.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from service_tools import CONV, ROOT

pytestmark = pytest.mark.verified

LINES = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()


def instructions(name: str) -> list[str]:
    return [line.removeprefix(name).strip() for line in LINES if line.startswith(f"{name} ")]


def tool() -> str:
    """A tool that builds images here; empty if there is none."""
    for name in ("podman", "docker"):
        found = shutil.which(name)
        asked = [found or "", "info"]
        if found and not subprocess.run(asked, capture_output=True, check=False).returncode:
            return found
    return ""


def copied() -> list[str]:
    """What goes from the tree into the image."""
    return [p for line in instructions("COPY") if "--from" not in line for p in line.split()[:-1]]


def test_what_it_copies_exists() -> None:
    assert all((ROOT / path).exists() for path in copied())
    packages = re.findall(r"wheel.packages = \[(.*)\]", (ROOT / "pyproject.toml").read_text())
    wanted = {*(p.strip(' "') + "/" for p in packages[0].split(",")), "cpp/", "pyproject.toml"}
    assert wanted <= set(copied())


def test_what_it_installs_is_locked() -> None:
    lock = (ROOT / "requirements" / "compile.lock").read_text(encoding="utf-8")
    (tools,) = (line for line in instructions("RUN") if "scikit-build-core" in line)
    for name in tools.split("compile.lock ")[1].split():
        assert f"\n{name}==" in lock
    assert all("-c " in line for line in instructions("RUN") if "pip install" in line)


def test_it_runs_as_nobody_in_particular() -> None:
    (user,) = instructions("USER")
    assert any(f"useradd --system --create-home {user} " in line for line in instructions("RUN"))
    (volume,) = instructions("VOLUME")
    assert any(f"install -d -o {user} {volume}" in line for line in instructions("RUN"))
    assert volume in instructions("ENTRYPOINT")[0]


def test_its_command_starts_a_server(tmp_path: Path) -> None:
    """Its probe, too; on another port and with another store."""
    command = json.loads(instructions("ENTRYPOINT")[0])
    probe = json.loads(instructions("HEALTHCHECK CMD")[0])
    assert command[0] == probe[0] == "python"
    assert instructions("EXPOSE") == ["8080"]
    command[0] = sys.executable
    command = [str(tmp_path) if c == instructions("VOLUME")[0] else c for c in command]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [*command, "--port", "0", "--workers", "1"], env=variables, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        port = process.stdout.readline().rpartition(":")[2].strip()
        probe = [part.replace("8080", port) for part in [sys.executable, *probe[1:]]]
        end = time.monotonic() + 60
        while subprocess.run(probe, capture_output=True, check=False).returncode:
            assert time.monotonic() < end
    finally:
        process.kill()
        process.wait()
    assert subprocess.run(probe, capture_output=True, check=False).returncode != 0


@pytest.mark.slow
@pytest.mark.skipif(not tool(), reason="neither podman nor docker can build images here")
def test_the_image(tmp_path: Path) -> None:
    build = [tool(), "build", "-f", "Containerfile", "-t", "tensor-selector-test", "."]
    subprocess.run(build, cwd=ROOT, check=True)
    run = [tool(), "run", "--rm", "-d", "-p", "127.0.0.1::8080", "tensor-selector-test"]
    name = subprocess.run(run, check=True, capture_output=True, text=True).stdout.strip()
    try:
        ports = subprocess.run([tool(), "port", name, "8080"], check=True, capture_output=True)
        address = ports.stdout.decode().split()[-1]
        data = json.dumps({"ir": CONV, "target": "sm_80", "sass": True}).encode()
        end = time.monotonic() + 120
        while True:
            try:
                url = f"http://{address}/v1/compile"
                with urllib.request.urlopen(url, data, timeout=60) as answer:
                    assert "HMMA" in answer.read().decode()
                return
            except OSError:
                assert time.monotonic() < end
                time.sleep(1)
    finally:
        subprocess.run([tool(), "rm", "-f", name], check=True)
