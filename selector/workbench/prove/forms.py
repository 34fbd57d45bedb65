"""The forms that selection gives a scope are the same scope: proved for the programs at hand.

What ``selector.operands`` makes of a statement is no rule: a function of Python looks at the whole
scope. So what is proved is each of its results: ``changes`` are the steps of a scope, with what
each pass was given and what it made of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace

from selector.dataclass import dataclass
from selector.intrinsics import TensorInstruction
from selector.ir.nodes import Allocate, Expr, Load
from selector.ir.traverse import change_exprs
from selector.operands.computed import compute_operands
from selector.operands.computed_values import Computed
from selector.operands.decoded import as_decoded
from selector.operands.expand import expand, split_sums
from selector.operands.gains import factor_gains
from selector.operands.movement import annotate_movement
from selector.operands.prepare import prepare
from selector.operands.slices import slice_reductions


@dataclass(frozen=True, slots=True)
class Change:
    """One pass over a scope. ``computed``: the buffers that stand for values in what it made."""

    name: str
    before: Allocate
    after: Allocate
    computed: Mapping[str, Computed] = field(default_factory=dict[str, Computed])


def changes(scope: Allocate, legal: Iterable[TensorInstruction]) -> Iterator[Change]:
    """All forms in which a scope may be looked at (``selector.eqsat.select``), whichever of them is
    selected."""
    legal = tuple(legal)
    annotated = annotate_movement(scope)
    assert isinstance(annotated, Allocate)
    yield Change("annotate_movement", scope, annotated)
    prepared = prepare(annotated)
    yield Change("prepare", annotated, prepared)
    if (decoded := as_decoded(prepared, legal)) is not None:
        yield Change("as_decoded", prepared, decoded)
    forms = [prepared]
    if (gains := factor_gains(prepared)) is not None:
        yield Change("factor_gains", prepared, gains)
        forms.append(gains)
    if (expanded := expand(prepared)) is not None:
        yield Change("expand", prepared, expanded)
        forms.append(prepare(expanded))
        yield Change("prepare", expanded, forms[-1])
    for form in forms:
        yield from _of_form(form, legal)


def _of_form(form: Allocate, legal: tuple[TensorInstruction, ...]) -> Iterator[Change]:
    several = [form]
    if (split := split_sums(form)) is not None:
        yield Change("split_sums", form, split)
        several.append(split)
    for f in tuple(several):
        for sliced in slice_reductions(f):
            yield Change("slice_reductions", f, sliced)
            several.append(sliced)
    for f in several:
        for taps_only in (True, False):
            changed = compute_operands(f, legal, taps_only)
            if changed is not None:
                yield Change("compute_operands", f, *changed)
                yield put_back(*changed)


def put_back(scope: Allocate, computed: Mapping[str, Computed]) -> Change:
    """The values where the loads are that stand for them, as the decoder puts them there."""

    def expr(e: Expr) -> Expr | None:
        match e:
            case Load(_, buffer, index, predicate) if buffer in computed:
                return computed[buffer].at(index, predicate)
            case _:
                return None

    body = change_exprs(scope.body, expr)
    return Change("put back", replace(scope, body=body), scope, computed)
