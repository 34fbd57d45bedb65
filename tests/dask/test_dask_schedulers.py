"""Threads, processes and a cluster of processes: the kernel travels as its saved bytes."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from dask_pipelines import ZOO, kernel, random

from selector import Kernel

dask = pytest.importorskip("dask")
import dask.array as da  # noqa: E402

from selector.dask import apply  # noqa: E402
from selector.dask.work import KERNELS_AT_MOST, Parcel  # noqa: E402


def job() -> tuple[Any, np.ndarray]:
    image, taps = random((9, 700), "float16", 1), random((16,), "float16", 2)
    blocks = apply(kernel("tensor"), da.from_array(image, chunks=(4, 300)), taps, interpret=True)
    return blocks, kernel("tensor").interpret(image, taps)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
def test_a_local_scheduler(scheduler: str) -> None:
    blocks, expected = job()
    made = blocks.compute(scheduler=scheduler, num_workers=2)
    np.testing.assert_array_equal(made, expected, strict=True)


def test_a_cluster_of_processes() -> None:
    distributed = pytest.importorskip("distributed")
    blocks, expected = job()
    patience = {
        "distributed.comm.timeouts.connect": "180s",
        "distributed.comm.timeouts.tcp": "180s",
    }
    with (
        dask.config.set(patience),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        made = client.compute(blocks).result(timeout=240)
        again = (blocks[:, :100] * 2).compute()
    np.testing.assert_array_equal(made, expected, strict=True)
    np.testing.assert_array_equal(again, expected[:, :100] * 2, strict=True)


def test_a_kernel_is_read_once_in_a_process() -> None:
    parcel = Parcel.of(kernel("blur"), machine_code=False)
    copies = [pickle.loads(pickle.dumps(parcel)) for _ in range(8)]
    start = threading.Barrier(8)

    def read(p: Parcel) -> Kernel:
        start.wait()
        return p.kernel()[0]

    with ThreadPoolExecutor(8) as pool:
        kernels = list(pool.map(read, copies))
    assert len({id(k) for k in kernels}) == 1


def test_few_kernels_are_kept() -> None:
    first = Parcel.of(kernel("blur"), machine_code=False)
    kept = first.kernel()[0]
    for i in range(KERNELS_AT_MOST):
        Parcel(first.data, f"another {i}", False).kernel()
    assert first.kernel()[0] is not kept


def test_what_travels_is_the_saved_kernel() -> None:
    """Nothing that a worker unpickles for a kernel could run code: bytes and a hash."""
    parcel = Parcel.of(kernel("blur"), machine_code=False)
    assert parcel.data.startswith(b"PK")
    assert b".cubin" not in parcel.data
    assert len(pickle.dumps(parcel)) < len(parcel.data) + 300


def test_a_pickled_kernel_is_its_bytes() -> None:
    pickled = pickle.dumps(kernel("blur"))
    image = random((20, 30), ZOO["blur"].dtype, 3)
    np.testing.assert_array_equal(
        pickle.loads(pickled).interpret(image), kernel("blur").interpret(image)
    )
    assert b"PK" in pickled
