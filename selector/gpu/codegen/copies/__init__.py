"""Staged copies into shared memory: which nests are copies, their forms, code and costs."""
