"""Processor time of a job, as the reference machine would need it: the GPU's host, whose times of
all programs are in ``casestudies/results/compile_cases.json``.

Two test workers on two cores that share caches, or a slower machine, stretch every job, though not
all alike: where pure Python takes twice as long, NVRTC takes 1.6 times. So each part of a job has
a yardstick of its own kind, fixed work that is timed right behind each attempt, for as long as the
attempt took; its shortest time counts, as the job's does.

As long and as often, or the shortest times are not alike: of many short samples one falls between
two disturbances sooner than one of few long ones does. Beside busy neighbours a compilation of 35
ms was taken for one of 39 ms, and once in ten for 49, by twelve yardsticks of half its length; for
one of 34 by one of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

UNCACHED = ("--no-cache",)  # beside a driver, NVRTC remembers what it has compiled

Job = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Yardstick:
    """Fixed work, and the seconds that it takes on the reference machine."""

    name: str
    work: Job
    seconds: float


@dataclass(slots=True)
class Part:
    """A part of a job, its yardstick, and what both took in each attempt, in seconds of this
    machine; of the yardstick, the mean of all that were timed as long.
    """

    yardstick: Yardstick
    job: Job
    spent: list[float] = field(default_factory=list[float])
    beside: list[float] = field(default_factory=list[float])

    def attempt(self) -> None:
        self.spent.append(_timed(self.job))

    def measure(self) -> None:
        """The yardstick, again and again for as long as the last attempt took."""
        times = [_timed(self.yardstick.work)]
        while sum(times) < self.spent[-1]:
            times.append(_timed(self.yardstick.work))
        self.beside.append(sum(times) / len(times))

    @property
    def stretch(self) -> float:
        """How many times longer this machine takes; never below 1, so that a quicker machine's own
        seconds count. A yardstick that was disturbed does not excuse the job.
        """
        return max(1.0, min(self.beside) / self.yardstick.seconds) if self.beside else 1.0

    @property
    def seconds(self) -> float:
        return min(self.spent) / self.stretch

    def __str__(self) -> str:
        name, here = self.yardstick.name, min(self.spent)
        return f"{name} {self.seconds:.3f} s = {here:.3f} s here / {self.stretch:.2f}"


def assert_within(limit: float, *parts: Part, attempts: int = 5) -> None:
    """The parts, done one after the other, take less than ``limit`` seconds: of this machine, at
    most ``attempts`` times until they do; or of the reference machine, by half of the attempts or
    more, so that no single yardstick that was disturbed excuses them.
    """
    for number in range(1, attempts + 1):
        for part in parts:
            part.attempt()
        if sum(min(part.spent) for part in parts) < limit:
            return
        for part in parts:
            part.measure()
        if 2 * number >= attempts and sum(part.seconds for part in parts) < limit:
            return
    total = sum(part.seconds for part in parts)
    raise AssertionError(
        f"{total:.3f} s of the reference machine, not less than {limit} s: "
        + "; ".join(map(str, parts))
    )


def assert_quick(job: Job, limit: float, attempts: int = 12) -> None:
    """A job of Python and the engine takes less than ``limit`` seconds of the reference machine."""
    assert_within(limit, Part(PYTHON, job), attempts=attempts)


def _timed(job: Job) -> float:
    start = time.process_time()
    job()
    return time.process_time() - start


@dataclass(frozen=True, slots=True)
class _Node:
    name: str
    parts: tuple[_Node, ...] = ()


def _passes() -> int:
    """Work of the kind that a compiler does: trees of small objects are built, rewritten, printed
    and counted.
    """
    seen: dict[str, int] = {}
    for turn in range(8):
        tree = _rewritten(_tree(9, turn))
        for word in _printed(tree).split():
            seen[word] = seen.get(word, 0) + 1
    return len(sorted(seen.items()))


def _tree(depth: int, number: int) -> _Node:
    if not depth:
        return _Node(f"x{number % 61}")
    name = "+-*"[number % 3]
    return _Node(name, (_tree(depth - 1, 2 * number), _tree(depth - 1, 2 * number + 1)))


def _rewritten(node: _Node) -> _Node:
    match node:
        case _Node("+", (a, b)) if a != b:
            return _Node("+", (_rewritten(b), _rewritten(a)))
        case _Node("-", (a, _Node("-", (b, c)))):
            return _Node("+", (_rewritten(a), _Node("-", (_rewritten(c), _rewritten(b)))))
        case _:
            return _Node(node.name, tuple(map(_rewritten, node.parts)))


def _printed(node: _Node) -> str:
    if not node.parts:
        return node.name
    left, right = map(_printed, node.parts)
    return f"{left} {node.name} {right}"


@cache
def _fixed_source() -> str:
    """What the project once emitted for gemm-bf16-bf16; never changed, or the scale is lost."""
    return (Path(__file__).parent / "yardstick.cu.txt").read_text(encoding="utf-8")


def _machine_code() -> bytes:
    from selector.runtime.nvrtc import compile_to_cubin

    return compile_to_cubin(_fixed_source(), "sm_90a", UNCACHED)


# Of the reference machine when it was idle (Python 3.12, NVRTC 13.0): the shortest time of Python,
# as it is compared with the shortest here (2026-11-24; 0.0172 to 0.0179); the median of NVRTC.
PYTHON = Yardstick("Python", _passes, 0.0175)
NVRTC = Yardstick("NVRTC", _machine_code, 0.455)
