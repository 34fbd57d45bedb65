"""The tests that an edit needs, as arguments for pytest: ``make quick``.

    python -m pytest -m "not slow" $(python tests/quick.py)

What changed is what git says: since the merge base with ``main``, with what is not committed or
new. A file of a room stands for the room's own tests, one of a case study for the test files that
import that case study and for its programs, a test file for itself, and each for those rooms
besides that are built on it so closely that their tests are the ones to fail (``CLOSE``); which
room may use which is
``ALLOWED`` in ``tests/test_imports.py``. A smoke test across all rooms is always among them.
Without ``slow`` that takes at most 40 s on two cores for a change of one room. It is no substitute
for ``make test``.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"

# From a pipeline to numbers through every room, for each kind of kernel; who may import whom.
_NUMBERS = "tests/casestudies/test_selected.py::test_selected_program_is_right"
_EMULATED = "tests/emulation/test_cases.py::test_text_computes_what_the_reference_does"
SMOKE = (
    "tests/test_imports.py",
    "tests/casestudies/test_golden.py",
    f"{_NUMBERS}[conv1d-k8-256x4]",
    f"{_NUMBERS}[gemm-s8-s32-128x128x64]",
    f"{_NUMBERS}[resample-200x215-14x15]",
    f"{_EMULATED}[conv1d-k8-256x4-sm_80]",
    f"{_EMULATED}[conv1d-k8-256x4-sm_90a]",
    f"{_EMULATED}[downsample-k16-256x32-sm_90a]",
)

# Folders whose tests are not those of the folder of the same name.
FOLDERS = {
    "halide_bridge": ("tests/bridge",),
    "cpp": ("tests/bridge",),
    "docs": ("tests/docs",),
    "casestudies": (
        "tests/casestudies/test_problems.py",
        "tests/casestudies/test_media.py",
        _NUMBERS,
    ),
    "requirements": ("tests/test_install.py",),
}
ROOT_OF_SELECTOR = ("tests/errors", "tests/test_selector_cli.py", "tests/runtime/test_api.py")
CLOSE = {
    "rules": ("tests/eqsat",),
    "selector/eqsat": ("tests/rules/test_soundness.py",),
    "selector/operands": ("tests/eqsat", "tests/rules/test_soundness.py"),
    "tests/gpu": ("tests/codegen/test_corpus.py",),
    "cpp/launch": ("tests/runtime",),
}


def needed_by(path: str) -> list[str]:
    """The tests of a file that changed: of its room, and of what is close to it."""
    parts = path.split("/")
    if parts[0] == "tests":
        found = _of_tests(parts)
    elif parts[:2] == ["casestudies", "common"] or parts[0] != "casestudies":
        found = _of_room(parts)
    else:
        found = _of_a_case_study(parts[1].removesuffix(".py"))
    for place, more in CLOSE.items():
        if path.startswith(f"{place}/"):
            found += more
    return [t for t in dict.fromkeys(found) if (ROOT / t.partition("::")[0]).exists()]


def _of_tests(parts: list[str]) -> list[str]:
    """A test file stands for itself, what tests share in a folder for the folder."""
    if parts[-1].startswith("test_"):
        return ["/".join(parts)]
    return ["/".join(parts[:2])] if len(parts) > 2 else []


def _of_room(parts: list[str]) -> list[str]:
    if parts[:3] == ["selector", "gpu", "codegen"]:
        return ["tests/codegen"]
    if parts[:2] == ["selector", "gpu"]:
        return ["tests/kernels"]  # tests/gpu is for machines that have one
    if parts[0] == "selector":
        own = TESTS / parts[1] if len(parts) > 2 else None
        return [f"tests/{own.name}"] if own and own.is_dir() else list(ROOT_OF_SELECTOR)
    if len(parts) == 1:  # README.md, Makefile, ...
        return ["tests/docs/test_links.py"] if parts[0].endswith(".md") else []
    return list(FOLDERS.get(parts[0], (f"tests/{parts[0]}",)))


def _of_a_case_study(name: str) -> list[str]:
    files = sorted((TESTS / "casestudies").glob("test_*.py"))
    words = (f"casestudies.{name}.", f"casestudies.{name} ", f"casestudies import {name}")
    texts = {f: f.read_text(encoding="utf-8") for f in files}
    own = [str(f.relative_to(ROOT)) for f, t in texts.items() if any(w in t for w in words)]
    return [*own, *(_numbers_of(name) or [_NUMBERS])]


def _numbers_of(name: str) -> list[str]:
    """That the selected programs of a case study are right, one by one."""
    sys.path.insert(0, str(ROOT))  # as a script it has the folder of tests alone
    from casestudies.common.registry import gpu_cases

    return [f"{_NUMBERS}[{p.name}]" for c in gpu_cases() if c.name == name for p in c.small]


@cache
def _git(*arguments: str) -> tuple[str, ...]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return tuple(done.stdout.splitlines())


def changed() -> list[str]:
    """Files that are not as they were where this branch left ``main``, those that git does not
    know yet with them.
    """
    try:
        (base,) = _git("merge-base", "HEAD", "main")
    except subprocess.CalledProcessError:  # a clone of a branch alone
        base = "HEAD"
    return [*_git("diff", "--name-only", base), *_git("ls-files", "-o", "--exclude-standard")]


def chosen(paths: list[str]) -> list[str]:
    """The tests of those files and the smoke tests; what a folder holds is not named again."""
    found = list(dict.fromkeys(t for path in paths for t in needed_by(path)))
    folders = {t for t in found if (ROOT / t).is_dir()}
    found = [t for t in found if t in folders or str(Path(t).parent) not in folders]
    more = [t for t in SMOKE if not {t.partition(end)[0] for end in ("::", "[")} & {*found}]
    return list(dict.fromkeys((*found, *more)))


if __name__ == "__main__":
    print("\n".join(chosen(sys.argv[1:] or changed())))
