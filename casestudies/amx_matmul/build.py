"""Compile and save the kernels that ``bench`` runs.

python -m casestudies.amx_matmul.build DIR
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import halide_bridge as hb
from casestudies.amx_matmul.algorithm import multiply
from casestudies.amx_matmul.problem import Cell, cells
from casestudies.amx_matmul.schedule import schedule


def build(folder: Path, chosen: Iterable[Cell] | None = None) -> None:
    """Every schedule in both layouts, for all operand types, or what is ``chosen``; an AMX machine
    is not needed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for cell in chosen or cells():
        output = schedule(multiply(cell.types, cell.layout), cell.schedule)
        hb.compile(output, target="amx").save(cell.path(folder), overwrite=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", metavar="DIR", type=Path)
    build(parser.parse_args().folder)


if __name__ == "__main__":
    main()
