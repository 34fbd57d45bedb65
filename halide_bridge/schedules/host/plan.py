"""What has been decided for a pipeline on a CPU, before directives are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from halide_bridge.schedules.host.search import Found
from halide_bridge.schedules.recognise.products import Product
from halide_bridge.schedules.sizes import Guess
from selector.dataclass import dataclass
from selector.families import tiles


@dataclass(frozen=True, slots=True)
class HostPlan:
    """Products in tile registers, and why other sums are none, by the stable names of Funcs, and
    Funcs that have to be ``stored`` for them; what Halide's own search has ``found``, which leaves
    nothing to do, or why it found nothing that compiles (``unfound``). The sizes to be fast at.
    """

    known: Guess
    stored: frozenset[str] = frozenset()
    tensor: Mapping[str, tuple[Product, tiles.Tiling]] = field(
        default_factory=dict[str, tuple[Product, tiles.Tiling]]
    )
    misses: Mapping[str, str] = field(default_factory=dict[str, str])
    found: Found | None = None
    unfound: str = ""

    @property
    def precisions(self) -> Mapping[str, str]:
        """Nothing is known of them."""
        return {}

    def having(
        self, label: str, product: Product, tiling: tiles.Tiling, operands: Iterable[str]
    ) -> HostPlan:
        tensor = {**self.tensor, label: (product, tiling)}
        return replace(self, tensor=tensor, stored=self.stored.union(operands))

    def without(self, label: str, why: str) -> HostPlan:
        return replace(self, misses={**self.misses, label: why})

    def finding(self, found: Found) -> HostPlan:
        return replace(self, found=found)

    def not_finding(self, why: str) -> HostPlan:
        return replace(self, unfound=why)
