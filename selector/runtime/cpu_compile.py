"""Emitted C to a shared object through the system's compiler, and what a shared object needs of the
CPU that runs it.

A build for tile registers in hardware compiles on any x86-64 machine; one with software tiles, and
one without tiles, takes whatever the CPU at hand has.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from selector.dataclass import dataclass
from selector.diagnostics import InternalError, TargetError

COMPILERS = ("cc", "gcc", "clang")  # after the one that CC names
_INTERPRET = "kernel.interpret(...) runs the selected program on any machine"
FLAGS = (
    "-std=gnu11", "-O3", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math",
    "-fno-strict-aliasing", "-w",
)  # fmt: skip
TILE_FLAGS = ("-mamx-tile", "-mamx-bf16", "-mamx-int8")
_TILE_FEATURES = frozenset({"amx_tile", "amx_bf16", "amx_int8"})
PORTABLE = "-march=x86-64-v4"
_PORTABLE_WORDS = "avx avx2 avx512bw avx512cd avx512dq avx512f avx512vl bmi1 bmi2 f16c fma movbe"
_PORTABLE_FEATURES = frozenset(_PORTABLE_WORDS.split())
_NATIVE_PREFIXES = ("avx", "sse", "ssse", "bmi", "amx", "vaes", "vpcl", "sha")
_NATIVE_WORDS = (
    "abm adx aes cldemote clflushopt clwb f16c fma fsgsbase gfni lzcnt movbe movdir64b movdiri "
    "pclmulqdq pku popcnt prefetchwt1 rdpid rdrand rdseed serialize xsave xsavec xsaveopt "
    "xsaves"
)
_NATIVE_NAMES = frozenset(_NATIVE_WORDS.split())


@dataclass(frozen=True, slots=True)
class Build:
    """How a shared object is made: ``tiles`` is ``hardware``, ``software`` or ``none``; it runs on
    CPUs with all of ``needs`` (names as in ``/proc/cpuinfo``).
    """

    tiles: str
    flags: tuple[str, ...]
    needs: tuple[str, ...]
    compiler: str = ""

    @property
    def fits(self) -> bool:
        """Whether this machine can run it."""
        if not set(self.needs) <= cpu_features():
            return False
        return self.tiles != "hardware" or tiles_permitted()


@dataclass(frozen=True, slots=True)
class Library:
    """A shared object and how it was made."""

    build: Build
    code: bytes


@cache
def cpu_features() -> frozenset[str]:
    """What the CPU has, as Linux names it; empty where that cannot be read."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(flags.partition(":")[2].split())


def has_tiles() -> bool:
    """Whether the CPU has tile registers of every kind that is emitted."""
    return cpu_features() >= _TILE_FEATURES


@cache
def tiles_permitted() -> bool:
    """Whether this process may use tile registers; asks the kernel for it once.

    Linux wants the request (``arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)``) because the
    registers make signal frames larger: Documentation/arch/x86/xstate.rst.
    """
    if not has_tiles():
        return False
    import ctypes

    arch_prctl, request, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None, use_errno=True).syscall(arch_prctl, request, tile_data) == 0


def uses_tiles(source: str) -> bool:
    return "tile_configure(&" in source


def wanted_build(source: str, tiles: str | None = None) -> Build:
    """The build that suits this machine, or the one with ``tiles`` in ``hardware`` or
    ``software``.
    """
    threads = ("-fopenmp",) if "#pragma omp" in source else ()
    if not uses_tiles(source):
        kind = "none"
    elif tiles is None:
        kind = "hardware" if tiles_permitted() else "software"
    else:
        kind = tiles
    if kind == "hardware" and not has_tiles():  # for another machine
        flags = (*FLAGS, *threads, PORTABLE, *TILE_FLAGS)
        return Build(kind, flags, tuple(sorted(_PORTABLE_FEATURES | _TILE_FEATURES)))
    own = (f for f in cpu_features() if f in _NATIVE_NAMES or f.startswith(_NATIVE_PREFIXES))
    extra = {"hardware": TILE_FLAGS, "software": ("-DSELECTOR_SOFTWARE_TILES",)}.get(kind, ())
    return Build(kind, (*FLAGS, *threads, "-march=native", *extra), tuple(sorted(own)))


def choose(libraries: Iterable[Library], wanted: Build) -> Library | None:
    """Of the shared objects there are the one that was built as wanted, or one of its kind that
    this machine can run: any, where it is only asked to.
    """
    fitting = [x for x in libraries if x.build.tiles == wanted.tiles]
    for x in fitting:
        if (x.build.flags, x.build.needs) == (wanted.flags, wanted.needs):
            return x
    return next((x for x in fitting if x.build.fits), None)


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
