"""A launch that ended in an error, of a kernel whose waits are bounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from runtime_plans import DeviceArray, Recorder, conv_plan

from selector.diagnostics import InternalError
from selector.runtime.execute import Executable


@pytest.mark.parametrize("patience", [None, 2.0])
def test_a_launch_that_failed_is_one_clear_error(patience: float | None) -> None:
    recorder = Recorder()
    recorder.ends_in = "cudaErrorMisalignedAddress: misaligned address"
    executable = Executable(replace(conv_plan(), patience=patience), lambda: b"cubin", recorder)
    arrays = [DeviceArray(np.zeros(shape, np.float16)) for shape in ((40, 40), (9,))]
    if patience is None:  # errors come when somebody looks
        executable(arrays, {})
        return
    with pytest.raises(InternalError, match="end after 2 s in a store to a misaligned") as caught:
        executable(arrays, {})
    assert "cudaErrorMisalignedAddress" in str(caught.value)
    assert "threads that never came" in str(caught.value)


def test_a_launch_that_ended_well() -> None:
    recorder = Recorder()
    executable = Executable(replace(conv_plan(), patience=2.0), lambda: b"cubin", recorder)
    executable([DeviceArray(np.zeros(shape, np.float16)) for shape in ((40, 40), (9,))], {})
    assert len(recorder.launches) == 1
