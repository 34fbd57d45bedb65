"""Requests that nobody means, sent to a server: no 500, no hang, no file touched.

    python tests/service/fuzz.py --count 100000 [--seed 1] [--workers 2] [--page]

Starts a server in an empty folder, with a file in it that no answer may quote. Exit code 1, with
the requests in ``fuzz-failures.jsonl``, if an answer has another status than 200, 201 and 422, has
not the shape of an error, takes longer than the time limit allows, or if a file was changed outside
of the store. Landlock limits what the worker processes can reach as well, where there is one.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import secrets
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from mutations import requests
from service_tools import Reply, Server, hardware, put_into_page, running

from selector.service import calls, sandbox

PATIENCE = 60.0
"""Seconds for one answer: the time limit of 10, twice, and waiting for a worker."""


@dataclass
class Findings:
    """What came back; ``failures`` are (why, route, request)."""

    statuses: Counter[tuple[str, int, str]] = field(default_factory=Counter[tuple[str, int, str]])
    failures: list[tuple[str, str, object]] = field(default_factory=list[tuple[str, str, object]])
    slowest: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file of a server but those of its store."""
    store = folder / "store"
    found = (p for p in folder.rglob("*") if p.is_file() and store not in p.parents)
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in found}


def check(reply: Reply, word: str) -> str:
    """What is wrong with an answer; empty if nothing is."""
    if reply.status not in (200, 201, 422):
        return f"status {reply.status}: {reply.body[:300]!r}"
    if word.encode() in reply.body or b"root:x:0" in reply.body:
        return "a file was read"
    if reply.status == 422:
        try:
            assert reply.error["what"]
        except (AssertionError, ValueError, KeyError) as error:
            return f"no error: {error}"
    return ""


def send(server: Server, kind: str, request: object) -> Reply:
    """Ask until the queue has room."""
    path = "/links" if kind == "links" else f"/v1/{kind}"
    while True:
        # Nobody makes many links: these are of many.
        source = f"127.9.{secrets.randbelow(250)}.{1 + secrets.randbelow(250)}"
        reply = server.ask("POST", path, request, timeout=PATIENCE, source=source)
        if reply.status != 429:
            return reply
        time.sleep(0.2)


def fuzz(server: Server, count: int, seed: int, connections: int) -> Findings:
    """Send ``count`` requests; what was found."""
    word = secrets.token_hex(16)
    secret = server.folder / "here" / "secret.txt"
    secret.write_text(f"(Int 1) ; {word}\n")
    before = files(server.folder)
    source: Iterator[tuple[str, dict[str, object]]] = itertools.islice(
        requests(seed, str(secret)), count
    )
    found = Findings()

    def work() -> None:
        while True:
            with found.lock:
                kind, request = next(source, ("", {}))
            if not kind:
                return
            start = time.monotonic()
            try:
                reply = send(server, kind, request)
                why, label = check(reply, word), reply.status
            except OSError as error:
                why, label = f"{type(error).__name__}: {error}", 0
                reply = None
            kept = json.loads(reply.body)["error"]["kind"] if label == 422 and reply else ""
            with found.lock:
                found.statuses[kind, label, kept] += 1
                found.slowest = max(found.slowest, time.monotonic() - start)
                if why:
                    found.failures.append((why, kind, request))

    threads = [threading.Thread(target=work) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if (sent := found.statuses.total()) != count:
        found.failures.append((f"{sent} of {count} requests were answered", "", {}))
    if files(server.folder) != before:
        changed = sorted(set(files(server.folder).items()) ^ set(before.items()))
        found.failures.append((f"files were changed: {changed}", "", {}))
    return found


def python() -> tuple[str, ...]:
    """What makes a server take programs in Python, too, if it can here."""
    can = importlib.util.find_spec("halide") and sandbox.abi() >= 1 and calls.are_filtered_here()
    return ("--python-input",) if can else ()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument(
        "--page", action="store_true", help="put the outcome into the page on the service"
    )
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        limits = ("--workers", str(options.workers), "--time-limit", "10", *python())
        with running(Path(folder), *limits) as server:
            found = fuzz(server, options.count, options.seed, options.connections)
            ended = {
                reason: int(server.metric(f'selector_workers_ended_total{{reason="{reason}"}}'))
                for reason in ("time", "memory", "lost", "served", "grown")
            }
    for (kind, status, error), n in sorted(found.statuses.items()):
        print(f"{kind:8} {status} {error:16} {n}")
    print(f"workers ended: {ended}; slowest answer {found.slowest:.1f} s")
    print(f"{len(found.failures)} failures in {time.monotonic() - start:.0f} s")
    if found.failures:
        Path("fuzz-failures.jsonl").write_text(
            "".join(json.dumps(f) + "\n" for f in found.failures)
        )
    elif options.page:
        put_into_page("fuzz", sentence(found, options.seed, ended))
    return 1 if found.failures else 0


def sentence(found: Findings, seed: int, ended: dict[str, int]) -> str:
    """The outcome in words."""
    passed = sum(n for (_, status, _), n in found.statuses.items() if status in (200, 201))
    errors: Counter[str] = Counter()
    for (_, status, kind), n in found.statuses.items():
        if status == 422:
            errors[kind] += n
    kinds = ", ".join(f"{n} {kind}" for kind, n in errors.most_common())
    return (
        f"Run {time.strftime('%Y-%m-%d')} on {hardware()}, seed {seed}: {found.statuses.total()} "
        f"requests, {passed} answered with 200 or 201, the others with 422 ({kinds}); no 500, no "
        f"request without an answer, no file read or changed; {ended['time'] + ended['memory']} "
        f"workers were ended at their limits, {ended['lost']} ended by themselves.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
