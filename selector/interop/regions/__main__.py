"""Compile the regions of a folder that have no kernel yet, as a machine without Halide left them.

python -m selector.interop.regions FOLDER [--target sm_90a] [--processes 8]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from selector.interop.regions.store import compile_folder


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--processes", type=int, default=1, help="that compile side by side")
    options = parser.parse_args(arguments)
    for key, entry in compile_folder(options.folder, options.target, options.processes):
        print(key, entry.why or ", ".join(entry.instructions) or "threads", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
