"""What a baseline of stock Halide asks of a GPU, read from its lowered statement.

Halide launches kernels as they are scheduled: more threads or shared memory than a block may have
fails only when it runs, as does a stage that was left to the host, whose buffers are on the GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from selector.diagnostics import UserError

MOST_THREADS = 1024
MOST_SHARED = 48 << 10  # bytes; for more, a kernel has to be given leave, which Halide does not do
REGISTER_FILE = 1 << 16  # registers of a multiprocessor, which one block must not exceed
MOST_REGISTERS = 255  # of a thread
WARP = 32

_RUN = 'halide_cuda_run(cuda[0], "'
_SHARED = re.compile(r"(\d+)|\(?(\d+)\*(\d+)\)?")
_ON_HOST = re.compile(
    r'halide_error_host_is_null\("([^"]+)"'
    r"|_halide_buffer_set_host_dirty\(([^,]+), \(uint1\)1"
    r"|halide_copy_to_host\(([^)]+)\)"
)
_NEVER_HOLDS = re.compile(r"assert\(\(uint1\)0, (.+)\)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel: threads of a block, and bytes of shared memory that it is launched with."""

    kernel: str
    threads: int
    shared: int

    @property
    def registers(self) -> int:
        """The most registers that leave a thread room for all of its block: a multiple of 8, or
        what a thread may have at all.
        """
        threads = -(-self.threads // WARP) * WARP
        return min(REGISTER_FILE // threads // 8 * 8, MOST_REGISTERS)


def launches_of(statement: str) -> tuple[Launch, ...]:
    """The kernels of a lowered statement, in order; ``UserError`` if the threads or shared memory
    of one follow only from sizes of the call.
    """
    return tuple(_launch(arguments) for arguments in _runs(statement))


def check(statement: str, loops: str) -> tuple[Launch, ...]:
    """The kernels of a baseline; ``UserError`` if one cannot be launched, if the host has part of
    the work, or if an assertion can never hold. ``loops``: the statement before the kernels are
    taken out of it (Halide's ``conceptual_stmt``).
    """
    broken = _NEVER_HOLDS.search(statement) or _NEVER_HOLDS.search(loops)
    if broken:
        raise UserError("the baseline fails whenever it is called", why=broken[1])
    found = launches_of(statement)
    for launch in found:
        _check_block(launch)
    touched = _ON_HOST.search(statement)
    if touched:
        buffer = next(name for name in touched.groups() if name)
        raise UserError(
            f"the baseline touches {buffer} on the host",
            why="its arrays are on the GPU",
            hint="schedule every stage inside gpu_blocks, also a definition that is undefined",
        )
    return found


def _check_block(launch: Launch) -> None:
    what = f"the baseline's kernel {launch.kernel} cannot be launched"
    if launch.threads > MOST_THREADS:
        raise UserError(
            what,
            why=f"{launch.threads} threads a block, and {MOST_THREADS} are the most there can be",
            hint="the extents of gpu_threads are the largest of all stages of a kernel, axis by "
            "axis: fuse two axes, or let every stage have its longest first",
        )
    if launch.shared > MOST_SHARED:
        raise UserError(
            what,
            why=f"{launch.shared} bytes of shared memory, and stock Halide gets {MOST_SHARED}",
            hint="let a block do less",
        )


def _runs(statement: str) -> Iterator[list[str]]:
    """The arguments of each launch up to the shared memory: name, blocks, threads, bytes."""
    at = statement.find(_RUN)
    while at >= 0:
        yield _split(statement, at + len(_RUN) - 1, 8)
        at = statement.find(_RUN, at + 1)


def _split(text: str, begin: int, count: int) -> list[str]:
    """``count`` arguments from ``begin`` on, split at commas outside of parentheses."""
    parts, depth, at = [], 0, begin
    while len(parts) < count:
        match text[at]:
            case "(" | "[":
                depth += 1
            case ")" | "]":
                depth -= 1
            case "," if depth == 0:
                parts.append(text[begin:at].strip())
                begin = at + 1
            case _:
                pass
        at += 1
    return parts


def _launch(arguments: list[str]) -> Launch:
    name = arguments[0].strip('"')
    threads = arguments[4:7]
    terms = [_SHARED.fullmatch(term) for term in arguments[7].split(" + ")]
    if not all(extent.isdecimal() for extent in threads) or None in terms:
        raise UserError(
            f"the baseline's kernel {name} has no fixed block",
            why=f"threads {', '.join(threads)}, shared memory {arguments[7]}",
            hint="fix the arrays' sizes with fix_dense",
        )
    shared = sum(int(t[1]) if t[1] else int(t[2]) * int(t[3]) for t in terms if t)
    x, y, z = (int(extent) for extent in threads)
    return Launch(name, x * y * z, shared)
