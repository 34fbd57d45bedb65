"""Compile the regions of the models for the machine with the GPU. Needs Halide and no GPU.

    python -m casestudies.models.build FOLDER [--target sm_90a] [--only NAME] [--batch 1]

The folder is what ``options={"folder": FOLDER}`` takes there.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from casestudies.models.models import MODELS, torch
from selector.interop.torch_backend import report, tensor_selector


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--only", default="")
    parser.add_argument("--batch", type=int, default=1)
    options = parser.parse_args(arguments)
    given = {"folder": options.folder, "target": options.target, "cpu": "reference"}
    for model in MODELS:
        if options.only not in model.name:
            continue
        if model.missing:
            print(f"{model.name} left out: there is no {model.missing}", flush=True)
            continue
        start = time.perf_counter()
        traced(model, options.batch, given)
        print(model.name, f"{time.perf_counter() - start:.0f} s", flush=True)
        print(report(clear=True), flush=True)
    return 0


def traced(model: Any, batch: int, given: dict[str, Any]) -> None:
    """Compile what a model's graph has, without running it."""

    def compiled(graph: Any, inputs: Any) -> Any:
        tensor_selector(graph, inputs, options={**given, "rest": "eager"})
        return lambda *_: (torch.zeros(()),) * 2

    made = model.build("cpu", torch.float16, batch)
    with torch.no_grad():
        torch.compile(made, backend=compiled, fullgraph=True)(
            model.inputs(batch, "cpu", torch.float16)
        )


if __name__ == "__main__":
    sys.exit(main())
