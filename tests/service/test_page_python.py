"""Halide's Python on the explorer page, where the service takes it: what is sent, which lines a
statement has, where a mistake is; with answers made here, and with a service that does take it.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from browser import example, opened, settled, until
from service_tools import CONV, Server
from test_page import ERROR_LINE, OFFERED

pytestmark = pytest.mark.verified

BLUR = next(e for e in OFFERED if e["name"] == "blur")["text"]
MARKED = next(n for n, line in enumerate(BLUR.split("\n"), 1) if line.startswith("hb.store_in"))
PLACE = {"func": "", "stage": "", "location": "program:3", "statement": ""}
MISTAKE = {"kind": "ParseError", "what": "name 'y' is not defined", "why": "", "hint": ""}


def offering(server: Server, page: Any) -> list[dict[str, Any]]:
    """The page of a service that takes Python: it answers as for ``CONV``, whose Funcs were marked
    on line ``MARKED``; what it was asked.
    """
    asked: list[dict[str, Any]] = []

    def targets(route: Any) -> None:
        data = server.ask("GET", "/v1/targets").data | {"python_input": True}
        route.fulfill(status=200, body=json.dumps(data), content_type="application/json")

    def job(route: Any) -> None:
        request = json.loads(route.request.post_data)
        if request.get("kind") != "python":
            route.continue_()
            return
        asked.append(dict(request))
        if "oops" in request.pop("program"):
            route.fulfill(status=422, body=json.dumps({"error": {**MISTAKE, "where": PLACE}}))
            return
        kind = route.request.url.rpartition("/")[2]
        del request["kind"]
        data = server.ask("POST", f"/v1/{kind}", {**request, "ir": CONV}).data
        for statement in data["report"]["statements"]:
            statement["location"] = f"program:{MARKED}"
        body = json.dumps(data | {"ir": CONV})
        route.fulfill(status=200, body=body, content_type="application/json")

    page.route("**/v1/targets", targets)
    page.route("**/v1/compile", job)
    page.route("**/v1/explain", job)
    page.reload()
    return asked


def test_python_is_not_offered_by_itself(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        if not server.ask("GET", "/v1/targets").data.get("python_input"):
            assert not page.is_visible("#kind")
            assert page.locator("#gallery [data-example=blur]").count() == 0


def test_a_pipeline_in_python(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        asked = offering(server, page)
        settled(page, "good")
        example(page, "blur")
        page.wait_for_selector("#lowered .row", state="attached")
        assert settled(page, "good") == "selected: all 3 statements"
        assert page.input_value("#kind") == "python"
        sent = asked[-1]
        assert sent["kind"] == "python"
        assert "ir" not in sent
        # The line on which the Func was marked is that of its statements.
        marked = page.locator("#edit-program .row.chosen")
        assert marked.count() == 1
        assert "hb.store_in(conv" in marked.inner_text()
        assert page.locator("#edit-program .t-word:text('import')").count() == 2
        page.click("#tab-lowered")
        assert page.locator("#lowered .row.chosen").count() == 2
        assert page.locator("#selected:visible").count() == 0
        page.click("#tab-selected")
        assert page.locator("#selected .row.tensor.chosen").count() == 2
        # Either text stays when the other is chosen.
        page.select_option("#kind", "ir")
        assert page.input_value("#program") == ""
        page.select_option("#kind", "python")
        assert page.input_value("#program") == BLUR


def test_a_mistake_in_python_is_marked_where_it_is(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        offering(server, page)
        settled(page, "good")
        page.select_option("#kind", "python")
        page.fill("#program", "import halide as hl\n\nx = oops(y)\n")
        until(page, "document.querySelector('#status').textContent === 'ParseError'")
        assert page.evaluate(ERROR_LINE) == [3]
        assert "name 'y' is not defined" in page.inner_text("#notice")
        for pane in ("lowered", "selected", "cuda", "why"):
            assert "name 'y' is not defined" in page.text_content(f"#{pane} .failed"), pane


def test_with_a_service_that_takes_python(python: Server, browser: Any) -> None:
    """The pipelines that the page offers, a mistake, a link: with the lowering itself."""
    with opened(browser, python) as page:
        settled(page, "good")
        for entry in (e for e in OFFERED if e["kind"] == "python"):
            example(page, entry["name"])
            page.wait_for_selector("#lowered .row", state="attached")
            assert settled(page, "good") == "selected: all 3 statements"
            assert "hb.store_in" in page.locator("#edit-program .row.chosen").inner_text()
            assert page.input_value("#target") == entry["target"]
        page.fill("#program", page.input_value("#program") + "\noops\n")
        assert settled(page, "wrong")
        last = page.input_value("#program").count("\n")
        assert page.evaluate(ERROR_LINE) == [last]
        assert "oops" in page.inner_text("#notice")
        page.click("#share")
        address = page.input_value("#shared[open] #address")
        page.goto(address)
        settled(page, "wrong")
        assert page.input_value("#kind") == "python"
        assert page.input_value("#program").endswith("\noops\n")


PLAIN = """import halide as hl
x, y = hl.Var("x"), hl.Var("y")
image, output = hl.ImageParam(hl.Float(32), 2, "image"), hl.Func("output")
output[x, y] = image[x, y] + image[x + 1, y]
"""


def test_the_compiler_schedules_what_nobody_has(python: Server, browser: Any) -> None:
    """Asked to; a link keeps that it was."""
    with opened(browser, python) as page:
        settled(page, "good")
        assert not page.is_visible("#auto")
        page.select_option("#kind", "python")
        page.fill("#program", PLAIN)
        page.check("#auto")
        until(page, "document.querySelector('#lowered').textContent.includes('gpu_block')")
        page.click("#share")
        page.goto(page.input_value("#shared[open] #address"))
        until(page, "document.querySelector('#lowered').textContent.includes('gpu_block')")
        assert page.is_checked("#auto")
