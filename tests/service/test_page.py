"""The explorer page, in a real browser: what it shows, what it keeps, and how it is reached."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from browser import example, opened, settled, spoil, until
from service_tools import CONV, Server, renamed

import selector
from selector.service.explorer import examples

pytestmark = pytest.mark.verified

OFFERED: list[dict[str, str]] = json.loads(json.dumps(examples()))["examples"]
EXAMPLES = [e for e in OFFERED if e["kind"] == "ir"]
ERROR_LINE = """[...document.querySelectorAll('.back > .row')].flatMap(
    (n, i) => n.classList.contains('error') ? [i + 1] : [])"""
SCRIPT = "<img src=x onerror=\"document.title='run'\">"


def test_only_our_own_files_may_run(server: Server) -> None:
    for path in ("/", "/page/app.js", "/page/base.css", "/page/examples.json"):
        reply = server.ask("GET", path)
        assert reply.status == 200, path
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
        assert "unsafe" not in policy
        assert "://" not in reply.body.decode().replace("http://www.w3.org", "") or "json" in path
    assert server.ask("GET", "/page/../app.py").status == 404
    assert server.ask("GET", "/page/%2e%2e/app.py").status == 404


@pytest.mark.parametrize("example", EXAMPLES, ids=[e["name"] for e in EXAMPLES])
def test_every_example_is_selected(server: Server, example: dict[str, str]) -> None:
    reply = server.ask("POST", "/v1/explain", {"ir": example["text"], "target": example["target"]})
    assert reply.status == 200, reply.body
    assert reply.data["misses"] == 0
    assert any(s["instruction"] for s in reply.data["report"]["statements"])


def test_confinement_is_told(server: Server, browser: Any) -> None:
    server.wait_ready()
    confined = server.ask("GET", "/healthz").data["confined"]
    with opened(browser, server) as page:
        until(page, "document.querySelector('#confined').textContent !== ''")
        text = page.text_content("#confined")
        assert text == ("workers confined" if confined else "workers not confined")


def test_a_hit(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        assert settled(page, "good") == "selected: all 3 statements"
        assert "wmma.mma.m32n8k16.f16.f32" in page.text_content("#why .chosen")
        assert page.locator("#selected .tensor.chosen").count() == 2
        assert page.locator("#edit-program .back .chosen").count() == 2
        assert page.locator("#cuda .tensor.chosen").count() == 4
        told = page.inner_text("#stages")
        assert re.search(r"verify .* ms\s+select .* ms\s(?s:.*)emit .* ms", told)
        toeplitz = page.locator("#rules details[data-rule=toeplitz]")
        assert "banded matrix" in toeplitz.inner_text()
        toeplitz.locator("summary").click()
        assert "rules/71_toeplitz.egg:" in toeplitz.inner_text()
        assert "(rule" in toeplitz.inner_text() or "(rewrite" in toeplitz.inner_text()
        page.click("#tab-kernels")
        assert page.locator("#kernels .tensor.chosen").count() == 4
        assert page.locator("#kernels .row", has_text=re.compile("^kernel ")).count() == 1
        page.click("#tab-sass")
        page.wait_for_selector("#sass .tensor, #sass .empty:not(:has-text('tab is open'))")
        page.click("#tab-graph")
        until(page, "document.querySelector('#graph img')?.naturalWidth > 100")


@pytest.mark.nvrtc
def test_machine_code(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        page.click("#tab-sass")
        page.wait_for_selector("#sass .tensor")
        assert all("HMMA" in t for t in page.locator("#sass .tensor").all_text_contents())


def test_statements_are_linked(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        page.hover("#selected [data-statement='1']")
        for place in ("#edit-program .back", "#why", "#selected"):
            assert page.locator(f"{place} .hover[data-statement='1']").count() >= 1, place
        page.click("#selected [data-statement='3']")
        assert "output (read)" in page.text_content("#why .chosen")
        assert page.text_content("#rules-of") == "of output (read)"
        assert page.locator("#edit-program .back .chosen").count() == 2


def test_every_statement_has_as_many_lines_as_copies(server: Server, browser: Any) -> None:
    count = """async ([ir, statements]) => {
        const { programLines, selectedLines, stores } = await import('/page/linking.js');
        const numbers = programLines(ir, statements);
        const owners = stores(ir).map((store) => numbers[store.first]);
        return statements.map((_, i) => owners.filter((owner) => owner === i + 1).length);
    }"""
    with opened(browser, server) as page:
        for example in EXAMPLES:
            question = {"ir": example["text"], "target": example["target"]}
            statements = server.ask("POST", "/v1/explain", question).data["report"]["statements"]
            found = page.evaluate(count, [example["text"], statements])
            assert found == [s["copies"] for s in statements], example["name"]


def test_the_graph_is_that_of_a_statement_of_the_report(server: Server) -> None:
    (example,) = (e for e in EXAMPLES if e["name"] == "attention")
    question = {"ir": example["text"], "target": example["target"]}
    for entry in server.ask("POST", "/v1/explain", question).data["report"]["statements"]:
        asked = {**question, "statement": entry["statement"], "nodes": 1}
        reply = server.ask("POST", "/v1/graph", asked)
        assert f": {entry['func']}, target" in reply.body.decode(), reply.body[:300]
    refused = server.ask("POST", "/v1/graph", {**question, "statement": "a[0] = 1"})
    assert refused.status == 422
    assert refused.error["what"] == "there is no such statement"


def test_the_lines_of_a_read_that_adds(server: Server, browser: Any) -> None:
    """`peak` is read, compared with itself and written again; its first value is not of a tile."""
    with opened(browser, server) as page:
        settled(page, "good")
        example(page, "attention")
        page.click("#why [data-statement]:has-text('peak (read)')")
        chosen = page.evaluate(
            "[...document.querySelectorAll('#edit-program .row')].flatMap("
            "(n, i) => n.classList.contains('chosen') ? [i] : [])"
        )
        lines = page.input_value("#program").split("\n")
        assert len(chosen) == 2
        assert all("max(" in lines[i] and "scores_peak[" in lines[i] for i in chosen)


def test_own_rules(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        page.click("#tab-own")
        page.fill("#own", '(rule ((= x (Int a)))\n (oops a) :ruleset axioms :name "mine")')
        settled(page, "wrong")
        assert "rules:" in page.inner_text("#notice")
        page.fill("#own", "")
        assert settled(page, "good")


def test_a_miss_shows_what_the_service_says(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        spoil(page)
        assert "not selected" in settled(page, "wrong")
        ir = page.input_value("#program")
        error = server.compile(ir).error
        notice = page.inner_text("#notice")
        for said in (error["kind"], error["what"], error["why"], error["hint"]):
            assert said in notice
        assert "No code" in page.text_content("#cuda")
        assert page.locator("#why .missed").count() == 4
        assert page.locator(".back .missed").count() >= 1
        page.uncheck("#strict")
        page.wait_for_selector("#notice", state="hidden")
        assert "kernel_output" in page.text_content("#cuda")
        assert "not selected" in settled(page, "wrong")


def test_a_mistake_is_marked_where_it_is(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        page.fill("#program", f"module m\n {SCRIPT}\n")
        assert settled(page, "wrong") == "ParseError"
        assert page.evaluate(ERROR_LINE) == [2]
        assert "program:2:2" in page.inner_text("#notice")
        assert SCRIPT in page.inner_text("#notice")
        assert page.locator("main img").count() == 0
        assert page.title() != "run"
        page.fill("#program", "")
        page.wait_for_selector("#status:text('no program')")
        assert page.locator("#why .empty").count() == 1
        assert not page.is_visible("#notice")


def test_the_kernel_is_saved(server: Server, browser: Any, tmp_path: Path) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        with page.expect_download() as saving:
            page.click("#download")
        assert saving.value.suggested_filename == "output.kernel"
        saving.value.save_as(tmp_path / "output.kernel")
        kernel = selector.load(tmp_path / "output.kernel")
        lines = page.locator("#cuda .row").all_text_contents()
        assert kernel.source.rstrip("\n") == "\n".join(lines)
        spoil(page)
        settled(page, "wrong")
        assert not page.is_visible("#download")


def test_only_some_instructions(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        page.select_option("#only", "mma")
        page.wait_for_selector("#why :text-matches('^1 × mma|× mma[.]m16n8k16')")
        path = shared(page)
        page.select_option("#target", "amx")
        assert page.input_value("#only") == ""
        offered = page.locator("#only optgroup[label=one] option").all_text_contents()
        assert offered
        assert all(name.startswith("amx.") for name in offered)
    with opened(browser, server, path) as page:
        page.wait_for_selector("#why :text-matches('× mma[.]m16n8k16')")
        assert page.input_value("#only") == "mma"


def test_progress_is_shown(server: Server, browser: Any) -> None:
    """The only worker is stopped for a while: one job is running, the other waits for it."""
    with opened(browser, server) as page:
        settled(page, "good")
        (worker,) = server.workers()
        os.kill(worker, signal.SIGSTOP)
        try:
            page.fill("#program", renamed("watched"))
            page.wait_for_selector("#status.busy:text-matches('(code|reasons): [a-z]+, [12] s')")
            page.wait_for_selector("#status.busy:text-matches('(code|reasons): in the queue')")
        finally:
            os.kill(worker, signal.SIGCONT)
        assert settled(page, "good")


def test_the_last_change_wins(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        sent: list[str] = []

        def note(request: Any) -> None:
            if request.url.endswith("explain"):
                sent.append(request.url)

        page.on("request", note)
        for name in ("one", "two", "three"):
            page.fill("#program", CONV.replace("module output", f"module {name}"))
        page.wait_for_selector("#cuda :text('// three for sm_80')")
        assert len(sent) == 1
        page.fill("#program", CONV.replace("module output", "module four"))
        page.keyboard.press("Control+Enter")
        page.fill("#program", CONV.replace("module output", "module five"))
        page.wait_for_selector("#cuda :text('// five for sm_80')")
        assert settled(page, "good")


def shared(page: Any) -> str:
    """The path of a short link to what is on the page."""
    page.click("#share")
    address = page.input_value("#shared[open] #address")
    page.keyboard.press("Escape")
    assert page.url == address
    return "p/" + address.rpartition("/p/")[2]


def test_a_link_restores_the_session(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        example(page, "gemm_warpgroups")
        page.wait_for_selector("#why :text('wgmma.')")
        page.uncheck("#strict")
        page.click("#why [data-statement='1']")
        page.click("#tab-graph")
        page.wait_for_selector("#graph img")
        text = page.input_value("#program")
        path = shared(page)
        assert re.fullmatch(r"p/[\w-]{10}", path)
        assert shared(page) == path
    with opened(browser, server, path) as page:
        page.wait_for_selector("#graph img")
        assert page.input_value("#program") == text
        assert page.input_value("#target") == "sm_90a"
        assert page.text_content("#example") == "Example: gemm_warpgroups"
        assert not page.is_checked("#strict")
        assert page.get_attribute("#why [data-statement='1']", "aria-pressed") == "true"
        assert page.url.endswith(path)
        page.fill("#program", text + "\n# typed a moment before a reload\n")
        assert page.url == f"{server.url}/"
        page.reload()
        page.wait_for_selector("#status:not(.busy)")
        assert page.input_value("#program").endswith("before a reload\n")


def test_a_link_that_leads_nowhere(server: Server, browser: Any) -> None:
    with opened(browser, server, "p/neverMade0") as page:
        assert settled(page, "wrong") == "NotFoundError"
        assert "there is no link 'neverMade0'" in page.inner_text("#notice")
        for pane in ("selected", "cuda", "why", "rules"):
            assert "could not be opened" in page.text_content(f"#{pane}"), pane
        example(page, "conv1d")
        assert settled(page, "good")
        assert page.url == f"{server.url}/"


def test_a_link_that_cannot_be_stored(server: Server, browser: Any) -> None:
    error = {"kind": "LimitError", "what": "no room", "why": "", "hint": "", "where": {}}
    with opened(browser, server) as page:
        settled(page, "good")
        page.route("**/links", lambda r: r.fulfill(status=507, body=json.dumps({"error": error})))
        page.click("#share")
        page.wait_for_selector("#notice :text('no room')")
        assert page.locator("#shared[open]").count() == 0
        assert page.url == f"{server.url}/"


def test_by_keyboard_alone(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        press = page.keyboard.press
        focus = "document.activeElement.id"
        reached = []
        for _ in range(40):
            press("Tab")
            reached.append(page.evaluate(focus))
            if reached[-1] == "program":
                break
        assert reached[0] == "skip"
        assert [i for i in reached if i][:5] == ["skip", "examples", "target", "only", "strict"]
        press("Escape")
        assert page.evaluate(focus) == "tab-program"
        press("j")
        assert page.get_attribute("#why [data-statement='3']", "aria-pressed") == "true"
        press("k")
        press("k")
        assert page.get_attribute("#why [data-statement='1']", "aria-pressed") == "true"
        for key, pane in (
            ("2", "selected"),
            ("3", "cuda"),
            ("4", "why"),
            ("5", "rules"),
            ("1", "program"),
        ):
            press(key)
            assert page.evaluate(focus) == pane
            if pane == "program":
                text = page.input_value("#program")
                press("j")
                assert len(page.input_value("#program")) == len(text) + 1
                press("Backspace")
                assert page.input_value("#program") == text
                page.wait_for_selector("#status.busy")
                settled(page, "good")
        press("Escape")
        press("g")
        assert page.get_attribute("#tab-graph", "aria-selected") == "true"
        page.focus("#tab-graph")
        press("ArrowRight")
        assert page.get_attribute("#tab-cuda", "aria-selected") == "true"
        assert page.evaluate(focus) == "tab-cuda"
        press("n")
        assert page.locator("#cuda .row.at.tensor").count() == 1
        with page.expect_download():
            press("d")
        press("m")
        assert page.locator(".pane:visible").count() == 1
        press("m")
        assert page.locator(".pane:visible").count() == 5
        press("?")
        assert page.is_visible("#help")
        press("Escape")
        assert not page.is_visible("#help")


def test_every_control_has_a_name(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        for role in ("button", "tab", "combobox", "textbox", "checkbox", "region", "tabpanel",
                     "separator", "status"):  # fmt: skip
            assert page.get_by_role(role).count() >= 1, role
            named = page.get_by_role(role, name=re.compile(r"\S")).count()
            assert named == page.get_by_role(role).count(), role


def test_light_and_dark(server: Server, browser: Any) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, server, color_scheme="dark") as page:
        settled(page, "good")
        dark = page.evaluate(background)
        page.click("#theme")
        assert page.get_attribute("#theme", "aria-label") == "Theme: light (t)"
        light = page.evaluate(background)
        assert sum(map(int, re.findall(r"\d+", dark))) < 150
        assert sum(map(int, re.findall(r"\d+", light))) > 600
        page.reload()
        assert page.evaluate(background) == light
        page.click("#theme")
        assert page.evaluate(background) == dark
    with opened(browser, server, color_scheme="light") as page:
        assert page.evaluate(background) == light


def test_a_token_is_asked_for(tight: Server, browser: Any) -> None:
    with opened(browser, tight) as page:
        page.wait_for_selector("#notice input[type=password]")
        assert "TokenError (401)" in page.inner_text("#notice")
        page.fill("#notice input", tight.token)
        page.keyboard.press("Enter")
        page.wait_for_selector("#target option", state="attached")
        # Its limit of time is short: on a busy machine that is what it says.
        page.wait_for_selector("#status.good, #notice :text('LimitError')")
        assert not page.is_visible("#notice :text('TokenError')")
        assert tight.token not in page.url


def away(route: Any) -> None:
    route.abort()


def full(route: Any) -> None:
    error = {"kind": "QueueError", "what": "full", "why": "", "hint": "", "where": {}}
    body = json.dumps({"error": error})
    route.fulfill(status=429, headers={"Retry-After": "1"}, body=body)


def test_a_service_that_is_away(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        page.route("**/v1/*", away)
        page.fill("#program", CONV)
        assert settled(page, "wrong") == "ServiceError"
        assert "does not answer" in page.inner_text("#notice")
        page.unroute("**/v1/*")
        page.click("#notice button")
        assert settled(page, "good")
        page.route("**/v1/*", full, times=2)
        page.click("#run")
        page.wait_for_selector("#notice :text('full Again in 1 s')")
        page.wait_for_selector("#notice", state="hidden")
        assert settled(page, "good")
