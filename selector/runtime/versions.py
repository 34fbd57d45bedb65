"""The versions of everything that decides what a kernel is, for the cache and for saved kernels."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib import metadata
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
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def fingerprint(*packages: str) -> str:
    """Of the names and contents of all that these packages of ours run."""
    ours = f"{Path(__file__).resolve().parents[2]}{os.sep}"
    digest = hashlib.sha256()
    for package in packages:
        for root, directories, files in os.walk(ours + package):
            directories.sort()
            for name in sorted(files):
                if name.endswith((".py", ".egg", ".so")):
                    path = os.path.join(root, name)  # a Path takes longer than its contents
                    with open(path, "rb") as file:
                        content = hashlib.sha256(file.read()).hexdigest()
                    digest.update(f"{path.removeprefix(ours)} {content};".encode())
    return digest.hexdigest()[:16]
