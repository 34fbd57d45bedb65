"""Compile the seven programs of docs/tutorial.md, as they stand there, for a GPU machine.

    python tests/gpu/build_tutorial.py [--out artifacts/tutorial]

Writes ``stepN.kernel`` and, beside it, ``stepN.json``, which tells ``run_variants.py`` what problem
the kernel solves; ``python tests/gpu/run_variants.py FOLDER`` checks and times them. Needs Halide
and NVRTC, no GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
PROBLEM = {"case": "conv2d", "problem": {"width": 4080, "height": 4080, "taps": 16, "spare": 1}}
_PROGRAM = re.compile(r"<!-- file: (\S+\.py) -->\n```python\n(.*?)```\n", re.DOTALL)
_SAVE = """
import runpy, sys
runpy.run_path(sys.argv[1])["kernel"].save(sys.argv[2], overwrite=True)
"""


def programs() -> dict[str, str]:
    """The files of the page, by name."""
    return dict(_PROGRAM.findall(PAGE.read_text(encoding="utf-8")))


def build(folder: Path) -> list[Path]:
    """Run each step in a process of its own and save its kernel; the kernels."""
    folder.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, text in programs().items():
            Path(scratch, name).write_text(text, encoding="utf-8")
        path = os.pathsep.join((scratch, str(ROOT)))
        for name in sorted(n for n in programs() if n.startswith("step")):
            kernel = folder / Path(name).with_suffix(".kernel")
            command = [sys.executable, "-c", _SAVE, name, str(kernel.resolve())]
            subprocess.run(command, cwd=scratch, env=os.environ | {"PYTHONPATH": path}, check=True)
            kernel.with_suffix(".json").write_text(json.dumps(PROBLEM), encoding="utf-8")
            made.append(kernel)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "artifacts" / "tutorial")
    options = parser.parse_args()
    print(f"{len(build(options.out))} kernels in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
