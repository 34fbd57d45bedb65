"""Instruction selection by equality saturation.

Read in this order: ``scopes`` (what is selected together), ``abstract`` (names and bases taken
out), ``encode``, ``saturate``, ``extract`` with ``cost``, ``decode``, ``select`` (all of it),
``diagnose`` and ``conditions`` (why not), ``explain`` (why), ``soundness`` (is every rule right).
"""

from selector.eqsat.facts import legal_instructions
from selector.eqsat.select import Selection, select

__all__ = ["Selection", "legal_instructions", "select"]
