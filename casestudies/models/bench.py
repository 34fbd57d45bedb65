"""Time the models on a GPU: eager, Inductor, Inductor with max-autotune, and the backend.

    python -m casestudies.models.bench FOLDER --results FILE [--only DnCNN] [--peers eager,default]

FOLDER has the regions that ``build`` compiled. Each contender is a CUDA graph over its call; they
take turns, each call on the next of several inputs that together exceed the L2 cache; the median
counts. Errors are relative, against float32 of the same model, for each of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from casestudies.models.models import MODELS, Model, torch
from selector.interop.torch_backend import report, tensor_selector
from selector.interop.torch_backend.report import reports

INPUTS, ROUNDS = 4, 30


def contenders(model: Any, folder: Path) -> dict[str, Callable[[], Any]]:
    """What makes functions of an input, which are compiled at their first call."""
    options = {"folder": folder}

    def compiled(**how: Any) -> Any:
        torch.compiler.reset()
        return torch.compile(model, fullgraph=True, **how)

    return {
        "eager": lambda: model,
        "inductor": lambda: compiled(),
        "max-autotune": lambda: compiled(mode="max-autotune-no-cudagraphs"),
        "tensor_selector": lambda: compiled(backend=tensor_selector, options=options),
    }


def graph_of(function: Any, x: Any) -> Any:
    """A CUDA graph of a call, and its result."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function(x)
    return graph, result


def timed(graphs: dict[str, list[Any]]) -> dict[str, float]:
    """Microseconds of each contender, in turns."""
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for turn in range(ROUNDS):
        for name, each in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            each[turn % len(each)].replay()
            begin.record()
            for graph in each:
                graph.replay()
            end.record()
            torch.cuda.synchronize()
            times[name].append(begin.elapsed_time(end) * 1000 / len(each))
    return {name: statistics.median(found) for name, found in times.items()}


def called(function: Any, x: Any) -> float:
    """Microseconds of a call without a CUDA graph, many one after the other."""
    for _ in range(3):
        function(x)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(30):
        function(x)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / 30 * 1e6


def measured(model: Model, folder: Path, peers: list[str]) -> dict[str, Any]:
    made, x = model.build("cuda", torch.float16)
    exact, _ = model.build("cuda", torch.float32)
    wanted = exact(x.float())
    inputs = [x, *(torch.randn_like(x) for _ in range(INPUTS - 1))]
    found: dict[str, Any] = {"shape": model.shape, "error": {}, "call": {}, "failed": {}}
    graphs: dict[str, list[Any]] = {}
    for name, make in contenders(made, folder).items():
        if name not in peers:
            continue
        try:
            start = time.perf_counter()
            function = make()
            result = function(x)
            found.setdefault("compile_s", {})[name] = round(time.perf_counter() - start, 1)
            found["error"][name] = float((result.float() - wanted).norm() / wanted.norm())
            found["call"][name] = called(function, x)
            graphs[name] = [graph_of(function, each)[0] for each in inputs]
        except Exception as error:  # one contender's failure is a result
            found["failed"][name] = f"{type(error).__name__}: {error}"[:600]
    found["us"] = timed(graphs)
    taken = [r for g in reports() for r in g.taken]
    found["regions"] = {"taken": len(taken), "all": sum(len(g.regions) for g in reports())}
    found["report"] = report(clear=True)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--only", default="")
    parser.add_argument("--peers", default="eager,inductor,max-autotune,tensor_selector")
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    torch.backends.cudnn.benchmark = True
    with torch.no_grad():
        for model in MODELS:
            if options.only in model.name:
                found[model.name] = measured(model, options.folder, options.peers.split(","))
                options.results.write_text(json.dumps(found, indent=1))
                print(model.name, found[model.name]["us"], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
