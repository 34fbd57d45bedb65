"""What tuning leaves on disk, so that nothing is done twice: compiled kernels and finished trials,
each a file that is written in one step.

    kernels/ab/ab12...kernel     a saved kernel, by the hash of its program, target and versions
    trials/cd/cd34...json        a trial, by the hash of the kernel and of what it was timed with
    space.json                   in a folder of the user's own: the configurations and their kernels

A file that cannot be read counts as missing. Any number of processes may share a folder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from selector.diagnostics import ArtifactError
from selector.runtime.artifact import write_atomically
from selector.runtime.cache import KernelCache
from selector.tuning.results import FORMAT, VERSION, Trial, trial_of

_SPACE = "space.json"
# What reading JSON of the wrong form raises.
_DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError)


class Store:
    """A folder of kernels and trials."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kernels = KernelCache(folder / "kernels")

    def kernel_path(self, key: str) -> Path:
        return self._kernels.path(key)

    def kernel(self, key: str) -> bytes | None:
        """A saved kernel's bytes, or None; whether they are whole is seen when it is loaded."""
        try:
            return self.kernel_path(key).read_bytes()
        except OSError:
            return None

    def put_kernel(self, key: str, data: bytes) -> None:
        path = self.kernel_path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)

    def trial(self, key: str) -> tuple[Trial, str] | None:
        """A trial of an earlier run, and what it was checked against; None if there is none."""
        try:
            data = json.loads(self._trial_path(key).read_bytes())
            return replace(trial_of(data["trial"]), cached=True), str(data["checked_against"])
        except _DAMAGE:
            return None

    def put_trial(self, key: str, trial: Trial, checked_against: str) -> None:
        path = self._trial_path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        data = {"checked_against": checked_against, "trial": trial.as_dict()}
        write_atomically(path, json.dumps(data, indent=1).encode())

    def write_space(self, name: str, target: str, trials: Sequence[Trial]) -> None:
        """Say which configurations there are and where their kernels lie, for ``read_space``."""
        data = {
            "format": FORMAT,
            "version": VERSION,
            "name": name,
            "target": target,
            "trials": [
                {**t.as_dict(), "kernel": self._relative(t.kernel)}
                for t in sorted(trials, key=lambda t: t.index)
            ],
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / _SPACE, json.dumps(data, indent=1).encode())

    def read_space(self) -> tuple[str, str, tuple[Trial, ...]]:
        """Name, target and trials that ``write_space`` left, built or failed; ``ArtifactError`` if
        there are none.
        """
        path = self.folder / _SPACE
        try:
            data: dict[str, Any] = json.loads(path.read_bytes())
            if (data["format"], data["version"]) != (FORMAT, VERSION):
                raise ValueError("another format or version")
            trials = tuple(
                replace(t, kernel=str(self.folder / t.kernel) if t.kernel else "")
                for t in map(trial_of, data["trials"])
            )
            return str(data["name"]), str(data["target"]), trials
        except _DAMAGE as error:
            raise ArtifactError(
                f"{self.folder} holds no kernels to time",
                why=str(error),
                hint="build them first: hb.tune(..., folder=FOLDER, build_only=True)",
            ) from error

    def _relative(self, kernel: str) -> str:
        return str(Path(kernel).relative_to(self.folder)) if kernel else ""

    def _trial_path(self, key: str) -> Path:
        return self.folder / "trials" / key[:2] / f"{key}.json"
