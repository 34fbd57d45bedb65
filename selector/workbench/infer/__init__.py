"""``rules infer``: equalities that the rules miss, found where they make a product recognisable.

Equal terms that saturation does not merge are plentiful, and mostly worth nothing. What counts is a
class of which one term makes a small program select an instruction and another does not. Two
sources: terms by size in a hole of a small program (``grammar``, ``search``), equal if they agree
on random memory (``fingerprints``), and laws applied to the program as it is written best
(``laws``). A refused term and its recognised equal become a rule with sizes left open (``shapes``),
which is proved, tested and timed (``candidates``). A rule that earlier ones make needless is
dropped.
"""
