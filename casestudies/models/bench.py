"""Time the models on a GPU: eager, Inductor, Inductor with max-autotune, and the backend.

    python -m casestudies.models.bench RESULTS [--only DnCNN,GPT-2] [--batch 1,8]

RESULTS is a folder: a JSON for each model and batch, written after each step. Every model runs in
a process of its own with a time limit. The processes compile beside each other; they measure one
at a time, when no other compiles any more. What each does is in ``one``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from casestudies.models.models import MODELS

PEERS = "eager,tensor_selector,inductor"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--only", default=",".join(m.name for m in MODELS))
    parser.add_argument("--batch", default="1")
    parser.add_argument("--peers", default=PEERS)
    parser.add_argument("--folder", default="", help="of regions")
    parser.add_argument("--limit", type=float, default=600, help="seconds for all of them")
    options = parser.parse_args(arguments)
    options.results.mkdir(parents=True, exist_ok=True)
    running: dict[str, subprocess.Popen[bytes]] = {}
    end = time.monotonic() + options.limit
    for name in options.only.split(","):
        for batch in options.batch.split(","):
            base = options.results / f"{name}-{batch}"
            command = [sys.executable, "-m", "casestudies.models.one", name, batch, f"{base}.json"]
            command += ["--peers", options.peers, "--folder", options.folder]
            command += ["--seconds", str(options.limit)]
            with Path(f"{base}.log").open("wb") as log:
                running[str(base)] = subprocess.Popen(command, stdout=log, stderr=log)
    for base, process in running.items():
        try:
            print(base, process.wait(max(end - time.monotonic(), 0)), flush=True)
        except subprocess.TimeoutExpired:
            process.kill()
            print(base, "out of time", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
