"""Kernels as C++ sources: a library with a C interface that needs no Python when it runs."""
