"""Tensor statements as sums of products of two operands, before anything is encoded.

Read in this order: ``movement`` (where values enter and leave a tensor unit), ``prepare`` (one
form), ``updates`` (one taken apart), ``scaling`` and ``gains`` (factors of whole sums and of
outputs), ``slices`` (one stride each), ``expand`` (sums in other words), ``computed`` with
``places`` and ``exact`` (operands that are computed). All are functions of IR; who asks for which
is in ``selector.eqsat.select``.
"""
