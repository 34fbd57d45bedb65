"""``python -m selector fuzz``: draws, runs, reports, shrinks.

Reports are resumable: programs that are in the file are not run again, nor any program twice.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fuzzing import report
from fuzzing.draw import draw, unscheduled
from fuzzing.features import features
from fuzzing.outcome import FAILURES, Outcome
from fuzzing.program import Program, from_data
from fuzzing.script import script
from fuzzing.shrink import shrink
from fuzzing.workers import ENVIRONMENT, Pool, Worker
from selector.api import resolve_target

RARE = 20_000  # programs of which one has to have what is asked for


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: programs ``first`` ... of a seed, until there are so many or time is up.
    ``having``: only those with a feature that this is a part of.
    """

    seed: int = 1
    first: int = 0
    programs: int | None = None
    seconds: float | None = None
    workers: int = 1
    gpu: bool = False
    auto: bool = False
    having: str = ""
    report: Path | None = None
    shrinks: int = 20
    shrink_seconds: float = 90.0


def drawn(plan: Plan, number: int) -> Program:
    p = draw(plan.seed, number)
    return unscheduled(p, plan.seed, number) if plan.auto else p


def jobs(plan: Plan, seen: set[str]) -> Iterator[tuple[int, Program]]:
    """Programs that were not run before; ``ValueError`` if few have what they are to have."""
    end = None if plan.seconds is None else time.monotonic() + plan.seconds
    target = resolve_target("cuda").name if plan.gpu else ""
    number, given = plan.first, 0
    while plan.programs is None or given < plan.programs:
        if end is not None and time.monotonic() > end:
            return
        p = drawn(plan, number)
        number += 1
        if not any(plan.having in f for f in features(p)):
            if number - plan.first > RARE * (given + 1):
                raise ValueError(f"no feature has {plan.having!r} in {RARE} programs")
            continue
        if target and p.memory != "amx":
            p = replace(p, target=target)
        if p.digest not in seen:
            seen.add(p.digest)
            yield number - 1, p
        given += 1


def run(plan: Plan) -> list[report.Record]:
    """All records: those of the report so far, and the new ones."""
    os.environ.update(ENVIRONMENT)
    records = list(report.read(plan.report)) if plan.report is not None else []
    seen = {r["digest"] for r in records}
    stream = None if plan.report is None else report.appended(plan.report)
    try:
        for number, p, outcome in Pool(plan.workers, plan.gpu).run(jobs(plan, seen)):
            found = report.record(plan.seed, number, p, outcome)
            records.append(found)
            if stream is not None:
                stream.write(json.dumps(found) + "\n")
                stream.flush()
            if outcome.kind in FAILURES:
                print(
                    f"{plan.seed}/{number} {p.family}: {outcome.kind} {outcome.detail}", flush=True
                )
    finally:
        if stream is not None:
            stream.close()
    return records


def smallest(plan: Plan, records: list[report.Record]) -> Iterator[str]:
    """Each class of failures once, as a short program, as they are found; a hang is not shrunk."""
    first: dict[tuple[str, str], report.Record] = {}
    for r in records:
        if r["kind"] in FAILURES and r["kind"] != "hang":
            first.setdefault(Outcome(r["kind"], r["detail"]).place, r)
    chosen = list(first.values())[: plan.shrinks]
    with ThreadPoolExecutor(plan.workers) as threads:
        for done in as_completed([threads.submit(shrunk, plan, r) for r in chosen]):
            yield done.result()


def shrunk(plan: Plan, r: dict[str, Any]) -> str:
    """A failure as a short program."""
    worker = Worker(plan.gpu)
    outcome = Outcome(r["kind"], r["detail"], r["text"])
    try:
        p = shrink(from_data(r["program"]), outcome, worker.run, plan.shrink_seconds)
    finally:
        worker.stop()
    title = f"Seed {r['seed']}, program {r['number']} ({p.family}): {r['kind']}, {r['detail']}."
    return script(p, title.replace('"', "'").replace("\\", "/"))


def told(records: Iterable[report.Record], path: Path | None) -> dict[str, Any]:
    """What they say together, which is written beside a report, too."""
    found = report.summary(records)
    if path is not None:
        text = json.dumps(found, indent=1)
        path.with_suffix(".summary.json").write_text(text, encoding="utf-8")
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, help="how long to draw (default: 60)")
    parser.add_argument("--programs", type=int, help="how many to draw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first of the seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--gpu", action="store_true", help="run every kernel on the GPU as well")
    parser.add_argument("--auto", action="store_true", help="the compiler schedules what is drawn")
    parser.add_argument(
        "--having", default="", metavar="TEXT", help="only programs with such a feature"
    )
    parser.add_argument("--report", type=Path, help="JSON lines, one a program; is resumed")
    parser.add_argument("--shrink", type=int, default=20, help="classes of failures to make small")
    parser.add_argument(
        "--show", type=int, metavar="NUMBER", help="print that program, run nothing"
    )
    parser.add_argument(
        "--summarize", type=Path, nargs="+", help="tables of these reports; --report names the data"
    )


def main(arguments: Sequence[str]) -> int:
    """Run the command; exit code 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m selector fuzz", description=__doc__)
    add_options(parser)
    options = parser.parse_args(arguments)
    if options.show is not None:
        p = drawn(Plan(options.seed, auto=options.auto), options.show)
        print(script(p, f"Seed {options.seed}, program {options.show} ({p.family})."))
        return 0
    if options.summarize:
        found = told((r for f in options.summarize for r in report.read(f)), options.report)
        print(report.table(found))
        return 0
    seconds = options.seconds
    if seconds is None and options.programs is None:
        seconds = 60.0
    plan = Plan(
        options.seed, options.first, options.programs, seconds, options.workers, options.gpu,
        options.auto, options.having, options.report, options.shrink,
    )  # fmt: skip
    begin = time.monotonic()
    records = run(plan)
    spent = time.monotonic() - begin
    for text in smallest(plan, records):
        print(f"\n{'-' * 80}\n{text}", flush=True)
    found = told(records, plan.report)
    print(f"\n{report.table(found)}\n{len(records)} in the report, {spent:.0f} s on {plan.workers} "
          f"workers")  # fmt: skip
    sys.stdout.flush()
    return 1 if found["failures"] else 0
