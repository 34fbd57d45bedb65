"""The fingerprint of sources changes with all that is run, and with nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from selector.runtime import versions


def test_what_changes_a_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        versions, "__file__", str(tmp_path / "selector" / "runtime" / "versions.py")
    )
    package = tmp_path / "selector"
    inner = package / "inner"
    inner.mkdir(parents=True)
    (package / "a.py").write_text("one")
    (inner / "b.egg").write_text("two" * 200_000)

    def found() -> str:
        return versions.fingerprint("selector")

    before = found()
    for beside in (package / "notes.md", package / "__pycache__" / "a.py"):
        beside.parent.mkdir(exist_ok=True)
        beside.write_text("no matter")
        assert found() == before
    seen = {before}
    for path, text in ((package / "a.py", "One"), (inner / "b.egg", "two"), (inner / "c.so", "")):
        path.write_text(text)
        seen.add(found())
    (inner / "c.so").rename(package / "c.so")
    seen.add(found())
    assert len(seen) == 5
