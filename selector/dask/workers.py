"""Processes of this machine, each with a GPU of its own as far as there are as many."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.config
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import WorkerPlugin

from selector.diagnostics import UserError

THREADS = 4  # of a worker: one computes while others read and write


class OneGpu(WorkerPlugin):
    """A worker sees one GPU, which its number chooses, before anything asks for one."""

    name = "one GPU a worker"

    def setup(self, worker: Any) -> None:
        """Called in each new process, one that replaces another among them."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = visible.split(",") if visible else list(map(str, range(_count())))
        if gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = gpus[int(worker.name) % len(gpus)]


def _count() -> int:
    """GPUs that the driver knows of."""
    return len([*Path("/proc/driver/nvidia/gpus").glob("*")])


@contextmanager
def local_workers(count: int) -> Generator[None]:
    """Dask computes in so many processes meanwhile."""
    patience = {
        "distributed.comm.timeouts.connect": "180s",
        "distributed.comm.timeouts.tcp": "180s",
    }
    served: Any = {"processes": True, "dashboard_address": None}  # None is no text to its stub
    with (
        dask.config.set(patience),
        LocalCluster(n_workers=count, threads_per_worker=THREADS, **served) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(OneGpu())
        yield


@contextmanager
def cluster_at(address: str) -> Generator[None]:
    """Dask computes on a cluster meanwhile. ``UserError`` where no scheduler answers."""
    try:
        client = Client(address, timeout="20s")
    except (OSError, ValueError) as error:
        raise UserError(f"no scheduler answers at {address}", why=str(error)) from error
    with client:
        yield
