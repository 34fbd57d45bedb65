"""An export as a shared object of this process, by the system's compilers."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from ctypes import CDLL
from pathlib import Path

from selector.diagnostics import InternalError, TargetError
from selector.runtime.cpu_builds import FLAGS, PORTABLE, TILE_FLAGS
from selector.runtime.cpu_compile import find_compiler

_CPP = ("-std=c++17", "-O1", "-fPIC", "-w")


def load(files: Mapping[str, str], include: Sequence[str] = ()) -> CDLL:
    """Compile the sources of an export, and load what comes of it. ``TargetError`` without
    compilers.
    """
    cxx = shutil.which(os.environ.get("CXX", "g++"))
    if cxx is None:
        raise TargetError("there is no C++ compiler here", hint="install g++, or name one in CXX")
    with tempfile.TemporaryDirectory(prefix="tensor-selector-") as place:
        folder = Path(place)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        objects = [
            _compiled(folder, name, cxx, include)
            for name in files
            if name.endswith((".cpp", "_none.c", "_hardware.c", "_software.c"))
        ]
        threads = ["-fopenmp"] if any("#pragma omp" in text for text in files.values()) else []
        linked = str(folder / "export.so")
        _run([cxx, "-shared", *objects, "-o", linked, "-ldl", "-lm", *threads], folder)
        return CDLL(linked)  # it stays mapped


def _compiled(folder: Path, name: str, cxx: str, include: Sequence[str]) -> str:
    made = f"{name}.o"
    if name.endswith(".cpp"):
        command = [cxx, *_CPP, *(f"-I{path}" for path in include)]
    else:
        tiles = [PORTABLE, *TILE_FLAGS] if name.endswith("_hardware.c") else ["-march=native"]
        flags = [f for f in FLAGS if f != "-shared"]
        command = [find_compiler(), *flags, "-fopenmp", *tiles]
    _run([*command, "-c", name, "-o", made], folder)
    return made


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InternalError(f"an export does not compile with {command[0]}:\n{done.stderr[:4000]}")
