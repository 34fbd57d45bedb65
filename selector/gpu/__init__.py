"""Kernels between the selected program and CUDA: their IR (``ir``), what makes one of a program
(``codegen``), what is decided about it as a whole (``passes``), what prints it (``cuda``) and what
runs it without a GPU (``simulator``).
"""
