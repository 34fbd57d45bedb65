"""Kernels between the selected program and CUDA: their IR (``ir``), what prints it (``cuda``) and
what runs it without a GPU (``simulator``).
"""
