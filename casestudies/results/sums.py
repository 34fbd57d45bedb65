"""Sums in other words and in other types beside libraries: the tables of their page.

``sums.json``, ``tf32.json`` and ``float8.json`` are what ``tests/gpu/sums.py``, ``tf32.py`` and
``float8.py`` write with ``run FOLDER --results``, unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from casestudies.results.jobs import digits

OURS = "ours"


def _measured(data: dict[str, Any]) -> str:
    return (
        f"Microseconds, measured {data['date']} on one {data['gpu']} (torch {data['torch']}); "
        "relative errors against float64 in brackets."
    )


def _cell(row: dict[str, Any], name: str) -> str:
    return f"{digits(row[name])} ({row[f'{name} error']:.0e})" if name in row else "-"


def words(data: dict[str, Any]) -> str:
    """A row for each form: ours, and each library."""
    lines = [_measured(data), "", "| sum | ours | libraries | best of them / ours |",
             "|---|---:|---|---:|"]  # fmt: skip
    for row in data["rows"]:
        peers = [n for n in row if f"{n} error" in row and n != OURS]
        best = min(row[n] for n in peers)
        told = "; ".join(f"{n}: {_cell(row, n)}" for n in peers)
        name = row["job"].replace("_", " ")
        lines.append(f"| {name} | {_cell(row, OURS)} | {told} | {best / row[OURS]:.2f} |")
    return "\n".join(lines)


def types(data: dict[str, Any], columns: Sequence[tuple[str, str]]) -> str:
    """A row for each job; ``columns``: contenders, and what stands above them."""
    heads = " | ".join(head for _, head in columns)
    lines = [_measured(data), "", f"| job | {heads} |", f"|---|{'---:|' * len(columns)}"]
    for row in data["rows"]:
        cells = " | ".join(_cell(row, name) for name, _ in columns)
        lines.append(f"| {row['job']} | {cells} |")
    return "\n".join(lines)


def tf32(data: dict[str, Any]) -> str:
    return types(data, (
        ("tf32", "ours, tf32"), ("single", "ours, f32"), ("torch tf32", "torch, tf32"),
        ("torch single", "torch, f32"),
    ))  # fmt: skip


def float8(data: dict[str, Any]) -> str:
    return types(data, (
        ("float8", "ours, FP8"), ("decoded", "ours, decoded to halves"), ("halves", "ours, halves"),
        ("torch float8 short", "torch, FP8, short sums"), ("torch float8", "torch, FP8"),
        ("torch halves", "torch, halves"),
    ))  # fmt: skip
