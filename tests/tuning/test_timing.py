"""Calls that are timed, without a GPU: what they return lives until the same call comes again."""

from __future__ import annotations

import gc
import weakref

from selector.tuning import timing


class Result:
    pass


def test_what_calls_allocate_takes_turns() -> None:
    alive = weakref.WeakSet[Result]()
    most: list[int] = []

    def call() -> Result:
        gc.collect()
        most.append(len(alive))
        result = Result()
        alive.add(result)
        return result

    timing._run([call] * 3, 2)  # pyright: ignore[reportPrivateUsage]
    assert most == [0, 1, 2, 3, 3, 3]
    gc.collect()
    assert not alive


def test_a_broken_capture_is_ended() -> None:
    """Whatever the stream says of it: it says that nothing is captured."""
    ended: list[str] = []

    class Stream:
        def begin_capture(self) -> None:
            ended.append("begun")

        def end_capture(self) -> None:
            ended.append("ended")
            raise RuntimeError("invalidated")

        def is_capturing(self) -> bool:
            return False

    def refuses() -> object:
        raise RuntimeError("not permitted")

    assert timing._capture([refuses], 1, Stream()) is None  # pyright: ignore[reportPrivateUsage]
    assert ended == ["begun", "ended"]
