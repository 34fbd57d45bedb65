"""Seeded mistakes in emitted CUDA are found: the emulation stops, or its result is another one. A
few of each kernel each time, all of them at night.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from corpus import CORPUS
from corpus_case import output_shapes, random_inputs

import halide_bridge as hb
from emulation import Fault, run
from emulation.agreement import assert_close
from emulation.launch import ORDERS, POISONS
from emulation.mutants import MUTATIONS, Mutant, mutants

pytestmark = pytest.mark.verified


@dataclass(frozen=True, slots=True)
class Seeded:
    """A kernel of the corpus at a size, with what its mutants are compared with."""

    kernel: Any
    given: dict[str, Any]
    expected: Any
    elements: dict[str, str]
    tolerance: float

    def assert_right(self, source: str, *, ways: tuple[bool, ...], order: int) -> None:
        for ready in ways:
            options = {"maps_ready": ready, "order": order, "poison": POISONS[order % 2]}
            found = run(self.kernel, source=source, timeout=60, **options, **self.given)
            assert_close(self.expected, found, self.elements, self.tolerance)

    def finds(self, mutant: Mutant) -> bool:
        """Whether it fails, with tensor maps or without, in one order of threads or the other."""
        ways = (True, False) if "maps_ready" in self.kernel.source else (True,)
        try:
            for order in ORDERS:
                self.assert_right(mutant.source, ways=ways, order=order)
        except (Fault, AssertionError):
            return True
        return False


# Rings of an mma kernel by cp.async, of bytes and of windows; wgmma with the copy engine in a
# cluster, by blocks that stay, for attention and for windows.
KERNELS: dict[str, tuple[str, tuple[int, ...]]] = {
    "ring_plain_3_64": ("sm_80", (1000, 3)),
    "ring_rows_3": ("sm_80", (130, 19)),
    "product_u8_stages_200": ("sm_80", (65, 67)),
    "groups_teams_cluster_mapped": ("sm_90a", (200, 136)),
    "groups_lasting_mapped": ("sm_90a", (200, 136)),
    "online_groups_causal": ("sm_90a", (64, 193, 1)),
    "group_windows_ring": ("sm_90a", (512, 24)),
}
BY_DAY = {
    "ring_rows_3": ("commit-removed", "wait-for-copies-raised", "padding-not-zeroed"),
    "product_u8_stages_200": ("pitch-off-by-8", "wait-at-mbarrier-removed", "wrong-parity"),
    "groups_teams_cluster_mapped": (
        "fence-of-stores-removed",
        "wait-for-groups-raised",
        "wrong-parity",
        "bytes-lowered",
        "other-swizzle",
        "wait-at-mbarrier-removed",
    ),
}
_NO_COPIES = "no cp.async comes there before it: rows come by loads, or by the copy engine"
EQUIVALENT: dict[tuple[str, str], str] = {
    **{
        (name, f"{what}-{how}"): _NO_COPIES
        for name in (
            "groups_teams_cluster_mapped",
            "groups_lasting_mapped",
            "online_groups_causal",
            "group_windows_ring",
        )
        for what, how in (
            ("commit", "removed"),
            ("wait-for-copies", "raised"),
            ("wait-for-copies", "removed"),
        )
    },
    ("ring_plain_3_64", "block-barrier-removed"): "the one behind all work",
    ("ring_plain_3_64", "wait-for-copies-raised"): "the one behind all work",
    ("ring_plain_3_64", "wait-for-copies-removed"): "the one behind all work",
    ("ring_plain_3_64", "thread-off-by-one"): "a copy of ragged rows, which this size has none of",
    ("ring_plain_3_64", "rows-not-masked"): "a copy of ragged rows, which this size has none of",
    ("product_u8_stages_200", "wait-for-copies-raised"): "the one behind all work",
    ("product_u8_stages_200", "wait-for-copies-removed"): "the one behind all work",
    ("product_u8_stages_200", "block-barrier-removed"): "the one behind all work",
    ("product_u8_stages_200", "arrivals-lowered"): "all of a warp have read when lanes last meet",
    ("product_u8_stages_200", "store-limit"): "an even column, and the limit is odd",
    ("product_u8_stages_200", "sum-over-fewer"): "of the first two steps, and there are four",
    ("ring_rows_3", "warp-barrier-removed"): "ldmatrix behind it waits for all lanes",
    (
        "online_groups_causal",
        "neighbour-of-another-lane",
    ): "behind the exchange by 2, all are in it",
    ("online_groups_causal", "accumulator-not-cleared"): "the first product does not add to it",
    ("online_groups_causal", "column-limit-off-by-one"): "rows end where a piece does",
    ("online_groups_causal", "padding-not-zeroed"): "only sums that are not stored read it",
    ("group_windows_ring", "fence-of-stores-removed"): "another one follows at once",
    ("group_windows_ring", "column-limit-off-by-one"): "a branch for rows that are not aligned",
    ("group_windows_ring", "padding-not-zeroed"): "only sums that are not stored read it",
}
CELLS = 16  # inputs' rows are a multiple of it apart, so that asynchronous copies are possible


@cache
def seeded(name: str) -> Seeded:
    target, size = KERNELS[name]
    case = CORPUS[name]
    kernel = hb.compile(case.build(), target=target, instructions=case.only, name=name)
    shapes = output_shapes(kernel.module, size)
    arrays = {n: wide(a) for n, a in random_inputs(case, kernel.module, size, 7).items()}
    sizes = shapes if len(shapes) > 1 else next(iter(shapes.values()))
    given = {"sizes": sizes, **arrays, **case.scalars}
    elements = {b.name: str(b.type) for b in kernel.plan.buffers if b.name in shapes}
    expected = kernel.interpret(**given)
    return Seeded(kernel, given, expected, elements, max(case.tolerance, 1e-6))


def wide(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.ndim < 2:
        return array
    count = array.shape[-1]
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, -count % CELLS)])[..., :count]


def of_name(name: str) -> dict[str, Mutant]:
    seed = f"{name}.{KERNELS[name][0]}"
    return {m.mutation: m for m in mutants(seeded(name).kernel.source, seed)}


@pytest.mark.parametrize(("name", "mutation"), [(n, m) for n, ms in BY_DAY.items() for m in ms])
def test_a_mutant_is_found(name: str, mutation: str) -> None:
    mutant = of_name(name)[mutation]
    assert seeded(name).finds(mutant), mutant.line


@pytest.mark.parametrize("name", BY_DAY)
def test_without_a_mutation_it_is_right(name: str) -> None:
    kernel = seeded(name)
    for order in ORDERS:
        kernel.assert_right(kernel.kernel.source, ways=(True,), order=order)


@pytest.mark.nightly
def test_nearly_all_mutants_are_found() -> None:
    """At least nine of ten that are none of the equivalent ones, of at least fifty."""
    found: list[str] = []
    missed: list[str] = []
    for name in KERNELS:
        for mutation, mutant in of_name(name).items():
            if (name, mutation) in EQUIVALENT:
                continue
            kept = found if seeded(name).finds(mutant) else missed
            kept.append(f"{name} {mutation}: {mutant.line}")
    assert len(found) + len(missed) >= 50
    assert len(found) >= 0.9 * (len(found) + len(missed)), "\n".join(missed)


def test_names_of_mutations_are_unique() -> None:
    assert len({m.name for m in MUTATIONS}) == len(MUTATIONS)
