"""The rule author's bench: ``python -m selector rules``.

Checks, tests, lists, measures and draws rules, with egglog and NumPy alone. Read in this order:
``source`` (egglog text with positions), ``cases`` (how tests of rules are written), ``bench`` (a
graph that loads files and runs them), then one module a command.
"""
