"""The rules are right on random terms: hypothesis looks for one on which they are not, and
shrinks."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from soundness_programs import ENGINE, SMALL, engine
from tensor_terms import Product
from term_strategies import LANES, NARROW, indices, predicates, products, values
from verified import SOUND, Verified

from selector.eqsat.soundness import check_commands

pytestmark = pytest.mark.verified

QUIET = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def check(command: str, seed: int) -> None:
    """No mismatch; `selector.eqsat.blame` says which rule it is for a command that has one."""
    result = check_commands([command], engine(SMALL), seed)
    assert not result.mismatches, f"{command}\n{result.mismatches[0]}"


@QUIET
@given(st.sampled_from(LANES).flatmap(indices), st.integers(0, 99))
def index(term: str, seed: int):
    check(f"(let $term {term})", seed)


@QUIET
@given(st.sampled_from(LANES).flatmap(predicates), st.integers(0, 99))
def predicate(term: str, seed: int):
    check(f"(let $term {term})", seed)


@QUIET
@given(
    st.tuples(st.sampled_from(("int32", "float32", *NARROW)), st.sampled_from(LANES)).flatmap(
        lambda c: values(*c)
    ),
    st.integers(0, 99),
)
def value(term: str, seed: int):
    check(f"(let $term {term})", seed)


@QUIET
@given(products(), st.integers(0, 99))
def update(product: Product, seed: int):
    check(f"(set (statement 0) {product.update})", seed)


@pytest.mark.slow
@SOUND
@pytest.mark.parametrize("kind", [index, predicate, value, update], ids=lambda f: f.__name__)
def test_the_rules_hold(kind: Callable[[], None], verified: Verified):
    if not verified(ENGINE, hypothesis.__version__):
        kind()
