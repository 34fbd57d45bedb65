"""Later runs of some rows in the file of an earlier run of all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MACHINE = ("date", "device", "driver", "CUDA", "CuPy", "torch")


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The old data with the rows that were measured anew, and ``later``: what each later run was
    measured on and which problems, so that a table can say so. Rows of the sweep that the new run
    has but did not measure become what they are there only if the old one has no kernel for them;
    those that only the new one has come last.
    """
    done = {row["problem"] for row in new["rows"]}
    entries = {entry["name"]: entry for entry in new["sweep"]["entries"]}
    known = {entry["name"] for entry in old["sweep"]["entries"]}
    chosen = [_chosen(entry, entries.get(entry["name"]), done) for entry in old["sweep"]["entries"]]
    chosen += [entry for name, entry in entries.items() if name not in known]
    rows = [row for row in old["rows"] if row["problem"] not in done]
    run = {name: new[name] for name in MACHINE if name in new} | {"problems": sorted(done)}
    later = [run | {"problems": sorted({*run["problems"]} - done)} for run in old.get("later", [])]
    return {
        **old,
        "sweep": {**old["sweep"], "entries": chosen},
        "rows": [*rows, *new["rows"]],
        "later": [*filter(lambda run: run["problems"], later), run],
    }


def _chosen(
    old: Mapping[str, Any], new: Mapping[str, Any] | None, done: set[str]
) -> Mapping[str, Any]:
    if new is None or (old["file"] and new["problem"] not in done):
        return old
    return new
