"""The panes of the explorer page: sizes that are remembered, long lines, one pane enlarged, a
narrow window, colours that can be read in both themes, what stands in a pane that has nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from browser import PHONE, example, opened, settled, spoil, until
from service_tools import Server

pytestmark = pytest.mark.verified

BOX = """(id) => {
    const box = document.getElementById(id).getBoundingClientRect();
    return [box.width, box.height];
}"""
CONTRASTS = """() => {
    const number = (text) => text.match(/[\\d.]+/g).map(Number);
    const over = ([r, g, b, a = 1], under) => [r, g, b].map((c, i) => c * a + under[i] * (1 - a));
    const light = (rgb) => {
        const [r, g, b] = rgb.map((c) => c / 255).map(
            (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (node) => {
        if (!node) return [255, 255, 255];
        const color = number(getComputedStyle(node).backgroundColor);
        return color[3] === 0 ? ground(node.parentElement) : over(color, ground(node.parentElement));
    };
    const ratio = (color, under) => {
        const [a, b] = [light(over(number(color), under)), light(under)].sort((x, y) => y - x);
        return (a + 0.05) / (b + 0.05);
    };
    const found = [];
    for (const node of document.querySelectorAll('body *')) {
        const texts = [...node.childNodes].filter((n) => n.nodeType === 3 && n.data.trim());
        const before = getComputedStyle(node, '::before');
        const said = before.content !== 'none' && before.content !== 'normal';
        if (node.matches('textarea, script, .skip') || !node.checkVisibility({ opacityProperty: true })) continue;
        if (node.closest('[aria-busy=true]') || node.closest('dialog:not([open])')) continue;
        const under = ground(node);
        const colors = [...(texts.length || node.matches('input') ? [getComputedStyle(node).color] : []),
                        ...(said ? [before.color] : [])];
        for (const color of colors) {
            found.push([ratio(color, under), color, under.join(), node.className + ' ' + node.textContent.slice(0, 40)]);
        }
    }
    return found;
}"""  # noqa: E501
LEAST = 4.5
"""The contrast of text that WCAG 2.2 asks for (1.4.3)."""


def size(page: Any, name: str) -> tuple[float, float]:
    width, height = page.evaluate(BOX, name)
    return width, height


def test_panes_are_resized_and_remembered(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        before = size(page, "pane-code")[0]
        bar = page.locator("#split-2").bounding_box()
        page.mouse.move(bar["x"], 400)
        page.mouse.down()
        page.mouse.move(bar["x"] - 200, 400, steps=4)
        page.mouse.up()
        wide = size(page, "pane-code")[0]
        assert wide == pytest.approx(before + 200, abs=3)
        height = size(page, "pane-program")[1]
        page.focus("#split-rows")
        for _ in range(4):
            page.keyboard.press("ArrowDown")
        tall = size(page, "pane-program")[1]
        assert tall > height + 30
        now = int(page.get_attribute("#split-rows", "aria-valuenow"))
        assert now == round(100 * tall / (tall + size(page, "pane-why")[1]))
        page.reload()
        settled(page, "good")
        assert size(page, "pane-code")[0] == pytest.approx(wide, abs=2)
        assert size(page, "pane-program")[1] == pytest.approx(tall, abs=2)
        page.dblclick("#split-2", position={"x": 0, "y": 300})
        page.focus("#split-rows")
        page.keyboard.press("Enter")
        assert size(page, "pane-code")[0] == pytest.approx(before, abs=2)
        assert size(page, "pane-program")[1] == pytest.approx(height, abs=2)


def test_a_pane_never_goes_away(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        page.focus("#split-1")
        for _ in range(80):
            page.keyboard.press("ArrowLeft")
        assert size(page, "pane-program")[0] > 80


def test_an_enlarged_pane_has_all_the_room(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        for pane in ("program", "selected", "code", "why", "rules"):
            small = size(page, f"pane-{pane}")
            page.click(f"#pane-{pane} .large")
            assert size(page, f"pane-{pane}")[0] == pytest.approx(1440, abs=2), pane
            room = page.evaluate("document.querySelector('main').clientHeight")
            assert size(page, f"pane-{pane}")[1] == pytest.approx(room, abs=2), pane
            assert page.locator(".pane:visible").count() == 1, pane
            page.keyboard.press("Escape")
            assert size(page, f"pane-{pane}") == pytest.approx(small, abs=1), pane


def test_long_lines_are_reached(server: Server, browser: Any) -> None:
    """By scrolling; or broken, in the editor as the text area breaks them."""
    over = "(id) => { const n = document.querySelector(id); return n.scrollWidth - n.clientWidth; }"
    sheets = """() => ['.back', 'textarea'].map((n) => {
        const node = document.querySelector('#edit-program ' + n);
        return [node.clientWidth, node.scrollHeight]; })"""
    with opened(browser, server) as page:
        settled(page, "good")
        for place in ("#edit-program", "#selected", "#cuda"):
            assert page.evaluate(over, place) > 200, place
        page.evaluate("document.querySelector('#selected').scrollLeft = 300")
        until(page, "document.querySelector('#selected').scrollLeft === 300")
        page.click("#wrap")
        for place in ("#edit-program", "#selected", "#cuda"):
            assert page.evaluate(over, place) <= 0, place
        back, area = page.evaluate(sheets)
        assert back == area
        page.reload()
        settled(page, "good")
        assert page.get_attribute("#wrap", "aria-pressed") == "true"


def test_the_text_area_lies_on_its_colours(server: Server, browser: Any) -> None:
    """Every line of a long program is where the text area has it, broken or not."""
    sizes = """() => {
        const area = document.querySelector('#program');
        const back = document.querySelector('#edit-program .back');
        const typed = area.value.replaceAll('\\n', '').length;
        return [area.scrollWidth, area.clientWidth, area.scrollHeight, area.clientHeight,
                back.offsetHeight, back.textContent.length, typed];
    }"""
    with opened(browser, server) as page:
        settled(page, "good")
        example(page, "conv_layer")
        until(page, "document.querySelectorAll('#edit-program .row').length > 100")
        for _ in range(2):
            width, room, height, seen, painted, letters, typed = page.evaluate(sizes)
            assert width <= room
            assert height <= seen == painted
            assert letters == typed
            page.click("#wrap")


def test_a_phone_shows_one_pane_at_a_time(server: Server, browser: Any) -> None:
    with opened(browser, server, viewport=PHONE, has_touch=True, is_mobile=True) as page:
        settled(page, "good")
        for pane in ("program", "selected", "code", "why", "rules"):
            page.click(f"#panes [data-pane={pane}]")
            assert page.locator(".pane:visible").count() == 1
            assert size(page, f"pane-{pane}")[0] == PHONE["width"]
            assert page.get_attribute(f"#panes [data-pane={pane}]", "aria-current") == "true"
            wide = "document.documentElement.scrollWidth"
            assert page.evaluate(wide) == PHONE["width"]
        for name in ("examples", "target", "only", "strict", "compare", "share", "wrap", "keys"):
            box = page.locator(f"#{name}").bounding_box()
            assert box["x"] >= 0, name
            assert box["x"] + box["width"] <= PHONE["width"], name
        page.click("#compare")
        page.wait_for_selector("#pane-compare .row.first")
        assert page.evaluate(wide) == PHONE["width"]
        page.click("#examples")
        close = page.locator("#close-gallery").bounding_box()
        assert close["x"] + close["width"] < PHONE["width"]


def _hit(page: Any) -> None:
    page.wait_for_selector("#facts details")
    page.click("#facts summary")
    page.hover("#selected [data-statement='1']")


def _sass(page: Any) -> None:
    page.click("#tab-sass")
    page.wait_for_selector("#sass .row.tensor")


def _miss(page: Any) -> None:
    spoil(page)
    settled(page, "wrong")


def _mistake(page: Any) -> None:
    page.fill("#program", "module m\n oops\n")
    settled(page, "wrong")


def _rules(page: Any) -> None:
    page.click("#rules details:has-text('toeplitz') summary")
    page.click("#tab-own")
    page.fill("#own", '; mine\n(rule ((= x (Int 1))) ((Int 1)) :ruleset axioms :name "mine")')


def _compared(page: Any) -> None:
    page.click("#compare")
    page.wait_for_selector("#pane-compare .row.first")
    page.click("#tab-compare-sass")
    page.wait_for_selector("#difference .differs")


def _gallery(page: Any) -> None:
    page.click("#examples")


def _help(page: Any) -> None:
    page.click("#keys")


STATES = [
    _hit, pytest.param(_sass, marks=pytest.mark.nvrtc), _miss, _mistake, _rules,
    pytest.param(_compared, marks=pytest.mark.nvrtc), _gallery, _help,
]  # fmt: skip


@pytest.mark.parametrize("state", STATES)
def test_every_text_can_be_read(server: Server, browser: Any, state: Callable[[Any], None]) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        state(page)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            until(page, f"document.documentElement.dataset.theme === '{theme}'")
            found = page.evaluate(CONTRASTS)
            assert len(found) > 40
            assert [entry for entry in found if entry[0] < LEAST] == [], theme


def test_code_is_coloured(server: Server, browser: Any) -> None:
    pieces = """async ([language, text]) => {
        const { pieces } = await import('/page/highlight.js');
        return pieces(language, text).map((line) => line.filter(([kind]) => kind));
    }"""
    cases = [
        ("ir", "  acc[ramp(0, 1, 256)] = (float32x256)wmma.mma.m16n16k16.f16.f32(2.5f) # c",
         [["call", "ramp"], ["number", "0"], ["number", "1"], ["number", "256"],
          ["type", "float32x256"], ["tensor", "wmma.mma.m16n16k16.f16.f32"], ["number", "2.5f"],
          ["comment", "# c"]]),
        ("ir", "allocate input.s0.for[float16 * 4] in GPUShared",
         [["word", "allocate"], ["type", "float16"], ["number", "4"], ["word", "in"],
          ["type", "GPUShared"]]),
        ("cuda", 'const u32 x = f(0x1fu); // "no"',
         [["word", "const"], ["type", "u32"], ["call", "f"], ["number", "0x1fu"],
          ["comment", '// "no"']]),
        ("sass", "/*0010*/  @!P0 HMMA.16816.F32 R4, R8.reuse, RZ",
         [["comment", "/*0010*/"], ["word", "@!P0"], ["tensor", "HMMA.16816.F32"], ["type", "R4"],
          ["type", "R8.reuse"], ["type", "RZ"]]),
        ("kernels", "  await asleep full + (8*slot) phase 2",
         [["call", "  await"], ["number", "8"], ["number", "2"]]),
        ("egg", '(rule ((= x (Int -1))) :name "a;b") ; c',
         [["word", "rule"], ["call", "Int"], ["number", "-1"], ["type", ":name"],
          ["string", '"a;b"'], ["comment", "; c"]]),
        ("python", "def f(x): return '#' + x  # c",
         [["word", "def"], ["call", "f"], ["word", "return"], ["string", "'#'"],
          ["comment", "# c"]]),
    ]  # fmt: skip
    with opened(browser, server) as page:
        for language, text, expected in cases:
            assert page.evaluate(pieces, [language, text]) == [expected], text
        several = page.evaluate(pieces, ["python", 'a = """x\n# y\n""" + 1'])
        assert several == [[["string", '"""x']], [["string", "# y"]],
                           [["string", '"""'], ["number", "1"]]]  # fmt: skip
        several = page.evaluate(pieces, ["cuda", "/* a\nint */ int"])
        assert several == [[["comment", "/* a"]], [["comment", "int */"], ["word", "int"]]]


def test_no_text_is_lost_in_colours(server: Server, browser: Any) -> None:
    whole = """async ([language, text]) => {
        const { pieces } = await import('/page/highlight.js');
        return pieces(language, text).map((line) => line.map((p) => p[1]).join('')).join('\\n');
    }"""
    texts = server.ask("GET", "/page/examples.json").data["examples"]
    with opened(browser, server) as page:
        for entry in texts:
            for language in ("ir", "cuda", "kernels", "sass", "egg", "python"):
                assert page.evaluate(whole, [language, entry["text"]]) == entry["text"]


@pytest.mark.nvrtc
def test_what_a_kernel_takes_is_one_line(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        page.wait_for_selector("#facts details, #facts .note:has-text('No machine code')")
        if (
            page.locator("#facts .note").count() == 1
            and page.locator("#facts details").count() == 0
        ):
            pytest.skip(page.inner_text("#facts"))
        ask = {"ir": page.input_value("#program"), "target": "sm_80", "sass": True}
        (kernel,) = server.ask("POST", "/v1/compile", ask).data["resources"]
        line = page.inner_text("#facts summary")
        assert page.locator("#facts summary").bounding_box()["height"] < 30
        for part in (
            kernel["entry"],
            f"{kernel['registers']} registers",
            f"{kernel['shared_bytes'] / 1024:.1f} KiB shared",
            f"{kernel['threads']} threads",
            f"{round(100 * kernel['occupancy']['share'])} % occupancy",
            f"limited by {kernel['occupancy']['limit']}",
            f"{sum(kernel['instructions'].values())} instructions",
            f"{kernel['instructions']['HMMA']} HMMA",
        ):
            assert part in line
        page.click("#facts summary")
        for opcode, count in kernel["instructions"].items():
            assert f"{count} {opcode}" in page.inner_text("#facts .opcodes")
        page.select_option("#target", "amx")
        page.wait_for_selector("#facts details", state="detached")


def test_every_pane_says_why_it_is_empty(server: Server, browser: Any) -> None:
    panes = ("selected", "cuda", "kernels", "sass", "graph", "why", "rules")
    with opened(browser, server) as page:
        settled(page, "good")
        page.fill("#program", "")
        page.wait_for_selector("#status:text('no program')")
        for pane in panes:
            assert "choose one of the examples" in page.text_content(f"#{pane} .empty"), pane
        page.fill("#program", "module m\n oops\n")
        settled(page, "wrong")
        what = server.ask(
            "POST", "/v1/explain", {"ir": "module m\n oops\n", "target": "sm_80"}
        ).error
        for pane in panes:
            assert what["what"] in page.text_content(f"#{pane} .failed"), pane
        page.route("**/v1/graph", lambda route: route.abort())
        example(page, "conv1d")
        settled(page, "good")
        page.click("#tab-graph")
        assert "does not answer" in page.text_content("#graph .failed")
        page.unroute("**/v1/graph")
        page.click("#graph button")
        page.wait_for_selector("#graph img")


def test_machine_code_that_cannot_be_made_is_told(server: Server, browser: Any) -> None:
    """The rest of the page has its answers all the same."""
    error = {"kind": "UserError", "what": "no NVRTC", "why": "not found", "hint": "get it"}

    def refused(route: Any) -> None:
        if json.loads(route.request.post_data).get("sass"):
            body = {"error": error | {"where": {}}}
            route.fulfill(status=422, body=json.dumps(body))
        else:
            route.continue_()

    with opened(browser, server) as page:
        page.route("**/v1/compile", refused)
        page.reload()
        settled(page, "good")
        page.wait_for_selector("#facts :text('No machine code: no NVRTC')")
        page.click("#tab-sass")
        said = page.inner_text("#sass")
        assert all(part in said for part in ("no NVRTC", "not found", "get it"))
        page.click("#tab-cuda")
        assert "kernel_output" in page.inner_text("#cuda")


def test_the_gallery(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        page.keyboard.press("e")
        offered = page.locator("#gallery .card")
        all_ = server.ask("GET", "/page/examples.json").data["examples"]
        python = server.ask("GET", "/v1/targets").data.get("python_input", False)
        assert offered.count() == sum(python or e["kind"] == "ir" for e in all_)
        assert page.evaluate("document.activeElement.id") == "wanted"
        page.keyboard.type("lanczos")
        assert page.locator("#gallery .card:visible").count() == 1
        page.fill("#wanted", "nothing like it")
        assert page.is_visible("#no-example")
        page.fill("#wanted", "resampl")
        page.keyboard.press("Enter")
        page.wait_for_selector("#example:text('resample')")
        assert page.input_value("#program").startswith("# sm_80: Lanczos-3")
        assert not page.is_visible("#gallery")
