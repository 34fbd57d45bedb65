"""The case studies: plain Halide algorithms, each scheduled for CUDA cores and for tensor
instructions.

Every case is a folder of the same shape: ``problem.py`` (sizes and types), ``algorithm.py`` (plain
Halide), ``schedule.py`` (``cuda`` for stock Halide, ``tensor`` for the selector), ``reference.py``
(float64) and ``bench.py`` (what to measure and against which library). Only ``algorithm.py`` and
``schedule.py`` import Halide, so saved kernels are checked and timed on machines that have no
Halide.
"""
