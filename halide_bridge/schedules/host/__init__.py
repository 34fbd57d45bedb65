"""Schedules that nobody writes, for CPUs.

``planning`` decides: products go to tile registers (``products``), with what reads them; a pipeline
without any is scheduled by Halide's own search (``search``). Beside products, and where the search
finds nothing that compiles, Funcs are loops over vectors on all cores (``loops``). ``scheduling``
carries out what is decided.
"""
