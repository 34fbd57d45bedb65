"""From the selected program to kernels of the IR: what each statement is in a kernel, and which of
the kernel's threads, memory and barriers it has.

``program`` takes a selected module to the kernels, runs the ``passes`` over them and has them
printed; ``kernel`` writes one body. Rooms, from below: ``scalars`` (values, names, where buffers
live), ``threads`` (plain nests), ``copies`` (into shared memory), ``products`` (of one warp),
``epilogues`` (what accumulators begin with and become), ``pipelines`` (stages), ``warpgroups``
(wgmma and tcgen05).
"""
