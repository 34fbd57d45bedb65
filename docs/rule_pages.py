"""The reference pages about rules: their laws, by file and by examples, and their proofs."""

from __future__ import annotations

import re

from written import table

import rules
from selector.workbench.cases import load
from selector.workbench.laws import explained
from selector.workbench.ruleset import read_rules, standard_files


def rules_by_file() -> str:
    laws = rules.laws()
    parts = [
        "# Rules\n\nWhat saturation knows, file by file, in the order in which they load. A rule "
        "has the name that reports use, and a law. `python -m selector rules trace FILE.vir` shows "
        "which of them a program took; [how to test rules](../howto/rules.md).\n"
    ]
    for name, text in rules.rule_files():
        named = [n for n in re.findall(r':name "([^"]+)"', text) if n in laws]
        head = re.match(r"(?:;.*\n)+", text)
        about = " ".join(line.lstrip("; ") for line in head[0].splitlines()) if head else ""
        parts += [f"## {name}\n", f"{about}\n"]
        rows = ((f"`{n}`", _law(laws[n])) for n in dict.fromkeys(named))
        parts.append(table(("rule", "law"), rows) if named else "Declarations and facts only.\n")
    return "\n".join(parts)


def _law(text: str) -> str:
    """A law in a cell of a table: a rewrite as code, words as words."""
    plain = text.replace("|", "\\|")
    return f"`{plain.replace('`', '')}`" if "->" in text else re.sub(r"([*_<>])", r"\\\1", plain)


PROOFS = """# Proofs of the rules

`python -m selector rules prove` proves each rule for every size: taps, strides, phases, extents
and packing are unknowns, vectors and memory are arbitrary. What is proved: that terms which a
rule makes are well formed and have the type and lanes of what they replace, that their values are
equal in every lane, that what a relation claims holds, and that a question's preconditions do;
and of places, that moves between memories stay, but for what a unit does on its accumulator.
Not proved: that saturation ends or finds anything, nor that no more is read than before: a load
beyond its array is 0 in what is emitted. *Where* names what a proof takes as given
besides:

- values are finite: `0*x = 0`, so that a lane that is left out of one factor may be left out of
  the other;
- sums may be taken in another order, as any tensor instruction does;
- -0.0 is 0.0, where a lane is zero because it was left out;
- indices do not overflow, where they are divided or compared; nothing else is divided.

Types are told of every match. A number that a rule writes has the type of the integers beside it;
beside anything else it is an error, but for 0: vectors of any type are ramps of equal parts, whose
stride is 0. Each rule is proved for ramps of integers and for such copies, where its premises leave
it open; taken as given is that what is 0 by sums, products and copies of 0 is folded, and that no
cast and no load is such a 0.

The order and the rounding of a sum within one instruction are part of what the instruction means.
The last rows are facts about types, tried on all bit patterns, and the lemmas about sums that
proofs use, by induction.

"""


def proofs() -> str:
    """Made by the proofs: it takes some ten seconds, and a solver."""
    from selector.workbench.prove.verdicts import prove

    return f"{PROOFS}{prove(standard_files()).as_markdown()}"


def laws_by_examples() -> str:
    """What ``rules explain`` says of every rule, by file."""
    files, cases = standard_files(), load()
    parts = [
        "# Laws by examples\n\nEvery rule with the tests in which it fires: a term of a test as "
        "the loops that compute it, and its first lanes where element i of a buffer is the last "
        "digit of i and symbols are small primes; then what the rule says of it. This is what "
        "`python -m selector rules explain NAME` prints, of your own rules, too.\n"
    ]
    last = ""
    for rule in read_rules(files):
        if rule.form.file != last:
            last = rule.form.file
            parts.append(f"## {last}\n")
        parts.append(f"### {rule.name}\n\n```none\n{explained(rule, files, cases)}\n```\n")
    return "\n".join(parts)
