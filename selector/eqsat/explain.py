"""Which rules a result needs: greedy removal, on request only.

One rule after the other is taken away; if the same programs still come out, it stays away. What
remains is a minimal (not smallest) set. Only rules that matched are tried, which keeps it to a few
seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


def minimal_rules(
    fired: Iterable[str], still_selects: Callable[[frozenset[str]], bool]
) -> tuple[str, ...]:
    """The rules of ``fired`` without any one of which ``still_selects`` (given the rules left out)
    fails."""
    removed: frozenset[str] = frozenset()
    candidates = sorted(fired)
    for rule in candidates:
        if still_selects(removed | {rule}):
            removed |= {rule}
    return tuple(r for r in candidates if r not in removed)
