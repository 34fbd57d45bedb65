"""Shared objects of emitted C: how each is made, and what it needs of the CPU that runs it.

A build for tile registers in hardware compiles on any x86-64 machine; one with software tiles, and
one without tiles, takes whatever the CPU at hand has.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from selector.dataclass import dataclass

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
