"""The rows of the sweep: read from ``rows.toml``, or drawn log-uniformly from the ranges there."""

from __future__ import annotations

import math
import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from selector.diagnostics import UserError

LIST = Path(__file__).resolve().parent / "rows.toml"
EXTRA = "extra"  # the table of ranges

Value = str | int | float | bool
Fields = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Row:
    """A job: ``fields`` are what its family describes it by; ``name`` is unique in the list."""

    family: str
    group: str
    name: str
    fields: Fields


def listed(path: Path = LIST) -> tuple[Row, ...]:
    """All rows of the list, in its order."""
    return tuple(
        row
        for family, groups in _read(path).items()
        if family != EXTRA
        for group, table in groups.items()
        for row in _rows_of(family, group, table)
    )


def drawn(seed: int, count: int, path: Path = LIST) -> tuple[Row, ...]:
    """``count`` different rows for each family that has ranges, the same for the same seed."""
    found: dict[str, Row] = {}
    for family, groups in _read(path)[EXTRA].items():
        for group, ranges in groups.items():
            generator = random.Random(f"{seed} {family} {group}")
            wanted = len(found) + count
            while len(found) < wanted:
                chosen = {key: _draw(value, generator) for key, value in ranges.items()}
                row = _row(family, f"{group}{seed}", list(chosen.items()))
                found[row.name] = row
    return tuple(found.values())


def choose(rows: Sequence[Row], families: Sequence[str] = (), match: str = "") -> tuple[Row, ...]:
    """Those of the families (all, if none is named) whose names hold ``match``, a regular
    expression; ``UserError`` for a family that there is not, or a pattern that is none.
    """
    known = {row.family for row in rows}
    unknown = [family for family in families if family not in known]
    if unknown:
        hint = f"families: {', '.join(sorted(known))}"
        raise UserError(f"the sweep has no family {unknown[0]!r}", hint=hint)
    try:
        pattern = re.compile(match)
    except re.error as error:
        raise UserError(f"--rows: {match!r} is no regular expression", why=str(error)) from None
    return tuple(
        row for row in rows if (not families or row.family in families) and pattern.search(row.name)
    )


def _read(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return tomllib.load(file)


def _rows_of(family: str, group: str, table: Mapping[str, Any]) -> Iterator[Row]:
    axes = [value if isinstance(value, list) else [value] for value in table.values()]
    for values in product(*axes):
        yield _row(family, group, list(zip(table, values, strict=True)))


def _row(family: str, group: str, chosen: Sequence[tuple[str, Any]]) -> Row:
    fields: dict[str, Value] = {}
    parts = [family, group]
    for key, value in chosen:
        names, values = key.split(), value if isinstance(value, list) else [value]
        fields |= zip(names, values, strict=True)
        if isinstance(value, bool):
            parts += [key] * value
        else:
            parts.append("x".join(map(str, values)).replace(" ", "-"))
    return Row(family, group, "-".join(parts), fields)


def _draw(value: Any, generator: random.Random) -> Any:
    """A value of a range, log-uniformly, or of a list."""
    match value:
        case {"least": int(least), "most": int(most), **rest}:
            step = int(rest.get("step", 1))
            number = math.exp(generator.uniform(math.log(least), math.log(most)))
            return min(most, max(least, round(number / step) * step))
        case list():
            return generator.choice(value)
        case _:
            return value
