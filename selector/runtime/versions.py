"""The versions of everything that decides what a kernel is, for the cache and for saved kernels."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_COMPILER = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")


@cache
def versions() -> dict[str, str]:
    """Versions by name; an empty one where something is not installed.

    ``sources`` is a fingerprint (names, contents) of our own Python and rule files, so that a
    kernel made before a change of the compiler is never found after it; equal installations have
    the same one.
    """
    return {
        "selector": version("tensor-selector"),
        "sources": fingerprint("selector", "rules"),
        "egglog": version("egglog"),
        "nvrtc": next((v for name in _COMPILER if (v := version(name))), ""),
    }


def version(distribution: str) -> str:
    """Of an installed distribution, empty where there is none. The folders' names have it: to load
    ``importlib.metadata`` takes as long as a cached kernel.
    """
    found = _folders().get(distribution.replace("-", "_"))
    if found is not None:
        return found
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


@cache
def _folders() -> dict[str, str]:
    """Versions by name, of what is installed as a folder ``name-version.dist-info``."""
    names = (os.path.splitext(name) for place in reversed(sys.path) for name in _inside(place))
    parts = (stem.partition("-") for stem, ending in names if ending == ".dist-info")
    return {name.lower(): number for name, _, number in parts}


def _inside(place: str) -> Iterator[str]:
    try:
        yield from os.listdir(place or os.curdir)
    except OSError:  # what is no folder may be on the path
        return


def fingerprint(*packages: str) -> str:
    """Of the names and contents of all that these packages of ours run."""
    ours = f"{Path(__file__).resolve().parents[2]}{os.sep}"
    digest = hashlib.sha256()
    for package in packages:
        for path in _sources(ours + package):
            digest.update(f"{path.removeprefix(ours)} {content_of(path)};".encode())
    return digest.hexdigest()[:16]


def content_of(path: str) -> str:
    """A hash of a file. There are hundreds: a file object takes longer than to read most."""
    digest, file = hashlib.sha256(), os.open(path, os.O_RDONLY)
    try:
        while part := os.read(file, 1 << 18):
            digest.update(part)
    finally:
        os.close(file)
    return digest.hexdigest()


def _sources(folder: str) -> Iterator[str]:
    """The files of a package that are run, in order; bytecode is not looked at."""
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if entry.name.endswith((".py", ".egg", ".so")):
            yield entry.path
        elif entry.name != "__pycache__" and entry.is_dir():
            yield from _sources(entry.path)
