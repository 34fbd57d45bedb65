"""What a statement has to be for an instruction, one concern a file: ``placement`` of the
accumulator, the form of its ``sums``, their two ``factors``, the ``blocks`` that these span. Each
check returns the first condition that fails as a ``Miss``, or None; ``selector.eqsat.diagnose``
asks them in order.
"""
