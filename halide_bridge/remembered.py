"""Programs of plain pipelines that were compiled before: found by the pipeline as its user wrote
it, with nothing scheduled and nothing lowered.

What decides a program is in the key: Halide's own serialization of the pipeline, what it leaves out
of parameters, what is asked for, and the versions of all that schedules and lowers. A note in the
kernel cache says under which key the kernel itself is. Names of Funcs count: Halide makes them
unique in a process, so the same program finds its kernels in the next one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, Any

from halide_bridge.native import native
from halide_bridge.stock import HalideError, is_input, serialized
from halide_bridge.unscheduled import Source
from selector import environment
from selector.dataclass import dataclass
from selector.runtime.cache import KernelCache, key_of
from selector.runtime.versions import content_of, fingerprint, version, versions

if TYPE_CHECKING:
    from halide_bridge.schedules.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Note:
    """Under which key the kernel is, on which axes of arrays its schedule depends, and what is
    known of the precision of Funcs.
    """

    kernel: str
    depends: Mapping[str, set[int]] = field(default_factory=dict[str, set[int]])
    precisions: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Pipelines:
    """What one pipeline, asked for with some options, finds in a cache by its text."""

    cache: KernelCache
    text: str

    def key(self, sizes: Sizes | None, some: bool) -> str:
        told: Any = sizes
        if isinstance(sizes, Mapping):
            told = sorted((name, tuple(shape)) for name, shape in sizes.items())
        elif sizes is not None:
            told = tuple(sizes)
        return key_of({"pipeline": self.text, "sizes": repr(told), "some": repr(some)})

    def note(self, key: str) -> Note | None:
        found = self.cache.note(key)
        try:
            kernel, depends, precisions = json.loads(found or "null")
            return Note(kernel, {n: set(axes) for n, axes in depends.items()}, precisions)
        except (TypeError, ValueError, AttributeError):  # nothing, or no note of ours
            return None

    def write(self, key: str, note: Note) -> None:
        depends = {name: sorted(axes) for name, axes in note.depends.items()}
        text = json.dumps((note.kernel, depends, dict(note.precisions)))
        self.cache.put_note(key, text)


def pipelines_of(source: Source, target: str, options: Mapping[str, Any]) -> Pipelines | None:
    """None where nothing is kept: without a cache, where stages are dumped or somebody else
    compiles, and for inputs that have no names.
    """
    folder = environment.cache_directory()
    elsewhere = options.get("service") is not None or not options.get("cache", True)
    if folder is None or environment.dump_directory() is not None or elsewhere:
        return None
    try:
        text = serialized(source.outputs, source.pipeline)
    except HalideError:
        return None
    inputs = [*(source.inputs or ())]
    if not all(map(is_input, inputs)):
        return None
    parts = {
        "pipeline": hashlib.sha256(text).hexdigest(),
        "location": source.location,
        "said": repr(sorted(source.said.items())),
        "name": repr(source.name),
        "inputs": repr([p.name() for p in inputs if is_input(p)]),
        "target": target,
        "options": repr(sorted(options.items())),
        "patience": repr(environment.patience()),
        **_versions(),
        **versions(),
    }
    return Pipelines(KernelCache(folder), key_of(parts))


@cache
def _versions() -> Mapping[str, str]:
    """Of what makes loops of a pipeline."""
    own = native().__file__
    return {
        "halide": version("halide"),
        "bridge": fingerprint("halide_bridge"),
        "native": content_of(own) if own else "",
    }
