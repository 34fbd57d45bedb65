"""Compile the ten tasks for the machine with the GPU. Needs Halide and no GPU.

    python -m casestudies.ten_tasks.build FOLDER [--target sm_90a]

Each is compiled for the paper's size (``add.kernel``) and for sizes that nobody says
(``add.open.kernel``); both take any size. What became of each Func stands beside them (``.txt``).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import halide_bridge as hb
from casestudies.ten_tasks import algorithm
from casestudies.ten_tasks.tasks import TASKS


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="sm_90a")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    for task in TASKS:
        for label, sizes in (("", task.sizes(task.paper)), (".open", None)):
            output = getattr(algorithm, task.name)()
            kernel = hb.compile(output, target=options.target, schedule="auto", sizes=sizes)
            kernel.save(options.folder / f"{task.name}{label}.kernel", overwrite=True)
            schedule = hb.autoschedule(output, target=options.target, sizes=sizes)
            text = f"{schedule.report}\n\n{schedule.source}"
            (options.folder / f"{task.name}{label}.txt").write_text(text)
        print(task.name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
