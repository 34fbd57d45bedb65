"""Runs kernels with their numbers: ``launch.run_launch`` follows all threads of all blocks at once,
an axis of arrays, and says what of memory that nobody wrote is stored, branched on, or an address.
"""
