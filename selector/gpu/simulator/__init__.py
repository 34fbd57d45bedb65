"""Runs kernels without a GPU: what their threads do to meet (``protocol``), and what they compute
(``data``).
"""
