"""Programs for the same calls: the native module finds those of all in one table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_cuda import FakeCuda
from known_calls import conv_arrays, executable, known
from runtime_plans import conv_plan, scale_plan

pytestmark = pytest.mark.gcc


def test_programs_for_the_same_calls_share_what_is_known(cuda: FakeCuda) -> None:
    pixels, taps, out = conv_arrays(cuda)
    run = executable(cuda, conv_plan())
    (launch,) = conv_plan().launches
    other = replace(conv_plan(), launches=(replace(launch, threads=128),))
    beside = run.beside(other, lambda: b"cubin")
    beside((pixels, taps), {}, out=out)
    assert [call[2] for call in cuda.taken()] == [(128, 1, 1)]
    known(run)(pixels, taps, out=out)  # the launch of the other program
    assert [call[2] for call in cuda.taken()] == [(128, 1, 1)]
    assert run.call_known((pixels, taps), {}) is NotImplemented
    strange = run.beside(scale_plan(), lambda: b"cubin")
    assert strange._known is not run._known  # pyright: ignore[reportPrivateUsage]
