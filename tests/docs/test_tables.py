"""The tables and plots of the pages are those of the data."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
from doc_pages import DOCS, read
from test_examples import block

from casestudies.common.registry import all_cases, gpu_schedules
from casestudies.results import host, jobs, paper, plots, render, summary, tutorial


def test_tables_are_those_of_the_data() -> None:
    assert render.main(["--check"]) == 0


def test_a_changed_time_is_noticed() -> None:
    data = jobs.read()
    pages = {
        render.README: render.short,
        render.RESULTS: render.render,
        render.PERFORMANCE: render.limits,
    }
    texts = {path: make(data) for path, make in pages.items()}
    for row in data["rows"]:
        if row["timing"]:
            row["timing"]["median"] *= 2
    for path, make in pages.items():
        assert texts[path] in read(path)
        assert make(data) != texts[path]


def test_every_case_is_presented() -> None:
    results, performance = read(render.RESULTS), read(render.PERFORMANCE)
    for case in all_cases():
        assert f"| `{case.name}` |" in results
        assert f"### {case.name}\n" in performance or not gpu_schedules(case)


def test_the_summary_is_of_ten_jobs() -> None:
    assert len(summary.JOBS) == 10
    assert len({re.split("[-*]", problem)[0] for problem in summary.JOBS}) >= 8


def test_the_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page, *pictures = render.write_report(jobs.read(), tmp_path)
    assert read(page).strip() == render.render(jobs.read())
    assert [p.name for p in pictures] == ["speed_up.png", "share.png", "conv1d.png"]
    pictures.append(plots.overview(jobs.results_of(jobs.read()), "somewhere", tmp_path))
    for path in pictures:
        assert 1000 < path.stat().st_size < 200_000
        assert (jobs.HERE / path.name).exists()


def test_the_picture_names_the_instruction_that_the_tutorial_ends_with() -> None:
    assert f" x {plots.INSTRUCTION} " in block("output", "step7.py").text


def test_the_tutorials_times() -> None:
    """Its table is made from what run_variants writes; a step that is wrong is a dash."""
    row = {"passed": True, "timing": {"median": 100.0}, "error": 1e-7}
    rows = [copy.deepcopy(row) | {"contender": label} for label in tutorial.STEPS]
    data = {"date": "a day", "device": "a GPU", "rows": rows}
    data["rows"][6]["timing"]["median"] = 4.0
    data["rows"][2]["passed"] = False
    text = tutorial.render(data)
    assert re.search(r"^\| 7 \| .* \| \*\*4.00\*\* \| 25.0x \| 1.0e-07 \|$", text, re.MULTILINE)
    assert re.search(r"^\| 3 \| .* \| - \| - \| - \|$", text, re.MULTILINE)
    steps = re.findall(r"<!-- file: (step\d)\.py", read(DOCS / "tutorial.md"))
    assert steps == list(tutorial.STEPS)


def test_the_hosts_times() -> None:
    """The kernel in the middle of each kind, and the slowest; then others' launchers."""
    rows: list[dict[str, object]] = [
        {"problem": f"p{n}", "contender": "tensor", "way": way, "launches": launches, "median": m,
         "p10": m - 0.5}
        for n, (way, launches, m) in enumerate(
            [("CuPy", 1, 3.0), ("CuPy", 1, 4.0), ("CuPy", 1, 9.0), ("torch, out=", 3, 6.0)]
        )
    ]  # fmt: skip
    rows.append({"problem": "", "contender": "Triton", "way": "", "launches": 0, "median": 8.25,
                 "p10": 8.0})  # fmt: skip
    data = {"date": "a day", "device": "a GPU", "launcher": "native", "batches": 2, "calls": 3}
    text = host.render(data | {"rows": rows})
    assert text.splitlines()[-3:] == [
        "| CuPy | one | 3 | **4.0** | 3.5 | 9.0 |",
        "| torch, out= | several | 1 | **6.0** | 5.5 | 6.0 |",
        "| Triton | | | 8.2 | 8.0 | |",
    ]


def test_every_place_of_the_paper_has_been_measured() -> None:
    measured = jobs.results_of(jobs.read())
    assert all(jobs.named(measured, p.problem) for p in paper.PLACES)
    text = paper.render(jobs.read())
    assert text.count("| figure ") == 12
    assert text.count("torch 3 stages") == 1
