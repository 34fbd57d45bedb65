"""Kernels of regions, by key: in this process, and in a folder that can be carried.

``KEY.json`` is the region, with sizes to be fast at; ``KEY.TARGET.kernel`` its kernel, or
``KEY.TARGET.refused`` why there is none; ``KEY.TARGET.txt`` what became of its Funcs. A machine
without Halide finds kernels there, and leaves the regions that it has none for: ``python -m
selector.interop.regions FOLDER`` compiles them elsewhere.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from selector import api, environment
from selector.dataclass import dataclass
from selector.diagnostics import ArtifactError, UserError
from selector.interop.regions.graph import RegionGraph, from_text
from selector.kernel import Kernel

_known: dict[str, Entry] = {}
_folders: dict[str, None] = {}  # of this process, the latest last
EACH = 2  # regions at least that a process is worth, which loads Halide first
_KEY = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Entry:
    """A region. ``kernel``, or ``why`` there is none; ``text``: what became of each Func.
    ``interpreted``: on the CPU by the kernel's program, else by torch.
    """

    graph: RegionGraph
    kernel: Kernel | None = None
    why: str = ""
    text: str = ""
    interpreted: bool = False

    @property
    def instructions(self) -> tuple[str, ...]:
        """The tensor instructions of its kernel."""
        if self.kernel is None:
            return ()
        blocks = [s.block for s in self.kernel.report.statements]
        return tuple(dict.fromkeys(b.instruction for b in blocks if b is not None))


def default_folder() -> Path | None:
    """Beside the kernels that are cached."""
    folder = environment.cache_directory()
    return None if folder is None else folder / "regions"


def use(folder: Path | None) -> None:
    """Look for regions there as well: torch may have kept a graph, and run no pass again."""
    if folder is not None:
        _folders.pop(str(folder), None)
        _folders[str(folder)] = None


def entry_of(
    graph: RegionGraph,
    hints: Mapping[str, int],
    target: str,
    folder: Path | None,
    interpreted: bool,
) -> Entry:
    """A region's kernel, compiled if need be. One that cannot be compiled has a reason instead."""
    key = graph.key
    found = _known.get(_name(key, target)) or _read(graph, target, folder)
    if found is None:
        found = _made(graph, hints, target, folder)
    _known[_name(key, target)] = found
    _known[key] = found = replace(found, interpreted=interpreted)
    return found


def found(key: str) -> Entry:
    """The region with a key that this process, or a folder, knows. ``ArtifactError`` if none."""
    if key in _known:
        return _known[key]
    from selector.runtime.cuda import driver
    from selector.targets import target_for

    default = default_folder()
    folders = [*([str(default)] if default else []), *_folders]
    for name in folders[::-1]:
        path = Path(name) / f"{key}.json"
        if _KEY.fullmatch(key) and path.exists():
            graph, _ = graph_of(path)
            try:
                gpu = driver()
                target = target_for(gpu.capability(gpu.current_device())).name
            except UserError:
                return _known.setdefault(key, Entry(graph))
            return _known.setdefault(key, _read(graph, target, Path(name)) or Entry(graph))
    raise ArtifactError(
        f"there is no region {key}",
        why="torch kept a graph that names it, and the folder of regions is gone",
        hint="torch.compiler.reset(), and empty torch's cache (TORCHINDUCTOR_CACHE_DIR)",
    )


def graph_of(path: Path) -> tuple[RegionGraph, dict[str, int]]:
    """A region from its file, with the sizes to be fast at."""
    try:
        data = json.loads(path.read_text())
        hints = {str(k): int(v) for k, v in data["sizes"].items()}
        return from_text(json.dumps(data["graph"])), hints
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise ArtifactError(f"{path.name} is no region", why=str(error)) from error


def can_compile() -> bool:
    """Whether Halide is here."""
    return all(importlib.util.find_spec(n) is not None for n in ("halide", "egglog"))


def compile_folder(folder: Path, target: str, processes: int = 1) -> Iterator[tuple[str, Entry]]:
    """Compile the regions of a folder that have neither kernel nor refusal for a target."""
    missing = [
        path
        for path in sorted(folder.glob("*.json"))
        if _read(graph_of(path)[0], target, folder) is None
    ]
    make = partial(_made_of, target=target, folder=folder)
    if min(processes, len(missing)) < 2:
        yield from map(make, missing)
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for path, key in zip(missing, pool.map(_key_of, missing, [target] * len(missing),
                             [folder] * len(missing)), strict=True):  # fmt: skip
            graph, _ = graph_of(path)
            yield key, _read(graph, target, folder) or Entry(graph, why="its process has ended")


def _made_of(path: Path, target: str, folder: Path) -> tuple[str, Entry]:
    graph, hints = graph_of(path)
    return graph.key, _made(graph, hints, target, folder)


def _key_of(path: Path, target: str, folder: Path) -> str:
    return _made_of(path, target, folder)[0]


def prepare(
    regions: Iterable[tuple[RegionGraph, Mapping[str, int]]], target: str, folder: Path | None
) -> None:
    """Compile those of them that nobody has compiled, side by side where there are many: in
    processes that know nothing of the caller's, which may be any script.
    """
    missing = {
        g.key: (g, hints) for g, hints in regions if _known.get(_name(g.key, target)) is None
    }
    missing = {k: v for k, v in missing.items() if _read(v[0], target, folder) is None}
    processes = min(len(missing) // EACH, os.cpu_count() or 1)
    if processes < 2 or not can_compile():
        return
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for key, (graph, hints) in missing.items():
            write(place, f"{key}.json", _text(graph, hints))
        command = [sys.executable, "-m", "selector.interop.regions", name]
        command += ["--target", target, "--processes", str(processes)]
        paths = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        subprocess.run(command, env=os.environ | paths, capture_output=True, check=False)
        for key, (graph, _) in missing.items():
            found = _read(graph, target, place)
            if found is not None:
                _known[_name(key, target)] = found
            if folder is not None and found is not None and writable(folder):
                for path in place.glob(f"{key}.*"):
                    _copied(path, folder)


def _copied(path: Path, folder: Path) -> None:
    whole = folder / f".{path.name}.{os.getpid()}"
    shutil.copyfile(path, whole)
    whole.replace(folder / path.name)


def _name(key: str, target: str) -> str:
    return f"{key}.{target}"


def _read(graph: RegionGraph, target: str, folder: Path | None) -> Entry | None:
    if folder is None:
        return None
    base = folder / _name(graph.key, target)
    kernel, refused, text = (Path(f"{base}.{end}") for end in ("kernel", "refused", "txt"))
    try:
        if kernel.exists():
            said = text.read_text() if text.exists() else ""
            return Entry(graph, api.load(kernel), text=said)
        if refused.exists():
            return Entry(graph, why=refused.read_text())
    except (ArtifactError, OSError):  # damaged, or of another version: made anew
        return None
    return None


def _made(graph: RegionGraph, hints: Mapping[str, int], target: str, folder: Path | None) -> Entry:
    write(folder, f"{graph.key}.json", _text(graph, hints))
    if not can_compile():
        return Entry(graph, why="no kernel in the folder of regions, and no Halide here to make it")
    from halide_bridge.torch_backend import compile_region

    base = _name(graph.key, target)
    try:
        kernel, text = compile_region(graph, hints, target)
        if folder is not None and writable(folder):
            kernel.save(folder / f"{base}.kernel", overwrite=True)
    except Exception as error:  # Halide's own as well: whatever it is, torch has the region
        why = f"{type(error).__name__}: {error}"
        if isinstance(error, UserError):
            why = error.why or error.what
        write(folder, f"{base}.refused", why)
        return Entry(graph, why=why)
    write(folder, f"{base}.txt", text)
    return Entry(graph, kernel, text=text)


def _text(graph: RegionGraph, hints: Mapping[str, int]) -> str:
    return json.dumps({"graph": json.loads(graph.text), "sizes": dict(hints)})


def writable(folder: Path) -> bool:
    """Whether a folder, which is made if need be, can be written to: one that is carried need not
    be.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def write(folder: Path | None, name: str, text: str) -> None:
    """A file of a folder (None, or one that is only read: nowhere), at once."""
    if folder is None or not writable(folder):
        return
    whole = folder / f".{name}.{os.getpid()}"
    whole.write_text(text)
    whole.replace(folder / name)
