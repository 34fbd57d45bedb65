"""The kernel IR: frozen nodes (``nodes``), their text form (``templates`` says how a node reads,
``text`` prints and parses by them), and what makes a tree of them (``builder``).
"""
