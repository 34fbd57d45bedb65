"""What scripts of two forms share: ``build FOLDER`` where Halide is, ``run FOLDER`` on the GPU."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main(
    text: str | None, build: Callable[[Path], None], run: Callable[[Path, Path | None], int]
) -> int:
    """The command; its exit code. ``text``: of its help."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path)
    options = parser.parse_args()
    if options.what == "build":
        build(options.folder)
        return 0
    return run(options.folder, options.results)


def finished(rows: list[dict[str, Any]], wrong: int, results: Path | None) -> int:
    """Write down what a run has measured; its exit code."""
    import torch

    about = {
        "gpu": torch.cuda.get_device_name(0),
        "date": time.strftime("%Y-%m-%d"),
        "torch": torch.__version__,
    }
    if results:
        results.write_text(json.dumps(about | {"rows": rows}, indent=1))
    print(f"{len(rows)} jobs, {wrong} with wrong kernels")
    return 1 if wrong else 0
