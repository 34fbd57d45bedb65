"""Doors for compiled kernels into other libraries: PyTorch's operators (``interop.torch``)."""
