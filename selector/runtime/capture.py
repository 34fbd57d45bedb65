"""Calls on a stream that is being captured into a CUDA graph.

What such a call allocates has to live as long as the graph, which belongs to somebody else. A CUDA
user object does that: graphs, what is instantiated from them and copies count their references
to one, and the last of them posts a semaphore. No Python runs then, as any thread may be told.

Source: CUDA Driver API, ``cuUserObjectCreate``, ``cuGraphRetainUserObject``,
``cuThreadExchangeStreamCaptureMode``.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any

from selector.diagnostics import TargetError
from selector.runtime.libcuda import driver_function

_RELAXED = 2  # CUstreamCaptureMode
_ACTIVE = 1  # CUstreamCaptureStatus
_NO_DESTRUCTOR_SYNC = 1  # CUuserObject_flags
_MOVE = 1  # CUuserObjectRetain_flags
_SEMAPHORE_BYTES = 64  # at least what sem_t takes

# What graphs use, by the address of the semaphore that says when they no longer do.
_held: dict[int, object] = {}
_alone = threading.Lock()


@contextmanager
def relaxed() -> Generator[None]:
    """While this thread captures a stream, it may allocate and load code inside."""
    exchange = driver_function("cuThreadExchangeStreamCaptureMode")
    if exchange is None:
        yield
        return
    mode = ctypes.c_int(_RELAXED)
    exchange(ctypes.byref(mode))
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


def hold(stream: int, owner: object) -> None:
    """Keep ``owner`` until the graph that ``stream`` is captured into, and all that is made of it,
    are gone. ``TargetError`` where the driver cannot tell.
    """
    let_go()
    graph, _ = _capture_of(stream)
    semaphore = _libc().malloc(_SEMAPHORE_BYTES)
    _libc().sem_init(semaphore, 0, 0)
    user_object = ctypes.c_void_p()
    posted = ctypes.cast(_libc().sem_post, ctypes.c_void_p)
    _call(
        "cuUserObjectCreate",
        ctypes.byref(user_object),
        ctypes.c_void_p(semaphore),
        posted,
        ctypes.c_uint(1),
        ctypes.c_uint(_NO_DESTRUCTOR_SYNC),
    )
    _call("cuGraphRetainUserObject", graph, user_object, ctypes.c_uint(1), ctypes.c_uint(_MOVE))
    with _alone:
        _held[semaphore] = owner


def let_go() -> None:
    """Drop what no graph uses any more."""
    owners: list[object] = []  # dropped without the lock
    with _alone:
        for semaphore in tuple(_held):
            if _libc().sem_trywait(semaphore) == 0:
                owners.append(_held.pop(semaphore))
                _libc().free(semaphore)


def number_of(stream: int) -> int:
    """The number of the capture that a stream is in, which no other has."""
    return _capture_of(stream)[1]


def _capture_of(stream: int) -> tuple[ctypes.c_void_p, int]:
    """The graph (CUgraph) that a stream is being captured into, and the number of the capture."""
    status, number, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
    _call(
        "cuStreamGetCaptureInfo_v2",
        ctypes.c_void_p(stream),
        ctypes.byref(status),
        ctypes.byref(number),
        ctypes.byref(graph),
        None,
        None,
    )
    if status.value != _ACTIVE:
        raise TargetError("the stream is not being captured")
    return graph, number.value


def _call(name: str, *arguments: Any) -> None:
    function = driver_function(name)
    status = None if function is None else function(*arguments)
    if status != 0:
        raise TargetError(
            "a call that needs intermediate arrays cannot be captured here",
            why=f"{name} " + ("is not in this driver" if status is None else f"gave {status}"),
            hint="kernel.graph(...) makes a graph of the call, which keeps them",
        )


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.sem_init.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint]
    for name in ("free", "sem_trywait", "sem_post"):
        getattr(libc, name).argtypes = [ctypes.c_void_p]
    return libc
