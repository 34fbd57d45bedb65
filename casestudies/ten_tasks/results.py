"""The file of what the ten tasks took, which several runs of a day may fill."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def kept(file: Path | None, about: Mapping[str, Any], again: str) -> dict[str, dict[str, Any]]:
    """The rows of a file by task, if they are of the same machine, versions and day as ``about``,
    but of those tasks that are measured ``again`` (regex).
    """
    if file is None or not file.exists():
        return {}
    found = json.loads(file.read_text())
    rows = found.pop("rows")
    same = found == about
    return {r["task"]: r for r in rows if same and not re.search(again, r["task"])}
