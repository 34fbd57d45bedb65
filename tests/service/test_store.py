"""The store: what goes in comes out or is missing, whatever happens to the files."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from selector.diagnostics import ServiceError
from selector.service import shelf as shelves
from selector.service.answers import Answer, compiled, digest
from selector.service.shelf import KEEP, StoreFullError
from selector.service.store import Store

pytestmark = pytest.mark.verified

MIB = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, MIB)


def files(store: Store, kind: str) -> list[Path]:
    return [p for p in (store.folder / kind).rglob("*") if p.is_file()]


def test_round_trip(store: Store) -> None:
    data = random.Random(1).randbytes(1000)
    sha = store.put_artifact(data)
    assert sha == digest(data)
    assert store.artifact(sha) == data
    answer = compiled({"source": "x"}, data)
    store.put_answer("ab" * 32, answer.known())
    assert store.answer("ab" * 32) == answer.known()
    assert answer.known().body == answer.body.replace(b"false", b"true")
    assert Store(store.folder, MIB).artifact(sha) == data


def test_every_change_of_a_byte_is_noticed(store: Store) -> None:
    """An answer is what was stored or missing; so is a kernel."""
    key = "cd" * 32
    answer = Answer(422, b'{"error": {}}' * 20, keep=True)
    rng = random.Random(2)
    for _ in range(50):
        sha = store.put_artifact(b"kernel" * 50)
        store.put_answer(key, answer)
        for path in files(store, "artifacts") + files(store, "answers"):
            data = bytearray(path.read_bytes())
            match rng.randrange(3):
                case 0:
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                case 1:
                    del data[rng.randrange(len(data)) :]
                case _:
                    data += b"x"
            path.write_bytes(data)
        assert store.artifact(sha) is None
        found = store.answer(key)
        assert found is None or found.body == answer.body


def test_an_answer_whose_kernel_has_gone_is_missing(store: Store) -> None:
    data = b"kernel"
    sha = store.put_artifact(data)
    store.put_answer("ef" * 32, compiled({}, data).known())
    files(store, "artifacts")[0].unlink()
    assert not store.has_artifact(sha)
    assert store.answer("ef" * 32) is None


def test_what_was_not_used_for_longest_goes(store: Store) -> None:
    rng = random.Random(3)
    shas = []
    for i in range(30):
        shas.append(store.put_artifact(rng.randbytes(50_000)))
        if store.is_over:
            for _ in store.make_room(KEEP * MIB):
                pass
        path = store.folder / "artifacts" / shas[-1][:2] / shas[-1]
        os.utime(path, (i, i))
        if i == 10:
            first = store.artifact(shas[0])
            assert first is not None
    total = sum(p.stat().st_blocks * 512 for p in files(store, "artifacts"))
    assert KEEP * MIB - 2 * 50_000 < total == store.bytes <= MIB
    assert store.evicted > 0
    assert store.has_artifact(shas[0])  # it was used
    assert not store.has_artifact(shas[1])
    assert store.has_artifact(shas[-1])


def test_room_is_made_on_a_full_disk(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk on which there is room for ten files: old ones go."""
    write = shelves.write_atomically

    def limited(path: Path, data: bytes) -> None:
        if len(files(store, "artifacts")) >= 10:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, data)

    monkeypatch.setattr(shelves, "write_atomically", limited)
    for i in range(40):
        sha = store.put_artifact(b"%d" % i * 100)
        assert store.has_artifact(sha)
    assert len(files(store, "artifacts")) <= 10


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES])
def test_a_disk_that_cannot_be_written(
    store: Store, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(path: Path, data: bytes) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(shelves, "write_atomically", refuse)
    with pytest.raises(StoreFullError, match="cannot be stored"):
        store.put_artifact(b"x")


def test_leftovers_of_broken_writes_go(store: Store) -> None:
    folder = store.folder / "artifacts" / "ab"
    folder.mkdir()
    old, new = folder / ".old", folder / ".new"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    for _ in store.measure():
        pass
    assert store.bytes == 0
    assert not old.exists()
    assert new.exists()


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ServiceError, match="cannot be used as a store"):
        Store(tmp_path / "file", MIB)


def test_a_small_disk(small_disk: Path) -> None:
    """Old entries make room; where other files leave none, nothing is half written."""
    store = Store(small_disk / "store", 100 * MIB)
    rng = random.Random(4)
    shas = [store.put_artifact(rng.randbytes(20_000)) for _ in range(40)]
    assert store.evicted > 0
    assert store.artifact(shas[-1]) is not None
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize
    (small_disk / "other").write_bytes(bytes(free))
    with pytest.raises(StoreFullError, match="cannot be stored"):
        store.put_artifact(rng.randbytes(250_000))
    found = [p for p in files(store, "artifacts") if not store.artifact(p.name)]
    assert not found


def test_what_is_counted_is_what_the_disk_gives(store: Store) -> None:
    """A file takes blocks: a thousand of ten bytes are more than ten thousand."""
    for number in range(100):
        store.put_answer(f"{number:064x}", Answer(200, b"{}"))
    taken = sum(p.stat().st_blocks * 512 for p in files(store, "answers"))
    assert taken > 100 * 500
    assert store.bytes == taken


def test_an_answer_whose_header_was_changed_is_missing(store: Store) -> None:
    """Every byte is covered: no status, media type or name of a kernel can be put in its place."""
    key, data = "cd" * 32, b"kernel"
    store.put_artifact(data)
    store.put_answer(key, compiled({"source": "x"}, data).known())
    (path,) = files(store, "answers")
    whole = path.read_bytes()
    for old, new in ((b"200", b"201"), (b"application/json", b"application/jsom")):
        assert old in whole
        path.write_bytes(whole.replace(old, new))
        assert store.answer(key) is None
        path.write_bytes(whole)
    assert store.answer(key) is not None


def test_a_write_looks_at_a_small_part_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many entries there are: nobody waits while all of them are counted."""
    for number in range(2000):
        name = f"{number:064x}"[::-1]
        path = tmp_path / "answers" / name[:2] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    store, seen = Store(tmp_path, 1000 * MIB), 0
    stat = Path.stat

    class Listed(list[os.DirEntry[str]]):
        def __enter__(self) -> Listed:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    class Counted:
        def __init__(self, entry: os.DirEntry[str]) -> None:
            self.entry, self.name, self.path = entry, entry.name, entry.path

        def is_dir(self) -> bool:
            return self.entry.is_dir()

        def stat(self) -> os.stat_result:
            nonlocal seen
            seen += 1
            return self.entry.stat()

    def counting(path: Path, **more: bool) -> os.stat_result:
        nonlocal seen
        seen += 1
        return stat(path, **more)

    scandir = os.scandir
    monkeypatch.setattr(Path, "stat", counting)
    monkeypatch.setattr(shelves.os, "scandir", lambda p: Listed(map(Counted, scandir(p))))
    most = 0
    for number in range(300):
        seen = 0
        store.put_answer(f"{5000 + number:064x}"[::-1], Answer(200, b"{}"))
        most = max(most, seen)
    assert most < 2000 / 16 + 10
