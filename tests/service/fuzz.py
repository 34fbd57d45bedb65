"""Requests that nobody means, sent to a server: no 500, no hang, no file touched.

    python tests/service/fuzz.py --count 100000 [--seed 1] [--workers N] [--page]

Starts a server in an empty folder, with a file in it that no answer may quote; for each eight
workers (one a CPU) another one, since a server is one thread. They take the requests of a seed in
turn, so that those are the same on any machine. Exit code 1, with the requests in
``fuzz-failures.jsonl``, if an answer has another status than 200, 201 and 422, has
not the shape of an error, takes longer than the time limit allows, or if a file was changed outside
of the store. Landlock limits what the worker processes can reach as well, where there is one.

429 and 503 with ``Retry-After`` say that there is no room now: what is refused like that is sent
again, and counted apart. So are workers that did not start in time, which a busy machine makes:
requests wait for others then.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import multiprocessing
import secrets
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from mutations import requests
from service_tools import Reply, Server, hardware, put_into_page, running

from selector.service import calls, sandbox
from selector.service.settings import default_workers

PATIENCE = 60.0
"""Seconds for one answer: the time limit of 10, twice, and waiting for a worker."""
AGAIN = 10
"""Times that one request is sent again before its refusal counts."""
AT_ONCE = 4
"""Requests for each worker: one that it computes, others on their way."""
ENDS = ("time", "memory", "lost", "served", "grown", "abandoned", "start")


@dataclass
class Findings:
    """What came back; ``again``: refusals, by status, of what was sent again; ``ended``: workers;
    ``failures`` are (why, route, request).
    """

    statuses: Counter[tuple[str, int, str]] = field(default_factory=Counter[tuple[str, int, str]])
    failures: list[tuple[str, str, object]] = field(default_factory=list[tuple[str, str, object]])
    again: Counter[int] = field(default_factory=Counter[int])
    ended: Counter[str] = field(default_factory=Counter[str])
    slowest: float = 0.0

    def join(self, other: Findings) -> None:
        self.statuses += other.statuses
        self.failures += other.failures
        self.again += other.again
        self.ended += other.ended
        self.slowest = max(self.slowest, other.slowest)


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


def send(server: Server, kind: str, request: object, again: Counter[int]) -> Reply:
    """Ask until there is room."""
    path = "/links" if kind == "links" else f"/v1/{kind}"
    for attempt in itertools.count():
        # Nobody makes many links: these are of many.
        source = f"127.9.{secrets.randbelow(250)}.{1 + secrets.randbelow(250)}"
        reply = server.ask("POST", path, request, timeout=PATIENCE, source=source)
        if attempt == AGAIN or "retry-after" not in reply.headers:
            return reply
        again[reply.status] += 1
        time.sleep(float(reply.headers["retry-after"]))
    raise AssertionError


def fuzz(
    server: Server, count: int, seed: int, connections: int, part: int = 0, parts: int = 1
) -> Findings:
    """Send one in ``parts`` of ``count`` requests; what was found."""
    word = secrets.token_hex(16)
    secret = server.folder / "here" / "secret.txt"
    secret.write_text(f"(Int 1) ; {word}\n")
    before = files(server.folder)
    source: Iterator[tuple[str, dict[str, object]]] = itertools.islice(
        requests(seed, str(secret)), part, count, parts
    )
    found, lock = Findings(), threading.Lock()

    def work() -> None:
        while True:
            again = Counter[int]()
            with lock:
                kind, request = next(source, ("", {}))
            if not kind:
                return
            start = time.monotonic()
            try:
                reply = send(server, kind, request, again)
                why, label = check(reply, word), reply.status
            except OSError as error:
                why, label = f"{type(error).__name__}: {error}", 0
                reply = None
            kept = json.loads(reply.body)["error"]["kind"] if label == 422 and reply else ""
            with lock:
                found.again += again
                found.statuses[kind, label, kept] += 1
                found.slowest = max(found.slowest, time.monotonic() - start)
                if why:
                    found.failures.append((why, kind, request))

    threads = [threading.Thread(target=work) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if (sent := found.statuses.total()) != (asked := len(range(part, count, parts))):
        found.failures.append((f"{sent} of {asked} requests were answered", "", {}))
    if files(server.folder) != before:
        changed = sorted(set(files(server.folder).items()) ^ set(before.items()))
        found.failures.append((f"files were changed: {changed}", "", {}))
    return found


def python() -> tuple[str, ...]:
    """What makes a server take programs in Python, too, if it can here."""
    can = importlib.util.find_spec("halide") and sandbox.abi() >= 1 and calls.are_filtered_here()
    return ("--python-input",) if can else ()


def one(part: int, parts: int, count: int, seed: int, workers: int) -> Findings:
    """What one of several servers, with as many workers, does with its part of the requests."""
    at_once = AT_ONCE * workers
    limits = ("--workers", str(workers), "--time-limit", "10", "--queue", str(max(64, at_once)))
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), *limits, *python()) as server,
    ):
        found = fuzz(server, count, seed, at_once, part, parts)
        for reason in ENDS:
            name = f'selector_workers_ended_total{{reason="{reason}"}}'
            found.ended[reason] = int(server.metric(name))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=default_workers(), help="of all servers")
    parser.add_argument("--servers", type=int, default=0, help="0: one for each eight workers")
    parser.add_argument(
        "--page", action="store_true", help="put the outcome into the page on the service"
    )
    options = parser.parse_args()
    start, found = time.monotonic(), Findings()
    servers = options.servers or max(1, options.workers // 8)
    workers = max(1, options.workers // servers)
    job = partial(
        one, parts=servers, count=options.count, seed=options.seed, workers=workers
    )  # fmt: skip
    with multiprocessing.get_context("fork").Pool(servers) as pool:
        for part in pool.imap_unordered(job, range(servers)):
            found.join(part)
    for (kind, status, error), n in sorted(found.statuses.items()):
        print(f"{kind:8} {status} {error:16} {n}")
    print(f"sent again after {dict(found.again)}; workers ended: {dict(found.ended)}")
    print(f"{servers} servers of {workers} workers; slowest answer {found.slowest:.1f} s")
    print(f"{len(found.failures)} failures in {time.monotonic() - start:.0f} s")
    if found.failures:
        Path("fuzz-failures.jsonl").write_text(
            "".join(json.dumps(f) + "\n" for f in found.failures)
        )
    elif options.page:
        put_into_page("fuzz", sentence(found, options.seed))
    return 1 if found.failures else 0


def sentence(found: Findings, seed: int) -> str:
    """The outcome in words."""
    passed = sum(n for (_, status, _), n in found.statuses.items() if status in (200, 201))
    errors: Counter[str] = Counter()
    for (_, status, kind), n in found.statuses.items():
        if status == 422:
            errors[kind] += n
    ended = found.ended
    kinds = ", ".join(f"{n} {kind}" for kind, n in errors.most_common())
    return (
        f"Run {time.strftime('%Y-%m-%d')} on {hardware()}, seed {seed}: {found.statuses.total()} "
        f"requests, {passed} answered with 200 or 201, the others with 422 ({kinds}); no 500, no "
        f"request without an answer, no file read or changed; {ended['time'] + ended['memory']} "
        f"workers were ended at their limits, {ended['lost']} ended by themselves, "
        f"{ended['start']} did not start in time; {found.again.total()} requests were sent again "
        f"because there was no room.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
