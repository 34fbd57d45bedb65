"""The explorer page's comparison of two targets or two versions, and what it is made of: the
differences of two texts.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from browser import example, opened, settled, until
from service_tools import CONV, Server

pytestmark = pytest.mark.verified

ROWS = """async ([a, b]) => {
    const { rows } = await import('/page/diff.js');
    return rows(a, b).map((r) => [r.left, r.right, r.same]);
}"""
RANGES = """async ([a, b]) => (await import('/page/diff.js')).ranges(a, b)"""


@pytest.fixture
def page(server: Server, browser: Any) -> Any:
    with opened(browser, server) as found:
        yield found


def lines(rng: random.Random, count: int) -> list[str]:
    return [rng.choice("abcdefgh") for _ in range(count)]


def check(a: list[str], b: list[str], rows: list[list[Any]]) -> int:
    """Every line of both sides is there once, in order; equal ones are equal; how many are."""
    assert [left for left, _, _ in rows if left >= 0] == list(range(len(a)))
    assert [right for _, right, _ in rows if right >= 0] == list(range(len(b)))
    for left, right, same in rows:
        assert left >= 0 or right >= 0
        assert not same or a[left] == b[right]
    return sum(same for *_, same in rows)


def test_lines_are_paired_as_well_as_can_be(page: Any) -> None:
    """As many as a longest common subsequence has, found here by another way."""
    rng = random.Random(5)
    for _ in range(60):
        a, b = lines(rng, rng.randrange(12)), lines(rng, rng.randrange(12))
        best = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
        for i, x in enumerate(a):
            for j, y in enumerate(b):
                longest = max(best[i][j + 1], best[i + 1][j])
                best[i + 1][j + 1] = best[i][j] + 1 if x == y else longest
        assert check(a, b, page.evaluate(ROWS, [a, b])) == best[-1][-1]


def test_long_texts_are_paired_around_what_each_has_once(page: Any) -> None:
    a = [f"line {i}" if i % 3 else "}" for i in range(6000)]
    b = [line for i, line in enumerate(a) if i % 50]
    b[100:100] = ["new 1", "new 2"]
    equal = check(a, b, page.evaluate(ROWS, [a, b]))
    assert equal >= 0.99 * (len(b) - 2)  # all but the new ones are in both, in order
    other = [f"other {i}" for i in range(5000)]
    assert check(a, other, page.evaluate(ROWS, [a, other])) == 0


def test_what_differs_in_a_line_is_marked(page: Any) -> None:
    assert page.evaluate(RANGES, ["HMMA R4, R8, R2", "HMMA R4, R9, R2"]) == [[[9, 11]], [[9, 11]]]
    assert page.evaluate(RANGES, ["a = b;", "a = b + c;"]) == [[], [[5, 9]]]
    # What has little in common differs as a whole.
    assert page.evaluate(RANGES, ["alpha beta", "gamma delta"]) == [[], []]


def test_two_targets_side_by_side(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        example(page, "gemm_warpgroups")
        page.wait_for_selector("#why :text('wgmma.')")
        page.keyboard.press("Escape")
        page.keyboard.press("x")
        page.select_option("#other-target", "sm_80")
        page.wait_for_selector("#difference .failed")
        asked = {"ir": page.input_value("#program"), "target": "sm_80"}
        refused = server.ask("POST", "/v1/compile", asked).error["what"]
        assert refused in page.text_content("#difference .failed")
        assert "other side" in page.text_content("#difference .failed")
        example(page, "gemm")
        page.click("#compare")
        page.wait_for_selector("#difference .removed")
        assert page.text_content("#this-side") == "for sm_80"
        assert page.input_value("#other-target") == "sm_90a"
        for target, side in (("sm_80", "removed"), ("sm_90a", "added")):
            marked = page.locator(f"#difference .{side} .differs").first
            assert marked.inner_text() == target
            source = server.compile(page.input_value("#program"), target).data["source"]
            shown = source.rstrip("\n").split("\n")
            at = 0 if side == "removed" else 1
            while page.locator(".fold").count():
                page.locator(".fold").first.click()
            cells = page.locator("#difference .row").all_text_contents()
            numbers = page.eval_on_selector_all(
                "#difference .row", "all => all.map((n) => n.dataset.line)"
            )
            texts = [c for c, n in list(zip(cells, numbers, strict=True))[at::2] if n]
            assert texts == shown
        count = page.locator("#difference .row.first").count()
        assert page.text_content("#next-difference").startswith(f"{count} difference")
        page.focus("#comparison")
        page.keyboard.press("n")
        assert page.locator("#difference .row.first.at").count() == 1


def test_two_versions_side_by_side(server: Server, browser: Any) -> None:
    """A version is held, the program is changed, the sides are exchanged, a link keeps both."""
    with opened(browser, server) as page:
        settled(page, "good")
        page.fill("#program", CONV)
        settled(page, "good")
        page.keyboard.press("Escape")
        page.keyboard.press("h")
        page.wait_for_selector("#difference :text('Both sides are the same')")
        changed = CONV.replace("body {", "body {\n # a comment changes nothing", 1)
        page.fill("#program", changed.replace("module output", "module renamed"))
        page.wait_for_selector("#difference .removed :text('renamed')")
        assert page.text_content("#other-name") == "The version held"
        assert page.locator("#difference .added :text('output')").count() >= 1
        page.click("#swap")
        page.wait_for_selector("#difference .added :text('renamed')")
        assert page.input_value("#program") == CONV
        page.click("#share")
        address = page.input_value("#shared[open] #address")
    with opened(browser, server, "p/" + address.rpartition("/p/")[2]) as page:
        page.wait_for_selector("#difference .added :text('renamed')")
        assert page.input_value("#program") == CONV
        page.click("#close-compare")
        assert page.locator("#pane-compare:visible").count() == 0
        assert page.locator(".pane:visible").count() == 5
        page.wait_for_selector("#cuda .row.tensor")


@pytest.mark.nvrtc
def test_measures_are_compared(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        page.click("#compare")
        until(page, "document.querySelector('#measures')?.innerText.includes('HMMA')")
        page.wait_for_selector("#measures tr:has-text('instructions') .unlike")
        program = page.input_value("#program")
        for column, target in enumerate(("sm_80", "sm_90a")):
            (kernel,) = server.compile(program, target, sass=True).data["resources"]
            row = page.locator("#measures tr:has(th:text-is('registers')) td").all_inner_texts()
            assert row[column] == str(kernel["registers"])
        page.click("#tab-compare-sass")
        page.wait_for_selector("#difference .t-tensor")
        # Addresses are no difference.
        marked = page.locator("#difference .t-comment.differs").count()
        assert marked == 0


def test_a_kernel_for_the_cpu_has_no_machine_code(server: Server, browser: Any) -> None:
    with opened(browser, server) as page:
        settled(page, "good")
        example(page, "amx_matmul")
        page.wait_for_selector("#why :text('amx.')")
        page.wait_for_selector("#facts :text('no machine code for amx')")
        page.click("#tab-sass")
        assert "compiled where it runs" in page.inner_text("#sass")
