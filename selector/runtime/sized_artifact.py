"""Saved kernels with programs for several size classes: one file that holds those of each.

The archive's ``manifest.json`` lists the classes; the members of program ``i`` are those of a
kernel of its own (``runtime.artifact``) under ``i/``. Program 0 is that with
which compiling began.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from selector.diagnostics import ArtifactError
from selector.runtime import artifact as one
from selector.runtime.artifact import Artifact
from selector.runtime.classes import SizeClass
from selector.runtime.members import pack, unpack

VERSION = 4  # of the format; 3 is a file of one program
MOST = 64
Programs = tuple[Artifact, Mapping[SizeClass, Artifact]]


def to_bytes(base: Artifact, programs: Mapping[SizeClass, Artifact]) -> bytes:
    """The file's bytes; ``ArtifactError`` if they or the programs are too many."""
    name = base.plan.name
    if len(programs) > MOST:
        raise ArtifactError(
            f"{name} cannot be saved",
            why=f"it has programs for {len(programs)} size classes, more than {MOST}",
            hint="compile it anew, with sizes=[...] that are wanted",
        )
    manifest = {
        "format": one.FORMAT,
        "version": VERSION,
        "name": name,
        "target": base.plan.target,
        "classes": [dict(c.shapes) for c in programs],
    }
    members = {one.MANIFEST: json.dumps(manifest, indent=1).encode()}
    for i, artifact in enumerate((base, *programs.values())):
        members |= {f"{i}/{n}": data for n, data in one.members_of(artifact).items()}
    try:
        return pack(members)
    except ValueError as error:
        raise ArtifactError(f"{name} cannot be saved", why=str(error)) from error


def from_bytes(data: bytes, name: str = "artifact") -> Programs:
    """Read a file of one program or of several; ``ArtifactError`` for anything else."""
    with one.damage(name):
        if not data.startswith(b"PK"):
            return one.from_bytes(data, name), {}
        members = unpack(data)
        manifest = one.manifest_of(members, name)
        if manifest.get("format") != one.FORMAT or manifest.get("version") != VERSION:
            return one.from_members(members, name), {}
        return _several(members, manifest, name)


def load(path: str | os.PathLike[str]) -> Programs:
    """Read a saved kernel; ``ArtifactError`` if there is none, or not a whole one."""
    return from_bytes(one.read(Path(path)), str(path))


def _several(members: dict[str, bytes], manifest: Mapping[str, Any], name: str) -> Programs:
    classes = [_class(c) for c in manifest["classes"]]
    if len(classes) > MOST or len(set(classes)) < len(classes):
        raise ValueError("its size classes are too many, or twice the same")
    del members[one.MANIFEST]
    parts: list[dict[str, bytes]] = [{} for _ in range(len(classes) + 1)]
    for member, content in members.items():
        number, _, inner = member.partition("/")
        if not (number.isdecimal() and number == str(int(number)) and int(number) < len(parts)):
            raise ValueError(f"{member} is no part of a saved kernel")
        parts[int(number)][inner] = content
    base, *programs = (one.from_members(part, name) for part in parts)
    wanted = (manifest["name"], manifest["target"])
    names = [(b.name, len(b.dims)) for b in base.plan.buffers]
    for program in (base, *programs):
        found = [(b.name, len(b.dims)) for b in program.plan.buffers]
        if (program.plan.name, program.plan.target) != wanted or found != names:
            raise ValueError("its programs do not belong together")
    for each in classes:
        if any((n, len(own)) not in names for n, own in each.shapes):
            raise ValueError(f"a size class names what it does not have: {each}")
    return base, dict(zip(classes, programs, strict=True))


def _class(data: Mapping[str, Any]) -> SizeClass:
    shapes = tuple((str(name), tuple(own)) for name, own in data.items())
    for n in (n for _, own in shapes for n in own if n is not None):
        if not isinstance(n, int) or n < 1:
            raise ValueError(f"{n!r} is not the size of a class")
    return SizeClass(shapes)
