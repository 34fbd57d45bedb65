"""What all tests share: hardware markers with a visible reason, golden files, checks on, no kernel
cache.
"""

from __future__ import annotations

import difflib
import gc
import importlib.util
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings

from selector.report import StatementReport

pytest_plugins = ("verified",)

GOLDEN = Path(__file__).parent / "golden"

# Stages verify the program, and a kernel of an earlier run never hides a change.
os.environ.setdefault("SELECTOR_CHECK", "1")
os.environ.setdefault("SELECTOR_CACHE_DIR", "")

# Only kernels and what is refused are looked at; modules with the marker ``chains`` do more.
UNTOLD = (
    "bridge",
    "casestudies",
    "codegen",
    "cpu",
    "emulation",
    "kernels",
    "lowering",
    "robustness",
)

settings.register_profile("project", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("project")


@pytest.fixture(autouse=True, scope="module")
def chains_of_rules(request: pytest.FixtureRequest) -> Iterator[None]:
    """Reports have no chains where no test looks at them: these are a third of a compilation."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name in UNTOLD and not request.node.get_closest_marker("chains"):
            patch.setattr(StatementReport, "explained", lambda entry: replace(entry, explain=tuple))
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


def why_no_gpu() -> str:
    """Why tests that need a GPU cannot run here; empty if they can."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed (extras cuda12, cuda13)"
    import cupy

    try:
        return "" if cupy.cuda.runtime.getDeviceCount() else "CuPy sees no GPU"
    except Exception as error:  # a missing driver has several faces
        return f"CuPy cannot reach a GPU: {error}"


def why_no_nvrtc() -> str:
    """Why tests that compile CUDA cannot run here; empty if they can."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception as error:  # no package, no library, no symbol
        return f"NVRTC cannot be used (extra `compile`): {error}"
    return ""


def why_no_gcc() -> str:
    """Why emitted CUDA cannot run on this CPU; empty if it can."""
    if platform.machine() != "x86_64":
        return f"threads are made for x86-64, not {platform.machine()}"
    return "" if shutil.which("g++") else "there is no g++"


def why_not_now() -> str:
    """Why tests that take long are left out; empty if they are not."""
    return "" if os.environ.get("SELECTOR_NIGHTLY") else "runs with SELECTOR_NIGHTLY=1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reasons = {
        "gpu": why_no_gpu,
        "nvrtc": why_no_nvrtc,
        "gcc": why_no_gcc,
        "nightly": why_not_now,
    }
    for marker, ask in reasons.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        reason = ask() if marked else ""
        for item in marked if reason else ():
            item.add_marker(pytest.mark.skip(reason=f"{marker}: {reason}"))


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: the garbage collector need not look at them each time."""
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``golden(name, text)`` compares with ``tests/golden/name``; ``--update-golden`` rewrites
    it.
    """

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no golden file {name}: run pytest --update-golden and read it"
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            lines = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), name, "now", lineterm=""
            )
            pytest.fail("\n".join(lines), pytrace=False)

    return check
