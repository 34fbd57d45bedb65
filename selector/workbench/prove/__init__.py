"""Rules proved for every size: ``python -m selector rules prove``.

Read in this order: ``sizes`` (unknown counts and the digits of a lane), ``context`` (what premises
say), ``meaning`` and ``lane_values`` (constructors), ``relations`` and ``products`` (claims and
preconditions), ``goals`` (the same, to be proved), ``conditions`` (from a rule to both),
``formulas``, ``values`` (those of a lane), ``lemmas`` (sums), ``solve`` (z3), ``refute`` (chosen
sizes), ``bits`` (facts about types), ``verdicts``. What is trusted is what these meanings say, and
z3.

What ``selector.operands`` makes of statements is proved program by program: ``terms`` (polynomials
over unknown values), ``lane_worth`` and ``byte_values``, ``expressions`` (those of the IR, at a
lane), ``moves`` (in and out of tensor memory), ``statements`` (two scopes beside each other),
``forms`` (the passes).
"""
