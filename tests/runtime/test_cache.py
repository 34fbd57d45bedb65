"""The kernel cache: hits, misses, damage, eviction, and many processes at once."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import replace
from pathlib import Path

import pytest
from runtime_plans import conv_plan

from selector import environment
from selector.runtime.artifact import Artifact, to_bytes
from selector.runtime.cache import KernelCache, key_of

KERNEL = Artifact(conv_plan(), "module\n", "", {}, {"sm_90a": b"code"})


def key(i: int) -> str:
    return key_of({"module": str(i)})


def test_a_stored_kernel_is_found_again(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    assert cache.get(key(0)) is None
    cache.put(key(0), KERNEL)
    assert cache.get(key(0)) == KERNEL
    assert cache.get(key(1)) is None


@pytest.mark.parametrize("data", [b"", b"PK", b"no zip at all", to_bytes(KERNEL)[:-9]])
def test_a_damaged_entry_is_a_miss_and_goes(tmp_path: Path, data: bytes) -> None:
    cache = KernelCache(tmp_path)
    cache.put(key(0), KERNEL)
    cache.path(key(0)).write_bytes(data)
    assert cache.get(key(0)) is None
    assert not cache.path(key(0)).exists()


def test_the_entry_that_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    size = len(to_bytes(KERNEL))
    cache = KernelCache(tmp_path, limit=3 * size + size // 2)
    for i in range(3):
        cache.put(key(i), KERNEL)
        os.utime(cache.path(key(i)), (i, i))
    assert cache.get(key(0)) is not None  # now the newest
    cache.put(key(3), KERNEL)
    assert [cache.get(key(i)) is not None for i in range(4)] == [True, False, True, True]


def test_an_entry_larger_than_the_limit_is_kept_until_the_next(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, limit=10)
    cache.put(key(0), KERNEL)
    assert cache.get(key(0)) is not None
    cache.put(key(1), KERNEL)
    assert cache.get(key(0)) is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = KernelCache(tmp_path / "file" / "cache")
    cache.put(key(0), KERNEL)
    assert cache.get(key(0)) is None


def test_every_part_of_a_key_counts() -> None:
    parts = {"module": "a", "target": "sm_80", "strict": "True"}
    keys = {key_of(parts), *(key_of({**parts, k: v + "x"}) for k, v in parts.items())}
    assert len(keys) == 4


def hammer(folder: str, seed: int) -> int:
    """Read and write the same few entries; how many reads gave something wrong."""
    cache = KernelCache(Path(folder), limit=4 * len(to_bytes(KERNEL)))
    wrong = 0
    for i in range(60):
        n = (i * 7 + seed) % 6
        expected = replace(KERNEL, module_text=f"module {n}\n")
        found = cache.get(key(n))
        wrong += found is not None and found != expected
        cache.put(key(n), expected)
    return wrong


def test_processes_may_share_a_folder(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.starmap(hammer, [(str(tmp_path), seed) for seed in range(2)]) == [0, 0]
    assert not list(tmp_path.glob("*/.*")), "temporary files are left behind"


def test_the_folder_is_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SELECTOR_CACHE_DIR", str(tmp_path / "a" / "b"))
    assert environment.cache_directory() == tmp_path / "a" / "b"
    monkeypatch.setenv("SELECTOR_CACHE_DIR", "")
    assert environment.cache_directory() is None
    monkeypatch.delenv("SELECTOR_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert environment.cache_directory() == tmp_path / "tensor-selector"
