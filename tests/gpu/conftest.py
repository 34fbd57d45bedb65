"""Tests that need a GPU: skipped with the reason where there is none."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest

from selector.diagnostics import TargetError

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent / "runtime"))


@cache
def why_not() -> str:
    """Why GPU tests cannot run here; empty if they can."""
    from selector.runtime.cuda import driver

    try:
        driver()
    except TargetError as error:
        return f"{error.what}: {error.why}"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in Path(item.fspath).resolve().parents:
            item.add_marker(pytest.mark.gpu)
            if why_not():
                item.add_marker(pytest.mark.skip(reason=why_not()))
