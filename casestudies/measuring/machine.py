"""What a measurement ran on, for the files that keep it."""

from __future__ import annotations

import platform
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path


def processor() -> str:
    """The CPU's name as the system gives it, with its model number."""
    fields = _cpuinfo()
    if "model name" not in fields:
        return platform.processor()
    family, model = fields.get("cpu family"), fields.get("model")
    return f"{fields['model name']} (family {family}, model {model})"


def has_amx() -> bool:
    """Whether this CPU has tile registers."""
    return "amx_tile" in _cpuinfo().get("flags", "").split()


def _cpuinfo() -> dict[str, str]:
    """What the system says about the first processor."""
    path = Path("/proc/cpuinfo")
    fields: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields


def graphics() -> dict[str, str]:
    """The current GPU, and the versions of what its work goes through."""
    import cupy

    runtime = cupy.cuda.runtime
    version = int(runtime.runtimeGetVersion())
    found = {
        "device": runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode(),
        "driver": _driver_version() or str(runtime.driverGetVersion()),
        "CUDA": f"{version // 1000}.{version % 1000 // 10}",
        "CuPy": str(cupy.__version__),
    }
    for name in ("torch", "jax", "triton"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _driver_version() -> str:
    """The driver's own version, which CUDA does not tell; empty where its tool is missing."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.split("\n")[0].strip() if done.returncode == 0 else ""
