"""The kernel IR as CUDA: ``printer``, and the device functions that the text may call."""
