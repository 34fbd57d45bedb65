"""Records of programs, streamed, and what they say together: features x outcomes, messages, costs.

A report is a file of JSON lines, one a program, written as each comes back: what is killed loses
nothing, and a run that appends to it leaves out the programs that are in it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from fuzzing.features import features
from fuzzing.outcome import COMPILING, FAILURES, Outcome
from fuzzing.program import Program, to_data

Record = dict[str, Any]
KINDS = ("ok", "refused", *FAILURES)


def record(seed: int, number: int, p: Program, outcome: Outcome) -> Record:
    found: Record = {
        "seed": seed, "number": number, "digest": p.digest,
        "features": [*features(p), *outcome.used], **outcome.as_dict(),
    }  # fmt: skip
    if outcome.kind in FAILURES:
        found["program"] = to_data(p)
    else:
        found["text"] = outcome.text[:1500] if outcome.kind == "refused" else ""
    return found


def read(path: Path) -> Iterator[Record]:
    """The records of a file; a line that was cut off is none."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


def appended(path: Path) -> TextIO:
    """The file, open at its end, which is the beginning of a line."""
    whole = not path.exists() or path.read_bytes()[-1:] in (b"", b"\n")
    stream = path.open("a", encoding="utf-8")
    stream.write("" if whole else "\n")
    return stream


def summary(records: Iterable[Record]) -> dict[str, Any]:
    """Everything that is told of many programs, as data. Of each class of messages there is the
    text of the first; the program that took longest to compile is named."""
    kinds: Counter[str] = Counter()
    messages: Counter[str] = Counter()
    example: dict[str, tuple[str, str]] = {}
    longest = (0.0, "")
    by_feature: dict[str, Counter[str]] = defaultdict(Counter)
    notes: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    failures: list[Record] = []
    for r in records:
        kinds[r["kind"]] += 1
        for feature in r["features"]:
            by_feature[feature][r["kind"]] += 1
        notes.update(r["notes"])
        seconds.update(r["seconds"])
        name = f"{r['seed']}/{r['number']}"
        compiling = sum(r["seconds"].get(stage, 0.0) for stage in COMPILING)
        longest = max(longest, (round(compiling, 2), name))
        if r["kind"] == "ok":
            continue
        message = f"{r['kind']}: {r['detail']}"
        messages[message] += 1
        example.setdefault(message, (name, r["text"]))
        if r["kind"] in FAILURES:
            names = ("seed", "number", "kind", "detail", "text", "program")
            failures.append({name: r.get(name) for name in names})
    count = max(1, sum(kinds.values()))
    return {
        "programs": sum(kinds.values()),
        "kinds": dict(kinds),
        "share compiled": round((kinds["ok"] + kinds["wrong"]) / count, 3),
        "seconds of a program": {k: round(v / count, 3) for k, v in seconds.most_common()},
        "longest compile": {"seconds": longest[0], "program": longest[1]},
        "messages": [
            {"message": m, "count": n, "example": example[m][0], "text": example[m][1]}
            for m, n in messages.most_common()
        ],
        "features": {f: dict(c) for f, c in sorted(by_feature.items())},
        "notes": dict(notes.most_common()),
        "failures": failures,
    }


def table(s: dict[str, Any]) -> str:
    """The summary as text."""
    kinds = [k for k in KINDS if s["kinds"].get(k)]
    width = max((len(f) for f in s["features"]), default=10)
    lines = [f"{'feature':{width}} " + " ".join(f"{k:>9}" for k in kinds)]
    rows = [*s["features"].items(), ("all", s["kinds"])]
    for feature, counts in rows:
        lines.append(
            f"{feature:{width}} " + " ".join(f"{counts.get(k, 0) or '':>9}" for k in kinds)
        )
    lines += ["", "messages (count, seed/number of the first)"]
    lines += [f"{m['count']:6} {m['example']:>12} {m['message']}" for m in s["messages"]]
    if s["notes"]:
        lines += ["", "oracles that had nothing to say"]
        lines += [f"{n:6} {note}" for note, n in s["notes"].items()]
    seconds = ", ".join(f"{k} {v}" for k, v in s["seconds of a program"].items())
    longest = s["longest compile"]
    lines += ["", f"{s['programs']} programs, {100 * s['share compiled']:.1f} % compiled; "
                  f"seconds of one: {seconds}; "
                  f"longest compile {longest['seconds']} s: {longest['program']}"]  # fmt: skip
    return "\n".join(lines)
