"""The lowered text of one case study, as a golden file: what the other golden tests start from."""

from __future__ import annotations

from collections.abc import Callable

import halide_bridge as hb
from casestudies.common.filters import tensor
from casestudies.conv1d.algorithm import convolve
from selector.families.windows import Tiling


def without_origins(text: str) -> str:
    """Drop the lines that say where in the source a Func comes from."""
    return "".join(x for x in text.splitlines(keepends=True) if not x.startswith("origin "))


def test_conv1d_lowered(golden: Callable[[str, str], None]) -> None:
    output = tensor(convolve(64), Tiling(vectors=2, rows=1))
    golden("conv1d-k64.vir", without_origins(str(hb.lower(output, target="sm_80"))))
