"""Rewrite the lock files beside this script from the dependencies that pyproject.toml names.

    .venv/bin/python requirements/update.py

Each lock is the full resolution of the base dependencies with some extras, as ``name==version``
lines; installs use it as a constraint file. PyTorch's and JAX's have what they add. Resolved on
the Python that runs this: use the oldest supported one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

LOCKS = {
    "compile": ("compile", "plots", "service", "ray", "dask", "images", "dev"),
    "cuda12": ("cuda12", "plots", "service", "ray", "dask", "images", "dev"),
    "cuda13": ("cuda13", "compile", "plots", "service", "ray", "dask", "images", "dev"),
}


def requirements(extras: tuple[str, ...]) -> list[str]:
    """The requirement strings of the base dependencies and the extras."""
    here = Path(__file__).resolve().parent
    project = tomllib.loads((here.parent / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(r for extra in extras for r in optional[extra])]


def resolve(wanted: list[str]) -> list[str]:
    """``name==version`` for everything that pip would install for ``wanted``, sorted."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--report", str(report), *wanted]
        subprocess.run(command, check=True)
        found = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    return sorted(f"{m['name'].lower().replace('_', '-')}=={m['version']}" for m in found)


LIBRARIES = {
    "torch": (
        "PyTorch's build for CPUs with what it needs besides, for the tests of its operators, and"
        " torchao, which makes models of bytes for them",
        ("torch==2.13.0+cpu", "torchao==0.18.0"),
    ),
    "jax": ("JAX for CPUs with what it needs besides, for the tests of its functions", ("jax",)),
}


def write(name: str, about: str, lines: list[str]) -> None:
    target = Path(__file__).with_name(f"{name}.lock")
    target.write_text("\n".join([f"# {about}; written by requirements/update.py.", *lines]) + "\n")
    print(f"{target.name}: {len(lines)} packages")


def main() -> None:
    lines: list[str] = []
    for name, extras in LOCKS.items():
        lines = resolve(requirements(extras))
        write(name, f"Extras {', '.join(extras)}", lines)
    for name, (about, libraries) in LIBRARIES.items():
        write(name, about, [line for line in resolve([*libraries]) if line not in lines])


if __name__ == "__main__":
    main()
