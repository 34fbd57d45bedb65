"""Wrong versions of emitted CUDA: what an emitter's mistake could look like, seeded into the texts
of some kernels of the corpus.

A mutation is a change of the text at one of the places that its pattern matches. Which place, a
random number says that follows from the names alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

Change = Callable[["re.Match[str]"], str]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A kind of mistake: the places where it can be made, and the text that is there then."""

    name: str
    pattern: str
    change: Change


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutated text of a kernel."""

    mutation: str
    source: str
    line: str  # where it was changed, as it is now


def _removed(name: str, pattern: str) -> Mutation:
    return Mutation(name, pattern, lambda _: ";")


def _number(name: str, pattern: str, by: int) -> Mutation:
    """The last group of the pattern, a number, is another one by so much."""

    def change(found: re.Match[str]) -> str:
        last = found.lastindex or 0
        start, end = found.start(last) - found.start(), found.end(last) - found.start()
        return f"{found[0][:start]}{int(found[last]) + by}{found[0][end:]}"

    return Mutation(name, pattern, change)


def _instead(name: str, pattern: str, text: str) -> Mutation:
    return Mutation(name, pattern, lambda found: found.expand(text))


MUTATIONS = (
    _removed("block-barrier-removed", r"__syncthreads\(\);"),
    _removed("named-barrier-removed", r"\bgroup_sync\([^;]*\);"),
    _removed("cluster-barrier-removed", r"\bcluster_sync\(\);"),
    _removed("warp-barrier-removed", r"__syncwarp\(\);"),
    _removed("commit-removed", r"\bcopy_commit\(\);"),
    _number("wait-for-copies-raised", r"\bcopy_wait<(\d)>", 1),
    _removed("wait-for-copies-removed", r"\bcopy_wait<\d>\(\);"),
    _removed("fence-of-stores-removed", r"\basync_fence\(\);"),
    _removed("fence-of-barriers-removed", r"\bbarriers_made\(\);"),
    _removed("fence-of-groups-removed", r"\bgroup_fence\(\);"),
    _removed("commit-of-groups-removed", r"\bgroup_commit\(\);"),
    _number("wait-for-groups-raised", r"\bgroup_wait<(\d)>", 1),
    _removed("wait-for-store-removed", r"\bbulk_wait_read<\d>\(\);"),
    _removed("wait-at-mbarrier-removed", r"\bbarrier_(?:a?wait)\([^;]*\);"),
    _instead("wrong-parity", r"(\bbarrier_a?wait\([^;]*)(& 1\);)", r"\1+ 1 \2"),
    _removed("arrival-removed", r"\bbarrier_arrive(?:_at|_copies)?\([^;]*\);"),
    _number("arrivals-raised", r"\bbarrier_init\([^;]*?(\d+)\);", 1),
    _number("arrivals-lowered", r"\bbarrier_init\([^;]*?([2-9]|\d{2,})\);", -1),
    _number("bytes-lowered", r"\bbarrier_expect\([^;]*?(\d+)\);", -16),
    _number("slots-lowered", r"\+\+slot == (\d+)", -1),
    _number("pitch-off-by-8", r"\(lane & 7\) \* \((\d+)\)", 8),
    _number("matrix-off-by-16", r"\bldmatrix[124]\w*\(a\d \+ (\d+)", 16),
    _number("box-off-by-8", r"\btensor_copy\d\([^;]*&map_\w+, \([^;]*\* (\d+)\)", 8),
    _instead("lane-off-by-one", r"\(lane >> 4\)", "((lane + 1 & 31) >> 4)"),
    _instead("half-of-a-warp-off", r"\(lane >> 3\) & 1", "(lane >> 2) & 1"),
    _instead("neighbour-of-another-lane", r"(__shfl_xor_sync\([^;]*), 1\)", r"\1, 3)"),
    _instead("thread-off-by-one", r"\(int\)threadIdx\.x \+ step", "(int)threadIdx.x + 1 + step"),
    _instead("padding-not-zeroed", r"\?\s*(\w+\[\w+\]) : f16\{\}", r"? \1 : f16{0x4400}"),
    _instead("rows-not-masked", r"\(u32\)c1 < \(u32\)\w+ ", "true "),
    _instead("column-limit-off-by-one", r"c0 \+ 8 <= (\w+)", r"c0 + 8 <= \1 + 8"),
    _instead("other-swizzle", r"(panel_index<\d+, \d+, \d+), 128>", r"\1, 64>"),
    _instead("descriptor-swizzle", r"(\bmatrix_descriptor\([^;]*), 1\)", r"\1, 2)"),
    _number("descriptor-stride", r"\bmatrix_descriptor\([^;]*, (\d+), \d\)", 128),
    _number("core-matrix-stride", r"\bcore_descriptor\([^;]*, (\d+)\)", 16),
    _number("depth-step-of-descriptor", r"\bb \+ (\d+)", 2),
    _number("accumulator-not-cleared", r"\b(\w+)\[3\]\[2\] = (0)\.0f;", 1),
    _instead("store-limit", r"(< [^;]*?\w+_extent_0)\)", r"\1 + 1)"),
    _instead("sum-over-fewer", r"(ko\w* < \(\()(\w+) \+ ", r"\1\2 - 64 + "),
)  # fmt: skip


def _mutated(source: str, mutation: Mutation, seed: str) -> Mutant | None:
    """A text with one mistake in a kernel, not in the functions before it; None if there is no
    place for it.
    """
    start = source.index('extern "C"')
    places = list(re.finditer(mutation.pattern, source[start:]))
    if not places:
        return None
    found = Random(f"{seed} {mutation.name}").choice(places)
    text = mutation.change(found)
    before, after = source[: start + found.start()], source[start + found.end() :]
    line = before.rpartition("\n")[2] + text + after.partition("\n")[0]
    return Mutant(mutation.name, before + text + after, line.strip())


def mutants(source: str, seed: str) -> Iterator[Mutant]:
    """Each mutation of a text that has a place for it."""
    for mutation in MUTATIONS:
        found = _mutated(source, mutation, seed)
        if found is not None and found.source != source:
            yield found
