"""Families of schedules as data: for each, what a schedule is described by, which descriptions a
target takes, and what one costs on a GPU. Plain arithmetic, without Halide: programs are named by
it where there is none. ``halide_bridge.schedules`` makes directives of a description.
"""

MOST_LANES = 65535  # of a vector of Halide's
