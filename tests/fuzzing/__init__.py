"""Random programs against every oracle that there is: what is drawn, built, compared and shrunk.

``python -m selector fuzz`` runs it. ``program.py`` is what is drawn, as data; ``draw.py`` draws,
``writing.py`` writes it as Python, ``reference.py`` says what it computes; ``outcome.py`` compiles
one and compares, ``shrink.py`` makes a failure small, ``workers.py`` and ``run.py`` run many.
"""
