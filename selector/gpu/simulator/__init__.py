"""Runs kernels without a GPU: so far what their threads do to meet (``protocol``)."""
