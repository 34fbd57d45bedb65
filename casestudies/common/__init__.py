"""What the case studies share: their description, data, checks, timing, pictures, and the stock
Halide baseline.
"""
