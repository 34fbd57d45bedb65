"""What ``selector/operands/`` makes of scopes is the same: proved for all that the corpus has, at
every lane, for all memory, sizes and turns of loops. Wrong versions of each pass are refuted.

Run as a program it prints what was proved, by pass.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from changed_forms import CHANGED, Changed
from form_programs import Scope, of_bytes, of_pipelines, of_sums, of_texts

from selector.diagnostics import InternalError
from selector.eqsat.select import _Selector  # pyright: ignore[reportPrivateUsage]
from selector.ir.module import Module
from selector.ir.nodes import Allocate, Block
from selector.ir.types import IllTyped
from selector.operands.movement import annotate_movement
from selector.targets import find_target
from selector.workbench.prove.forms import Change, changes
from selector.workbench.prove.sizes import Unproved
from selector.workbench.prove.statements import Refuted, same_scopes

pytestmark = pytest.mark.verified

ROOMS = {
    "texts": (
        of_texts,
        {"annotate_movement": 400, "prepare": 400, "slice_reductions": 20, "compute_operands": 600},
    ),
    "wmma": (lambda: of_pipelines("wmma"), {"expand": 4, "compute_operands": 350}),
    "amx": (lambda: of_pipelines("amx"), {"expand": 4, "compute_operands": 350}),
    "sums": (
        of_sums,
        {"prepare": 60, "as_decoded": 2, "split_sums": 10, "factor_gains": 3, "expand": 12},
    ),
}
"""Where scopes come from, and how many forms of each pass there are at least."""
MOST_SECONDS = 60.0
"""Of the processor; machines that run this differ by a factor of three, and 16 are usual."""


def proved(scopes: Iterable[Scope]) -> tuple[Counter[str], list[str], float]:
    """Forms that are proved, by pass; why others are not; seconds of the processor."""
    known: set[object] = set()
    count, missing, seconds = Counter[str](), list[str](), 0.0
    for name, scope, legal in scopes:
        for change in changes(scope, legal):
            start = time.process_time()
            try:
                same_scopes(change.before, change.after, change.computed, known)
                count[change.name] += 1
            except (Refuted, Unproved) as why:
                missing.append(f"{name}, {change.name}: {why}")
            seconds += time.process_time() - start
    return count, missing, seconds


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_every_form_is_the_same_scope(room: str) -> None:
    scopes, least = ROOMS[room]
    count, missing, seconds = proved(scopes())
    assert not missing
    assert {name: count[name] for name in least if count[name] < least[name]} == {}
    assert seconds < MOST_SECONDS


def _made(change: Changed, scopes: Iterable[Scope]) -> Iterator[Change]:
    """What the wrong pass makes of scopes."""
    for _, scope, legal in scopes:
        try:
            yield from (c for c in changes(scope, legal) if c.name == change.by)
        except (IllTyped, InternalError, AssertionError):
            continue


def test_all_that_is_solved_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The forms are those that selection looks at: all that it has, where each is a miss."""
    scopes = (*of_sums(), *of_texts()[::5])
    solved: list[Allocate] = []

    def attempt(_: _Selector, form: Allocate, computed: Any = None, **__: bool) -> Any:
        solved.append(form)
        return form, computed, ("a miss",)

    monkeypatch.setattr(_Selector, "solved", attempt)
    empty = Module("empty", (), (), Block(()))
    seen = Counter[bool]()
    for name, scope, legal in scopes:
        solved.clear()
        annotated = annotate_movement(scope)
        assert isinstance(annotated, Allocate)
        _Selector(empty, find_target("sm_90a"), legal, strict=False).attempt(annotated)
        made = {change.after for change in changes(scope, legal)}
        assert {*solved} <= made, name
        seen[len(solved) > 3] += 1
    assert min(seen[True], seen[False]) > 10


def test_every_pass_has_wrong_versions() -> None:
    assert min(Counter(c.by for c in CHANGED).values()) >= 3
    assert len({c.by for c in CHANGED}) == 9


def telling(change: Changed) -> Iterator[Scope]:
    """Programs that tell wrong passes, the quickest first."""
    if change.by == "as_decoded":
        yield from of_bytes()
        return
    yield from of_sums()
    yield from of_texts()[::3]
    yield from of_texts()


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGED, ids=str)
def test_a_wrong_pass_is_refuted(change: Changed) -> None:
    """With numbers of which it goes wrong, in some program."""
    known: set[object] = set()
    scopes = tuple(telling(change))  # made as it is right
    with change.installed():
        for made in _made(change, scopes):
            try:
                same_scopes(made.before, made.after, made.computed, known)
            except Refuted:
                return
            except Unproved:
                continue
    pytest.fail("no program tells")


if __name__ == "__main__":
    for room, (scopes, _) in ROOMS.items():
        count, missing, seconds = proved(scopes())
        print(f"{room}: {dict(count)}, {len(missing)} not proved, {seconds:.1f} s")
        print(*missing, sep="\n")
