"""What a worker may do to the machine: next to nothing.

Rules from elsewhere are checked before they run; this is the second wall. After ``confine`` a
process reads its own installation, writes in one folder, and cannot grow beyond its memory.
Landlock: Documentation/userspace-api/landlock.rst of Linux, ABI 1 (Linux 5.13) and later; TCP from
ABI 4 (6.7) on, signals to other processes from ABI 6 (6.12) on. Where the kernel has none, the
limits of memory and files remain.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls, x86-64
_NO_NEW_PRIVILEGES, _DEATH_SIGNAL = 38, 1  # prctl
_EXECUTE, _WRITE, _READ, _LIST = 1, 2, 4, 8
_EVERYTHING = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
_NETWORK = 3  # bind and connect over TCP, from ABI 4 on
_SCOPED = 3  # abstract sockets and signals, from ABI 6 on
SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/dev/urandom")


def end_with_parent(parent: int) -> None:
    """Be killed when the server is gone."""
    _libc().prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def limit(memory: int, file: int) -> None:
    """Bytes of address space from here on, and of any file."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + memory, now + memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file, file))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def installation() -> tuple[str, ...]:
    """The folders that Python and its packages come from."""
    own = Path(__file__).resolve().parents[2]
    folders = {sys.prefix, sys.base_prefix, str(own), *(p for p in sys.path if os.path.isdir(p))}
    return tuple(sorted(os.path.realpath(f) for f in folders))


def abi() -> int:
    """What this kernel has of Landlock; less than 1: nothing."""
    return int(_libc().syscall(_CREATE, None, 0, 1))


def confine(readable: Iterable[str], writable: str | None) -> bool:
    """Keep this process to these folders (none: it opens nothing), and off the network; whether
    the kernel can.
    """
    libc, known = _libc(), abi()
    if known < 1:
        return False
    handled = _EVERYTHING[min(known, 3)]
    rights = (handled, _NETWORK if known >= 4 else 0, _SCOPED if known >= 6 else 0)
    attributes = struct.pack("=QQQ", *rights)[: 24 if known >= 6 else 16 if known >= 4 else 8]
    ruleset = libc.syscall(_CREATE, attributes, len(attributes), 0)
    if ruleset < 0:
        return False
    try:
        for path in readable:
            _allow(ruleset, path, _EXECUTE | _READ | _LIST)
        if writable is not None:
            _allow(ruleset, "/dev/null", _READ | _WRITE)
            _allow(ruleset, writable, handled)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        return libc.syscall(_RESTRICT, ruleset, 0) == 0
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    """A folder or file and what is allowed beneath it; one that does not exist is left out."""
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            access &= _EXECUTE | _READ | _WRITE
        beneath = struct.pack("=Qi", access, opened)
        _libc().syscall(_ADD, ruleset, 1, beneath, 0)
    finally:
        os.close(opened)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
