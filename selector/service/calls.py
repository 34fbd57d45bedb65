"""Which system calls a process may make from here on: a list, and nothing else.

For processes that run what others wrote. The list has what computing takes (memory, time, and
what is open already) and nothing that opens, connects, starts, signals or looks elsewhere. Memory
that can be written is never executed. Everything else fails with EPERM, which Python raises as
PermissionError. Seccomp filters: Documentation/userspace-api/seccomp_filter.rst of Linux; numbers
and layout of x86-64.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

_NO_NEW_PRIVILEGES, _MODE, _FILTERED = 38, 22, 2  # prctl
_SECCOMP, _SET_FILTER, _ALL_THREADS = 317, 1, 1  # the system call, and what it is told
_X86_64 = 0xC000003E  # AUDIT_ARCH_X86_64
_X32 = 0x40000000  # numbers from here on are of another interface
_EXECUTABLE = 4  # PROT_EXEC
_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
_NUMBER, _ARCHITECTURE, _THIRD = 0, 4, 32  # offsets in struct seccomp_data
_MAPPING = {"mmap": 9, "mprotect": 10}
"""Allowed where they do not ask for memory that is executed."""
_ALLOWED = {
    "read": 0, "write": 1, "close": 3, "fstat": 5, "lseek": 8, "munmap": 11, "brk": 12,
    "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "sched_yield": 24, "mremap": 25,
    "madvise": 28, "getpid": 39, "exit": 60, "getcwd": 79, "gettimeofday": 96, "getrusage": 98,
    "times": 100, "sigaltstack": 131, "gettid": 186, "futex": 202, "restart_syscall": 219,
    "clock_gettime": 228, "clock_getres": 229, "clock_nanosleep": 230, "exit_group": 231,
    "getrandom": 318,
}  # fmt: skip


def are_filtered_here() -> bool:
    """Whether this kernel has filters, for this machine."""
    if os.uname().machine != "x86_64":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.prctl(_MODE, _FILTERED, None) != 0 and ctypes.get_errno() == errno.EFAULT


def allow_only_computing() -> None:
    """From here on, for all threads of this process and for good. ``OSError`` if the kernel does
    not take it.
    """
    program = _program()
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: how many instructions, and where they are
    described = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if libc.syscall(_SECCOMP, _SET_FILTER, _ALL_THREADS, described) != 0:
        raise OSError(ctypes.get_errno(), "system calls cannot be filtered")


def _program() -> bytes:
    """The filter, in classic BPF: ``(code, jump if so, jump if not, operand)`` an instruction."""
    head = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _X86_64),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _FAIL),
    ]
    allowed = [(_EQUAL, 0, 1, n) for n in _ALLOWED.values()]
    simple = [step for test in allowed for step in (test, (_RETURN, 0, 0, _ALLOW))]
    mapping = [
        (_EQUAL, 2, 0, _MAPPING["mmap"]),
        (_EQUAL, 1, 0, _MAPPING["mprotect"]),
        (_RETURN, 0, 0, _FAIL),
        (_LOAD, 0, 0, _THIRD),
        (_ANY_OF, 0, 1, _EXECUTABLE),
        (_RETURN, 0, 0, _FAIL),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in (*head, *simple, *mapping))
