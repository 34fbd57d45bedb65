"""Measured results as data (``h200.json``, written by ``tests/gpu/run_all.py``) and what turns them
into tables.
"""
