"""What is kept for a stream of CuPy: its handle names it, unless each thread has one of it."""

from __future__ import annotations

from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from selector.runtime.cuda import CupyDriver


@pytest.mark.parametrize(("handle", "each"), [(0, False), (1, False), (2, True), (0x5000, False)])
def test_threads_have_a_default_stream_each(handle: int, each: bool) -> None:
    driver, stream = CupyDriver(SimpleNamespace(ndarray=object)), SimpleNamespace(ptr=handle)

    def key() -> Hashable:
        return driver.stream_key(stream)

    with ThreadPoolExecutor(1) as another:
        assert (another.submit(key).result() != key()) == each
    assert key() == key()
