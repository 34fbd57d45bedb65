"""The current device, asked through CuPy."""

from __future__ import annotations

from selector.diagnostics import TargetError


def device_name() -> str:
    """The name that CUDA gives the current device; ``TargetError`` where there is none."""
    import cupy  # pyright: ignore

    try:
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise TargetError("there is no GPU here", why=str(error)) from error
    name: bytes = properties["name"]
    return name.decode()
