"""The ten tasks of NineToothed's paper as plain Halide, which nobody scheduled."""
