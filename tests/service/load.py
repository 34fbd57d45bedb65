"""Many clients at once, against a server that this starts: the figures of the page on it.

    python tests/service/load.py --seconds 600 [--clients 50] [--rate 350] [--json FILE]

Each client keeps one connection and sends requests at its own pace, so that together they come to
``--rate`` a second; what a request waits for, an answer or its turn, is counted in its time. Most
are programs that were compiled before (of ``--programs`` conv1d filters); one in ``--new`` is one
that nobody has compiled yet: a new name, and any number of taps (a worker keeps the selection for a
number that it has seen, and does everything else anew). Afterwards the clients send as fast as they
can, for a tenth of the time, which gives the most that the server answers. Exit code 1 if any
status but 200 and 429 came back, or if the server's memory grew by more than 20 % after the
first fifth of the time.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).resolve().parents[2]))

from service_tools import Server, hardware, put_into_page, running

TEMPLATE = """module {name}
input I: float16 [(0, I.extent.0, 1), (0, I.extent.1, I.stride.1)]
input K: float16 [(0, K.extent.0, 1)]
output out: float32 [(0, out.extent.0, 1), (0, out.extent.1, out.stride.1)]
require I dim 0 from 0 to out.extent.0 + {last}
require I dim 1 from 0 to out.extent.1 + -1
require K dim 0 from 0 to {last}
body {{
 gpu_block<CUDA> (row, 0, (out.extent.1 + 3)/4) {{
  gpu_block<CUDA> (column, 0, (out.extent.0 + 255)/256) {{
   gpu_thread<CUDA> (warp, 0, 4) {{
    allocate acc[float32 * 256] in WMMAAccumulator
    acc[ramp(0, 1, 256)] = x256(0.000000f)
    acc[ramp(0, 1, 256)] = (float32x256)vector_reduce_add(float32x{many}(I[ramp(ramp((column*256) \
+ (((row*4) + warp)*I.stride.1), 1, {taps}), x{taps}(1), 256)])*x256(float32x{taps}(K[ramp(0, 1, \
{taps})]))) + acc[ramp(0, 1, 256)]
    out[ramp((column*256) + (((row*4) + warp)*out.stride.1), 1, 256)] = acc[ramp(0, 1, 256)] \
if (ramp(column*256, 1, 256) < x256(out.extent.0)) && x256(((row*4) + warp) < out.extent.1)
   }}
  }}
 }}
}}
"""


def program(name: str, taps: int) -> str:
    return TEMPLATE.format(name=name, taps=taps, last=taps - 1, many=256 * taps)


def body(name: str, taps: int) -> bytes:
    return json.dumps({"ir": program(name, taps), "target": "sm_80"}).encode()


@dataclass
class Times:
    """Seconds of answers that were found and of those that were computed; statuses; memory."""

    cached: list[float] = field(default_factory=list[float])
    uncached: list[float] = field(default_factory=list[float])
    statuses: Counter[int] = field(default_factory=Counter[int])
    memory: list[tuple[float, int, int]] = field(default_factory=list[tuple[float, int, int]])
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class Load:
    """Clients that send until ``end``, each at its ``interval``, or (0) as fast as it can."""

    server: Server
    known: list[bytes]
    new: int
    interval: float
    end: float
    fresh: itertools.count[int]
    times: Times = field(default_factory=Times)

    def client(self, seed: int) -> None:
        rng = random.Random(seed)
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=120)
        turn = time.perf_counter() + rng.random() * self.interval
        while turn < self.end:
            pause = turn - time.perf_counter()
            if pause > 0:
                time.sleep(pause)
            asked_new = self.new > 0 and rng.randrange(self.new) == 0
            data = self._fresh(rng) if asked_new else rng.choice(self.known)
            began = turn if self.interval else time.perf_counter()
            connection.request("POST", "/v1/compile", data)
            reply = connection.getresponse()
            answer = reply.read()
            took = time.perf_counter() - began
            with self.times.lock:
                self.times.statuses[reply.status] += 1
                if reply.status == 200:
                    found = answer.endswith(b'"cached":true}')
                    (self.times.cached if found else self.times.uncached).append(took)
            turn = max(turn + self.interval, time.perf_counter() - 5 * self.interval)
        connection.close()

    def _fresh(self, rng: random.Random) -> bytes:
        return body(f"fresh{next(self.fresh)}", rng.randrange(2, 65))

    def run(self, clients: int) -> Times:
        threads = [threading.Thread(target=self.client, args=(i,)) for i in range(clients)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        while time.perf_counter() < self.end:
            time.sleep(min(2.0, max(0.1, self.end - time.perf_counter())))
            workers = int(self.server.metric("selector_worker_memory_bytes"))
            now = time.perf_counter() - start
            self.times.memory.append((now, self.server.memory(), workers))
        for thread in threads:
            thread.join()
        return self.times


def share(times: list[float], part: float) -> float | None:
    """A percentile in milliseconds."""
    if len(times) < 2:
        return None
    return round(1000 * statistics.quantiles(times, n=1000)[round(part * 1000) - 1], 2)


def figures(times: Times, seconds: float) -> dict[str, object]:
    answered = len(times.cached) + len(times.uncached)
    late = [m for m in times.memory if m[0] >= seconds / 5] or times.memory
    return {
        "seconds": round(seconds, 1),
        "answers_per_second": round(answered / seconds, 1),
        "statuses": {str(k): v for k, v in sorted(times.statuses.items())},
        "cached_ms": {f"p{p}": share(times.cached, p / 100) for p in (50, 90, 99)},
        "uncached": len(times.uncached),
        "uncached_ms": {f"p{p}": share(times.uncached, p / 100) for p in (50, 90, 99)},
        "server_mib": [late[0][1] >> 20, max(m[1] for m in late) >> 20],
        "workers_mib": [late[0][2] >> 20, max(m[2] for m in late) >> 20],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--rate", type=float, default=350, help="requests a second of all clients")
    parser.add_argument("--programs", type=int, default=40)
    parser.add_argument("--new", type=int, default=200, help="one in so many is a new program")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--page", action="store_true", help="put the figures into the page on the service"
    )
    options = parser.parse_args()
    known = [body(f"known{i}", 2 + i) for i in range(options.programs)]
    fresh = itertools.count()
    found: dict[str, object] = {"clients": options.clients, "workers": options.workers}
    workers = ("--workers", str(options.workers))
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), *workers) as server:
        server.wait_ready(options.workers)
        for data in known:
            assert server.ask("POST", "/v1/compile", data).status == 200
        for name, interval, new, seconds in (
            ("paced", options.clients / options.rate, options.new, options.seconds),
            ("as fast as they can", 0.0, 0, max(2.0, options.seconds / 10)),
        ):
            end = time.perf_counter() + seconds
            times = Load(server, known, new, interval, end, fresh).run(options.clients)
            found[name] = figures(times, seconds)
    text = json.dumps(found, indent=2)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n")
    if options.page:
        put_into_page("load", sentence(found))
    return 0 if _fine(found) else 1


def sentence(found: dict[str, object]) -> str:
    """The figures in words."""
    paced, fast = found["paced"], found["as fast as they can"]
    assert isinstance(paced, dict)
    assert isinstance(fast, dict)
    cached, uncached = paced["cached_ms"], paced["uncached_ms"]
    busy = paced["statuses"].get("429", 0)
    server = paced["server_mib"]
    return (
        f"Measured {time.strftime('%Y-%m-%d')} on {hardware()} for server, {found['workers']} "
        f"workers and {found['clients']} clients together "
        f"(`tests/service/load.py --seconds {paced['seconds']:g}`): "
        f"{paced['answers_per_second']:g} requests a second, answered from the store in "
        f"{cached['p50']} ms (median; {cached['p99']} ms at 99 %), {paced['uncached']} programs "
        f"that were new (the README's convolution with 2 to 64 taps) in {uncached['p50']} ms "
        f"(median; {uncached['p90']} ms at 90 %), {busy} times 429, no other error; the server "
        f"took {server[0]} MiB at the beginning and {server[1]} MiB at most. As fast as they can, "
        f"the same clients get {fast['answers_per_second']:g} answers a second.\n"
    )


def _fine(found: dict[str, object]) -> bool:
    """No status but 200 and 429, and memory that stays."""
    rows = [row for row in found.values() if isinstance(row, dict)]
    return all(
        set(row["statuses"]) <= {"200", "429"}
        and row["server_mib"][1] <= 1.2 * row["server_mib"][0]
        for row in rows
    )


if __name__ == "__main__":
    sys.exit(main())
