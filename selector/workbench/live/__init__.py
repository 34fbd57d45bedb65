"""Rules checked while they are typed: ``rules watch``, and ``rules lsp`` for editors.

Both answer at once by keeping what egglog has read. Read in this order: ``loaded`` (rule files on
one graph, with a way back before each), ``book`` (what is open, over the files on disk), ``proofs``
(in a process of their own), ``checking`` (from what is told at once to what takes longer),
``watch``; for editors ``names`` (what a word means and where it is said), ``protocol`` (messages)
and ``server``. ``vscode/`` is a client of it.
"""
