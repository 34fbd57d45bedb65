"""Time the models on a GPU: eager, Inductor, Inductor with max-autotune, and the backend.

    python -m casestudies.models.bench RESULTS [--only DnCNN,GPT-2] [--batch 1,8]

RESULTS is a folder: a JSON for each model and batch, written after each step. Every model runs in
a process of its own with a time limit, and another one compiles what Inductor has to, into its
cache. They compile beside each other, and measure one at a time, when no other compiles any more.
What each does is in ``one``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from casestudies.models.models import MODELS

PEERS, INDUCTOR = "eager,tensor_selector,inductor", {"inductor", "max-autotune"}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--only", default=",".join(m.name for m in MODELS if not m.missing))
    parser.add_argument("--batch", default="1")
    parser.add_argument("--peers", default=PEERS)
    parser.add_argument("--folder", default="", help="of regions")
    parser.add_argument("--limit", type=float, default=600, help="seconds for all of them")
    options = parser.parse_args(arguments)
    options.results.mkdir(parents=True, exist_ok=True)
    running, ahead = dict[str, subprocess.Popen[bytes]](), list[subprocess.Popen[bytes]]()
    end = time.monotonic() + options.limit
    for name in options.only.split(","):
        for batch in options.batch.split(","):
            base = options.results / f"{name}-{batch}"
            command = [sys.executable, "-m", "casestudies.models.one", name, batch, f"{base}.json"]
            command += ["--folder", options.folder, "--seconds", str(options.limit)]
            with Path(f"{base}.log").open("wb") as log:
                start = partial(subprocess.Popen, stdout=log, stderr=log)
                running[str(base)] = start([*command, "--peers", options.peers])
                for peer in INDUCTOR & {*options.peers.split(",")}:  # into Inductor's own cache
                    ahead.append(start([*command, "--peers", peer, "--ahead"]))
    for base, process in running.items():
        try:
            print(base, process.wait(max(end - time.monotonic(), 0)), flush=True)
        except subprocess.TimeoutExpired:
            process.kill()
            print(base, "out of time", flush=True)
    for process in ahead:
        process.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
