"""What has changed in the code that every program becomes: the net under changes of the emitters.

    python tests/digests.py [--match REGEX] [--update "why it may"] [--file FILE] [--workers N]

Emits every program of ``tests/programs.py`` and compares it with what is recorded in FILE, usually
``tests/golden/digests.txt``. Only what has another text is compiled, which tells whether the
machine code is another, too: names and comments leave it as it is. Lists what differs and how, exit
code 1; with ``--update`` it is recorded, with the reason, the date and the commit below the change.
``make digests`` and ``make digests UPDATE="why it may"`` are this.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from known_code import (  # noqa: E402
    FILE,
    REFUSED,
    UNCOMPILED,
    Code,
    Key,
    Known,
    machine_digest,
    parse,
    text_digest,
)
from programs import Program, programs  # noqa: E402

from selector.diagnostics import UserError  # noqa: E402
from selector.runtime import nvrtc  # noqa: E402

CHOSEN: list[Program] = []  # of this process: programs hold functions, which cannot be sent


def choose(match: str) -> None:
    CHOSEN[:] = [p for p in programs() if re.search(match, f"{p.name} {p.target}")]


def code_of(program: Program, before: Code | None) -> Code:
    """What a program becomes now; compiled where the text is another than before."""
    try:
        source = program.compile().source
    except UserError:
        return Code(REFUSED)
    text = text_digest(source)
    if before is not None and before.text == text:
        return before
    if program.target == "amx":
        return Code(text)
    return Code(text, machine_digest(nvrtc.compile_to_cubin(source, program.target)))


def entry(i: int, before: Mapping[Key, Code]) -> tuple[Key, Code]:
    key = CHOSEN[i].name, CHOSEN[i].target
    return key, code_of(CHOSEN[i], before.get(key))


def codes_of(match: str, before: Mapping[Key, Code], workers: int) -> Iterator[tuple[Key, Code]]:
    """What the programs that hold a regex become. A worker is a new process: a fork would have the
    locks of Halide's and egglog's threads, and nobody to open them."""
    choose(match)
    job, numbers = partial(entry, before=before), range(len(CHOSEN))
    if workers < 2:
        yield from map(job, numbers)
        return
    start = multiprocessing.get_context("spawn")
    with start.Pool(workers, initializer=choose, initargs=(match,)) as pool:
        yield from pool.imap(job, numbers, chunksize=8)


def difference(old: Code | None, new: Code | None) -> str:
    """How a program is not as it was; nothing if it is."""
    if old is None:
        return "new"
    if new is None:
        return "gone"
    if old.text == new.text:
        return ""
    if REFUSED in (old.text, new.text):
        return "refused now" if new.text == REFUSED else "no longer refused"
    if UNCOMPILED in (old.machine, new.machine):
        return "text"
    return "text only" if old.machine == new.machine else "machine code"


def differences(before: Mapping[Key, Code], now: Mapping[Key, Code]) -> dict[Key, str]:
    """How what is not as it was differs."""
    keys = sorted(before.keys() | now.keys())
    found = ((key, difference(before.get(key), now.get(key))) for key in keys)
    return {key: how for key, how in found if how}


def counted(changes: Mapping[Key, str]) -> str:
    return ", ".join(f"{n} {how}" for how, n in sorted(Counter(changes.values()).items()))


def updated(record: Known, codes: Mapping[Key, Code], why: str, version: str) -> Known:
    """The record with a reason more."""
    command = ("git", "rev-parse", "--short", "HEAD")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    changed = counted(differences(record.codes, codes))
    if record.nvrtc not in ("", version):
        changed = f"{changed}; NVRTC {record.nvrtc} -> {version}".removeprefix("; ")
    head = f"{datetime.date.today()} on {done.stdout.strip() or 'no commit'}"
    return Known(version, (f"{head}: {why} ({changed})", *record.reasons), codes)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--match", default="", help="only what holds this (regex on NAME TARGET)")
    parser.add_argument("--update", metavar="WHY", help="record what is, and why it may be so")
    parser.add_argument("--file", type=Path, default=FILE, help="another record")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    record = parse(options.file.read_text(encoding="utf-8")) if options.file.exists() else Known()
    version = nvrtc.version()
    if record.nvrtc not in ("", version):
        print(f"machine code was recorded with NVRTC {record.nvrtc}; this is {version}")
        if options.update:  # all of it is compiled anew
            record, options.match = replace(record, codes={}), ""
    before = {k: c for k, c in record.codes.items() if re.search(options.match, " ".join(k))}
    now = dict(codes_of(options.match, before, options.workers))
    changes = differences(before, now)
    for (program, target), how in sorted(changes.items(), key=lambda item: item[1]):
        print(f"{how:18} {program} {target}")
    print(f"{len(now)} programs: {counted(changes) or 'all as recorded'}")
    if options.update and changes:
        rest = {k: c for k, c in record.codes.items() if k not in before}
        options.file.write_text(str(updated(record, rest | now, options.update, version)))
    return 1 if changes and not options.update else 0


if __name__ == "__main__":
    sys.exit(main())
