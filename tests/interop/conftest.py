"""What tests of the backend for PyTorch share, where PyTorch is installed."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch") is not None:
    from torch_compiled import anew as anew
