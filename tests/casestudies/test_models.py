"""The page of the models is what its script makes of the file of results."""

from __future__ import annotations

from typing import Any

from casestudies.models import page


def row(model: str, ours: float, inductor: float, error: float = 1e-3) -> dict[str, Any]:
    return {
        "model": model, "batch": 1, "gpu": "a GPU", "torch": "2", "date": "2026-11-27",
        "us": {"eager": 9.0, page.OURS: ours, "inductor": inductor},
        "error": {"eager": 1e-3, page.OURS: error},
        "regions": {page.OURS: {"taken": 1, "all": 2}},
        "report": [["mm: left to torch: slower", 2], ["mm: tensor units by wgmma", 1]],
    }  # fmt: skip


def test_the_page_is_up_to_date() -> None:
    assert page.main(["--check"]) == 0


def test_means_and_what_is_left() -> None:
    text = page.tables({"rows": [row("DnCNN", 2.0, 4.0), row("GPT-2", 4.0, 2.0)]})
    assert "Inductor / this: 1.00, of models that restore images 2.00; the least 0.50." in text
    assert text.count("- 2 x mm: slower") == 2
    assert "wgmma" not in text


def test_a_model_that_is_off_is_said_to_be_wrong() -> None:
    assert "(wrong)" in page.tables({"rows": [row("GPT-2", 4.0, 2.0, error=2.1e-3)]})
    assert "(wrong)" not in page.tables({"rows": [row("GPT-2", 4.0, 2.0, error=1.9e-3)]})


def test_what_has_no_time_is_named() -> None:
    untimed = row("ResNet-50", 1.0, 1.0) | {"us": {}}
    text = page.tables({"rows": [row("GPT-2", 4.0, 2.0), untimed]})
    assert "not timed before the end: ResNet-50" in text
