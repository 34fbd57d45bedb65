"""Saved kernels: one file that runs on a machine with NumPy only (and CuPy, for a GPU).

A zip archive with fixed names, so that any tool can look inside:

* ``manifest.json``: what the file is, its version, and the SHA-256 of every other member; a file
  with a member that is not in it is refused
* ``plan.json``: parameters, launches and sizes (``runtime.plan_json``)
* ``module.vir``: the selected program in the text form, for ``interpret``
* ``kernel.cu`` or ``kernel.c``: the source
* ``<target>.cubin``, or ``<n>.so`` with ``libraries.json`` that says how each was built: machine
  code, absent until it was asked for
* ``report.json``, ``report.txt``: what was selected, as data and as text

Nothing is pickled, nothing in it is executed while reading, and reading takes no more memory than
``members`` allows. Whatever is wrong with a file, the answer is ``ArtifactError``. A whole file
says nothing about who wrote it: what it holds is code, and calling the kernel runs it
(``api.load``).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from selector.dataclass import dataclass
from selector.diagnostics import ArtifactError, UserError
from selector.runtime.cpu_builds import Build, Library
from selector.runtime.members import MOST_BYTES, pack, parse_json, unpack
from selector.runtime.plan import Plan
from selector.runtime.plan_json import plan_from_json, plan_to_json
from selector.targets import find_target

FORMAT = "tensor-selector kernel"
VERSION = 3
MANIFEST = "manifest.json"
_ALWAYS = ("plan.json", "module.vir", "report.json", "report.txt")
_MACHINE_CODE = re.compile(r"sm_\d+a?\.cubin|\d\.so")
_AGAIN = "save it again: kernel.save(path)"
# What zipfile and json raise on damaged input: bad headers, wrong lengths, unknown compression.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    RuntimeError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    OverflowError,
    EOFError,
    OSError,
    AssertionError,
    UserError,
)


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a saved kernel holds. ``cubins`` is by target name; ``libraries`` are shared objects for
    CPUs, the preferred one first; ``report`` is JSON data.
    """

    plan: Plan
    module_text: str
    report_text: str
    report: dict[str, Any]
    cubins: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    libraries: tuple[Library, ...] = ()


def to_bytes(artifact: Artifact) -> bytes:
    """The file's bytes; the same for equal artifacts. ``ArtifactError`` if they are too many."""
    try:
        return pack(members_of(artifact))
    except ValueError as error:
        raise ArtifactError(f"{artifact.plan.name} cannot be saved", why=str(error)) from error


def members_of(artifact: Artifact) -> dict[str, bytes]:
    """The members of its archive, manifest first."""
    members = {
        "plan.json": _json(plan_to_json(artifact.plan)),
        "module.vir": artifact.module_text.encode(),
        _source_member(artifact.plan.target): artifact.plan.source.encode(),
        "report.json": _json(artifact.report),
        "report.txt": artifact.report_text.encode(),
        **{f"{target}.cubin": code for target, code in sorted(artifact.cubins.items())},
    }
    if artifact.libraries:
        members["libraries.json"] = _json([asdict(x.build) for x in artifact.libraries])
        members |= {f"{i}.so": x.code for i, x in enumerate(artifact.libraries)}
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "name": artifact.plan.name,
        "target": artifact.plan.target,
        "versions": dict(artifact.versions),
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()},
    }
    return {MANIFEST: _json(manifest), **members}


def from_bytes(data: bytes, name: str = "artifact") -> Artifact:
    """Read a file's bytes; ``ArtifactError`` on anything but a whole artifact of this version."""
    with damage(name):
        if not data.startswith(b"PK"):
            raise ArtifactError(f"{name} is not a saved kernel", hint=_AGAIN)
        return from_members(unpack(data), name)


@contextmanager
def damage(name: str) -> Generator[None]:
    """Whatever is wrong with a file is an ``ArtifactError``."""
    try:
        yield
    except ArtifactError:
        raise
    except _DAMAGE as error:
        raise ArtifactError(
            f"{name} is damaged", why=str(error) or type(error).__name__, hint=_AGAIN
        ) from error


def save(artifact: Artifact, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write an artifact; see ``write``."""
    write(to_bytes(artifact), path, overwrite)


def write(data: bytes, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write a saved kernel in one step, so that readers see the old one or the new one.

    ``ArtifactError`` if it exists and is no artifact, unless ``overwrite``; or if it cannot be
    written.
    """
    path = Path(path)
    if path.is_dir():
        raise ArtifactError(f"{path} is a folder", hint="name a file, such as conv.kernel")
    if path.exists() and not overwrite and not is_artifact(path):
        raise ArtifactError(
            f"{path} exists and is no saved kernel",
            hint="choose another name, or pass overwrite=True",
        )
    try:
        write_atomically(path, data)
    except OSError as error:
        raise ArtifactError(f"{path} cannot be written", why=error.strerror or "") from error


def load(path: str | os.PathLike[str]) -> Artifact:
    """Read a saved kernel; ``ArtifactError`` if there is none, or not a whole one."""
    return from_bytes(read(Path(path)), str(path))


def read(path: Path) -> bytes:
    """The bytes of a file; ``ArtifactError`` if it cannot be read."""
    try:
        return bytes_of(path)
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read", why=error.strerror or str(error)) from error


def bytes_of(path: Path) -> bytes:
    """What a file holds, if that is not too much to be a saved kernel."""
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(0, "it is a folder")
    if not stat.S_ISREG(status.st_mode):  # a pipe, a device: without an end
        raise OSError(0, "it is no file")
    with path.open("rb") as file:
        return file.read(MOST_BYTES + 1)


def is_artifact(path: Path) -> bool:
    """Whether a file says of itself that it is a saved kernel, of whatever version."""
    try:
        return manifest_of(unpack(bytes_of(path)), str(path)).get("format") == FORMAT
    except (ArtifactError, *_DAMAGE):
        return False


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever sees half of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def from_members(members: dict[str, bytes], name: str) -> Artifact:
    """What the members of an archive say; ``ArtifactError``, or what ``damage`` knows, if they are
    not those of a whole kernel.
    """
    manifest = manifest_of(members, name)
    _check_version(manifest, name)
    del members[MANIFEST]
    _check_names(members, manifest)
    for member, content in members.items():
        if hashlib.sha256(content).hexdigest() != manifest["sha256"][member]:
            raise ArtifactError(f"{name} is damaged", why=f"{member} has changed", hint=_AGAIN)
    source = members[_source_member(manifest["target"])].decode()
    plan = plan_from_json(parse_json("plan.json", members["plan.json"]), source)
    if (plan.name, plan.target) != (manifest["name"], manifest["target"]):
        raise ArtifactError(f"{name} is damaged", why="manifest and plan differ", hint=_AGAIN)
    cubins = {n.removesuffix(".cubin"): c for n, c in members.items() if n.endswith(".cubin")}
    return Artifact(
        plan,
        members["module.vir"].decode(),
        members["report.txt"].decode(),
        dict(parse_json("report.json", members["report.json"])),
        cubins,
        dict(manifest["versions"]),
        _libraries(members),
    )


def _source_member(target: str) -> str:
    return "kernel.c" if find_target(target).family == "amx" else "kernel.cu"


def _libraries(members: Mapping[str, bytes]) -> tuple[Library, ...]:
    builds = parse_json("libraries.json", members.get("libraries.json", b"[]"))
    return tuple(
        Library(
            Build(str(b["tiles"]), _texts(b["flags"]), _texts(b["needs"]), str(b["compiler"])),
            members[f"{i}.so"],
        )
        for i, b in enumerate(builds)
    )


def _texts(values: list[Any]) -> tuple[str, ...]:
    return tuple(str(v) for v in values)


def manifest_of(members: Mapping[str, bytes], name: str) -> dict[str, Any]:
    """What an archive says of itself."""
    if MANIFEST not in members:
        raise ArtifactError(f"{name} is not a saved kernel", why="it has no manifest")
    manifest = parse_json(MANIFEST, members[MANIFEST])
    if not isinstance(manifest, dict):
        raise ArtifactError(f"{name} is not a saved kernel", why="its manifest is none")
    return dict(manifest)  # pyright: ignore[reportUnknownArgumentType]


def _check_names(members: Mapping[str, bytes], manifest: Mapping[str, Any]) -> None:
    """``ValueError`` for members that are not in the manifest, that are missing, or that are none
    of ours."""
    listed = set(manifest["sha256"])
    for name in sorted(listed ^ members.keys()):
        raise ValueError(f"{name} is {'missing' if name in listed else 'not in its manifest'}")
    known = {*_ALWAYS, "libraries.json", _source_member(manifest["target"])}
    for name in sorted(members.keys() - known):
        if not _MACHINE_CODE.fullmatch(name):
            raise ValueError(f"{name} is no part of a saved kernel")


def _check_version(manifest: Mapping[str, Any], name: str) -> None:
    if manifest.get("format") != FORMAT:
        raise ArtifactError(
            f"{name} is not a saved kernel", why=f"it calls itself {manifest.get('format')!r}"
        )
    version = manifest.get("version")
    if version != VERSION:
        raise ArtifactError(
            f"{name} has format version {version}, this package reads {VERSION}",
            hint="save it again with this version, or load it with the one that saved it",
        )


def _json(data: object) -> bytes:
    return json.dumps(data, indent=1).encode()
