"""The schedule of upsampling for CUDA cores: one thread keeps a run of outputs in registers."""

from __future__ import annotations

from casestudies.common.filters import Threads
from casestudies.common.multiples import power_of_two
from casestudies.upsample.problem import Problem


def threads_for(problem: Problem) -> Threads:
    """Threads for one size: outputs are whole groups of phases, and taps are unrolled by a divisor
    of their number.
    """
    return Threads(outputs=4 * problem.factor, taps=power_of_two(problem.phase_taps), vector=4)
