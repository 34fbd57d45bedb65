"""The rule author's bench: ``python -m selector rules``.

Checks, tests, lists, measures and draws rules, with egglog and NumPy alone. Read in this order:
``source`` (egglog text with positions), ``cases`` (how tests of rules are written), ``ruleset``
(rules as written, and what an author forgets), ``files`` (what a command is given), ``bench`` (a
test on a graph of its own) with ``terms`` and ``conflict`` (what is told of a failure), then
``check``, ``listing``, ``trace``, ``picture`` and ``rendering``; ``prove/`` proves rules for every
size; ``commands`` is the command line.
"""
