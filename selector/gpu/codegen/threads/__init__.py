"""Plain nests of loops, and whole statements of one thread: who computes what, vector by vector."""
