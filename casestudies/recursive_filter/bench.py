"""What the recursive filter is measured against: CuPy's own.

torchaudio's is left out: ``functional.lfilter`` is a loop over the samples, one after the other,
and did not end within a minute on the benchmark's 2^21 of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from casestudies.common.case import Arrays, Peer
from casestudies.recursive_filter.problem import Problem


def cupyx_lfilter(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
    """``cupyx.scipy.signal.lfilter`` in f32."""
    import cupy
    from cupyx.scipy import signal

    x = inputs["X"].astype(cupy.float32)
    above = cupy.ones(1, cupy.float32)
    below = cupy.asarray([1.0, -problem.a, -problem.b], dtype=cupy.float32)
    return lambda: signal.lfilter(above, below, x, axis=1)


PEERS = (Peer("cupyx", "cupyx.scipy.signal.lfilter, f32", cupyx_lfilter, capturable=False),)
