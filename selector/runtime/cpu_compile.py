"""Emitted C to a shared object through the system's compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from selector.diagnostics import InternalError, TargetError
from selector.runtime.cpu_builds import Build, Library

COMPILERS = ("cc", "gcc", "clang")  # after the one that CC names
_INTERPRET = "kernel.interpret(...) runs the selected program on any machine"


def find_compiler() -> str:
    """The C compiler: what ``CC`` names, else cc, gcc or clang; ``TargetError`` without one."""
    named = os.environ.get("CC", "").split()
    if named:
        path = shutil.which(named[0])
        if path is None:
            raise TargetError(
                f"the C compiler {named[0]!r} was not found",
                why="the environment variable CC names it",
                hint=f"unset CC, or install it; {_INTERPRET}",
            )
        return path
    path = next((p for name in COMPILERS if (p := shutil.which(name))), None)
    if path is None:
        raise TargetError(
            "there is no C compiler here",
            why=f"a kernel for the CPU is compiled by it; looked for {', '.join(COMPILERS)}",
            hint=f"install gcc, or name one in the environment variable CC; {_INTERPRET}",
        )
    return path


@cache
def compiler_version(compiler: str) -> str:
    """The first line of what the compiler says of itself."""
    try:
        answer = subprocess.run(
            [compiler, "--version"], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise TargetError(
            f"the C compiler {compiler} cannot be run", why=str(error), hint=_INTERPRET
        ) from error
    return answer.stdout.partition("\n")[0].strip()


def compile_library(source: str, build: Build) -> Library:
    """The shared object of ``source``; the same bytes for the same source, build and compiler.

    ``TargetError`` if there is no compiler, or it cannot compile for that CPU at all;
    ``InternalError`` with its messages for source that it refuses.
    """
    compiler = find_compiler()
    version = compiler_version(compiler)
    with tempfile.TemporaryDirectory(prefix="tensor-selector-") as folder:
        path = Path(folder) / "kernel.c"
        path.write_text(source, encoding="utf-8")
        target = Path(folder) / "kernel.so"
        _run(compiler, [*build.flags, "-o", str(target), str(path), "-lm"], source, folder)
        code = target.read_bytes()
    made = Build(build.tiles, build.flags, build.needs, version)
    return Library(made, code)


def _run(compiler: str, arguments: list[str], source: str, folder: str) -> None:
    try:
        answer = subprocess.run(
            [compiler, *arguments], capture_output=True, text=True, cwd=folder, timeout=600
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise TargetError(
            f"the C compiler {compiler} cannot be run", why=str(error), hint=_INTERPRET
        ) from error
    if answer.returncode == 0:
        return
    log = answer.stderr.strip()
    if _is_limit(log):
        raise TargetError(
            f"{compiler_version(compiler)} cannot compile this kernel",
            why=log.splitlines()[0],
            hint=f"use gcc 12 or clang 15, or newer (environment variable CC); {_INTERPRET}",
        )
    raise InternalError(f"the emitted C does not compile with {compiler}:\n{log[:4000]}")


_LIMITS = ("unrecognized command", "unknown argument", "unsupported option", "bad value",
           "no _Float16", "omp.h", "-lgomp", "-lomp", "libgomp", "-fopenmp")  # fmt: skip


def _is_limit(log: str) -> bool:
    """Whether the compiler lacks something, rather than that the source is wrong."""
    return any(word in log for word in _LIMITS)
