"""Sums in other words are reached by rules that are proved, as the page of their times says."""

from __future__ import annotations

import pytest
from proved_sums import KERNELS, proofs, row, rules_of, written

pytestmark = pytest.mark.verified("docs/results/sums.md", "docs/reference/proofs.md")


def test_the_page_has_them_all() -> None:
    assert list(written()) == list(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_a_sum_is_reached_by_proved_rules(name: str) -> None:
    kernel = KERNELS[name]()
    assert all(u.block is not None for u in kernel.report.updates)
    assert "multiply-add" in " ".join(rules_of(kernel))
    assert {proofs()[rule][0] for rule in rules_of(kernel)} == {"proved"}
    assert row(name, kernel) == written()[name], "python tests/schedules/proved_sums.py"
