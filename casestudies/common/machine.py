"""What a measurement ran on, for the files that keep it."""

from __future__ import annotations

import platform
from pathlib import Path


def processor() -> str:
    """The CPU's name as the system gives it, with its model number."""
    path = Path("/proc/cpuinfo")
    fields: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    if "model name" not in fields:
        return platform.processor()
    family, model = fields.get("cpu family"), fields.get("model")
    return f"{fields['model name']} (family {family}, model {model})"
