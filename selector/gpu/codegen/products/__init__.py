"""Products of one warp: accumulators, operands in registers, bands, runs of instructions."""
