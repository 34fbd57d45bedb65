"""Jobs of the public sweep that have no schedule of their own: plain algorithms, each compiled with
``schedule="auto"``, a float64 reference and the libraries that do the same.

``algorithms`` needs Halide; the others are what the GPU's machine needs as well.
"""
