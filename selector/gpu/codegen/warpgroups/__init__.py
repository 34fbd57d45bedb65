"""Kernels of warpgroups (wgmma, sm_90a).

Read in this order: ``arrangement`` (what a kernel is made of), ``panels`` (how operands lie in
shared memory), ``products`` (statements as instructions), ``boxes`` and ``shifted_copies`` (how
operands get there), ``iterations`` (what pipelines have to know of the statements inside),
``feeding``, ``warp_specialised`` and ``multistage`` (pipelined loops with a producing group and
without), ``turns``, ``persistent``, ``turn_tiles`` and ``clusters`` (blocks that do the work of
several, and that share what they load), ``box_stores`` (how results leave).

Convolutions: ``windows`` (which rows are read in windows), ``core_bands`` and ``part_products``
(the other operand), ``window_products`` and ``window_code`` (statements as instructions, and their
text), ``window_mainloop`` (rows that arrive in pieces).
"""
