"""One model at one batch: what it compiles to, its errors, its times. ``bench`` runs this.

Each contender is a CUDA graph over its call; they take turns, each call on the next of several
inputs that together exceed the L2 cache; the median counts. Errors are relative, in the norm,
against float32 of the same model (``allow_tf32`` off).
"""

from __future__ import annotations

import argparse
import fcntl
import json
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from casestudies.models.models import Model, model_of, torch
from selector.interop.torch_backend import report, tensor_selector
from selector.interop.torch_backend.choice import alone
from selector.interop.torch_backend.report import reports

INPUTS, ROUNDS = 4, 20
PLACE = Path(tempfile.gettempdir())


@contextmanager
def compiling() -> Any:
    """While this is held, nobody measures."""
    with (PLACE / "models-compile.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def measuring(until: float) -> Any:
    """One at a time, when nobody compiles, or it is that late; gives whether nobody does."""
    with (
        (PLACE / "models-measure.lock").open("w") as turn,
        (PLACE / "models-compile.lock").open("w") as others,
    ):
        fcntl.flock(turn, fcntl.LOCK_EX)
        while True:
            try:
                fcntl.flock(others, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.flock(others, fcntl.LOCK_UN)
                alone = True
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    alone = False
                    break
                time.sleep(0.05)
        yield alone


def contenders(model: Any, folder: str) -> dict[str, Callable[[], Any]]:
    """What makes functions of an input, which are compiled at their first call."""
    options = {"folder": folder} if folder else {}

    def compiled(**how: Any) -> Any:
        torch.compiler.reset()
        return torch.compile(model, fullgraph=True, dynamic=False, **how)

    return {
        "eager": lambda: model,
        "always": lambda: compiled(backend=tensor_selector, options=options | {"choose": "always"}),
        "tensor_selector": lambda: compiled(backend=tensor_selector, options=options),
        "inductor": lambda: compiled(),
        "max-autotune": lambda: compiled(mode="max-autotune-no-cudagraphs"),
    }


def graph_of(function: Any, x: Any) -> Any:
    """A CUDA graph of a call."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            function(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = function(x)
    return graph, kept


def timed(graphs: dict[str, list[Any]]) -> dict[str, float]:
    """Microseconds of each contender, in turns."""
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(ROUNDS):
        for name, each in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            each[0][0].replay()
            begin.record()
            for graph, _ in each:
                graph.replay()
            end.record()
            torch.cuda.synchronize()
            times[name].append(begin.elapsed_time(end) * 1000 / len(each))
    return {name: round(statistics.median(found), 2) for name, found in times.items()}


def called(function: Any, x: Any, count: int = 10) -> float:
    """Microseconds of a call without a CUDA graph, many one after the other."""
    function(x)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        function(x)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / count * 1e6


def kernels(function: Any, x: Any) -> list[Any]:
    """What runs on the GPU in a call: names, how often, and microseconds of all of these."""
    from torch.profiler import ProfilerActivity, profile

    function(x)
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        function(x)
        torch.cuda.synchronize()
    rows = [(e.key[:100], e.count, round(e.device_time_total, 1)) for e in found.key_averages()]
    return sorted(rows, key=lambda r: -r[2])[:40]


def first(result: Any) -> Any:
    return (result[0] if isinstance(result, tuple) else result).float()


class Measured:
    def __init__(self, model: Model, batch: int, path: Path) -> None:
        self.found: dict[str, Any] = {
            "model": model.name, "batch": batch, "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__, "date": time.strftime("%Y-%m-%d"), "error": {},
            "compile_s": {}, "failed": {}, "us": {}, "call_us": {}, "kernels": {},
            "regions": {}, "report": {},
        }  # fmt: skip
        self._path, self._model, self._batch = path, model, batch

    def write(self) -> None:
        self._path.write_text(json.dumps(self.found, indent=1))

    def compiled(self, peers: list[str], folder: str, until: float) -> dict[str, Any]:
        """Functions by contender, with their errors; none is begun later than that."""
        model = self._model
        exact = model.build("cuda", torch.float32, self._batch)
        given = model.inputs(self._batch, "cuda", torch.float32)
        wanted = first(exact(given))
        del exact
        made = model.build("cuda", torch.float16, self._batch)
        x = model.inputs(self._batch, "cuda", torch.float16)
        functions: dict[str, Any] = {}
        for name, make in contenders(made, folder).items():
            if name not in peers:
                continue
            if time.monotonic() > until:
                self.found["failed"][name] = "no time was left"
                continue
            try:
                start = time.perf_counter()
                functions[name] = make()
                with alone() if name == "eager" else nullcontext():  # cuDNN tries what it has
                    result = first(functions[name](x))
                    torch.cuda.synchronize()
                self.found["compile_s"][name] = round(time.perf_counter() - start, 1)
                self.found["error"][name] = float((result - wanted).norm() / wanted.norm())
            except Exception:  # one contender's failure is a result
                functions.pop(name, None)
                self.found["failed"][name] = traceback.format_exc()[-1500:]
            if reports():
                taken = [r for g in reports() for r in g.taken]
                count = sum(len(g.regions) for g in reports())
                self.found["regions"][name] = {"taken": len(taken), "all": count}
                self.found["report"][name] = report(clear=True).splitlines()
            self.write()
        return functions

    def measure(self, functions: dict[str, Any]) -> None:
        model, graphs = self._model, dict[str, list[Any]]()
        inputs = [model.inputs(self._batch, "cuda", torch.float16, i) for i in range(INPUTS)]
        for name, function in functions.items():
            try:
                graphs[name] = [graph_of(function, x) for x in inputs]
                self.found["call_us"][name] = round(called(function, inputs[0]), 1)
            except Exception:
                self.found["failed"][name] = traceback.format_exc()[-1500:]
        self.found["us"] = timed(graphs)
        self.write()
        for name, function in functions.items():
            self.found["kernels"][name] = kernels(function, inputs[0])
        self.write()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=model_of)
    parser.add_argument("batch", type=int)
    parser.add_argument("results", type=Path)
    parser.add_argument("--peers", required=True)
    parser.add_argument("--folder", default="")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--ahead", action="store_true", help="only compile, and write nothing")
    options = parser.parse_args(arguments)
    until = time.monotonic() + 0.7 * options.seconds
    torch.backends.cudnn.benchmark = True
    measured = Measured(options.model, options.batch, options.results)
    with torch.no_grad():
        if options.ahead:
            made = options.model.build("cuda", torch.float16, options.batch)
            x = options.model.inputs(options.batch, "cuda", torch.float16)
            with compiling():
                contenders(made, "")[options.peers]()(x)
            return 0
        with compiling():
            functions = measured.compiled(options.peers.split(","), options.folder, until)
        with measuring(until) as undisturbed:
            measured.found["undisturbed"] = undisturbed
            measured.measure(functions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
