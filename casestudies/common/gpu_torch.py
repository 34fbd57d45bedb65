"""``torch`` for what runs on a GPU: importing it fails where PyTorch, or its GPU, is missing.

PyTorch's build for CPUs has the same functions, and takes NumPy's arrays: it would be measured as a
library of the GPU.
"""

from __future__ import annotations

from typing import Any

import torch as installed

__all__ = ["torch"]

torch: Any = installed
if not torch.cuda.is_available():
    raise ImportError("PyTorch is installed here without CUDA, or there is no GPU")
