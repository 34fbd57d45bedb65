"""The explorer page in a real Chromium, driven by Playwright; ``main`` takes the pictures
of the how-to page on the service.

``python tests/service/browser.py`` writes ``pictures/{hit,miss,compare,phone}.png``.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from service_tools import Server, running

PICTURES = Path(__file__).parent / "pictures"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PHONE = {"width": 390, "height": 800}
WAIT = 60_000
"""Milliseconds; the workers of a busy machine are slow."""


def missing() -> str:
    """Why there is no browser here; empty if there is one."""
    if importlib.util.find_spec("playwright") is None:
        return "the Python package playwright is not installed"
    if not any(map(shutil.which, NAMES)):
        return f"none of {', '.join(NAMES)} is installed"
    return ""


@dataclass
class Windows:
    """A browser with a window in which pages are opened one after the other: a new one, with a
    profile and a process of its own, takes three times as long as the page.
    """

    browser: Any
    free: Any = None

    def take(self, options: dict[str, Any]) -> Any:
        """A page of a window that has forgotten what it showed; with options, of a new one."""
        if self.free is not None and not options:
            page, self.free = self.free, None
            page.mouse.move(0, 0)
            return page
        size = {"width": 1440, "height": 900}
        page = self.browser.new_context(**{"viewport": size} | options).new_page()
        page.set_default_timeout(WAIT)
        return page

    def give(self, page: Any, server: Server) -> None:
        """Empty what a page has stored, once it is left and stores nothing more."""
        page.unroute_all()
        page.goto(f"{server.url}/livez")
        page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        if self.free is not None:
            self.free.context.close()
        self.free = page


@contextmanager
def chromium() -> Generator[Windows]:
    """A browser."""
    api: Any = importlib.import_module("playwright.sync_api")
    path = next(filter(None, map(shutil.which, NAMES)))
    # The sandbox of Chromium refuses to run as root.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=options)
        yield Windows(browser)
        browser.close()


@contextmanager
def opened(
    windows: Windows, server: Server, path: str = "", color_scheme: str = "light", **options: Any
) -> Generator[Any]:
    """The page as nobody has used it yet; no script may fail in it. ``options`` are those of a
    window like no other.
    """
    page = windows.take(options)
    page.emulate_media(color_scheme=color_scheme, reduced_motion="reduce")
    wrong: list[str] = []

    def failed(error: object) -> None:
        wrong.append(str(error))

    def said(message: Any) -> None:
        # A refused request shows up as an error of the network; anything else is one of ours.
        if message.type == "error" and "Failed to load resource" not in message.text:
            wrong.append(message.text)

    page.on("pageerror", failed)
    page.on("console", said)
    try:
        page.goto(f"{server.url}/{path}")
        yield page
    except BaseException:
        page.context.close()
        raise
    page.remove_listener("pageerror", failed)
    page.remove_listener("console", said)
    if options:
        page.context.close()
    else:
        windows.give(page, server)
    assert wrong == []


def example(page: Any, name: str) -> None:
    """Choose an example of the gallery."""
    page.click("#examples")
    page.click(f"#gallery [data-example='{name}']")


def settled(page: Any, kind: str) -> str:
    """The status once it is ``good`` or ``wrong`` (and no longer ``busy``)."""
    page.wait_for_selector(f"#status.{kind}")
    return str(page.text_content("#status"))


def until(page: Any, expression: str) -> None:
    """Wait until an expression is true; asked from outside, as the page's policy has no eval."""
    end = time.monotonic() + WAIT / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(50)


def take_pictures() -> None:
    """A hit (conv1d, its code), a miss (the same with a sum in the place of the product), the hit
    on two targets, and on a phone.
    """
    PICTURES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), "--workers", "1") as server,
        chromium() as browser,
    ):
        with opened(browser, server) as page:
            settled(page, "good")
            page.wait_for_selector("#facts details")
            picture(page, "hit")
            spoil(page)
            settled(page, "wrong")
            picture(page, "miss")
        with opened(browser, server, color_scheme="dark") as page:
            settled(page, "good")
            page.click("#compare")
            page.click("#tab-compare-sass")
            page.wait_for_selector("#difference .differs")
            picture(page, "compare")
        with opened(browser, server, viewport=PHONE, has_touch=True, is_mobile=True) as page:
            settled(page, "good")
            page.click("#panes [data-pane=why]")
            picture(page, "phone")


def picture(page: Any, name: str) -> None:
    """A screenshot in few colours, which makes the file small."""
    shot = Image.open(BytesIO(page.screenshot()))
    shot.convert("RGB").quantize(128).save(PICTURES / f"{name}.png", optimize=True)


def spoil(page: Any) -> None:
    """Add the taps of the convolution, where they are to be multiplied, in one statement."""
    text = page.input_value("#program")
    page.fill("#program", text.replace("*x256(float32x8(K", " + x256(float32x8(K", 1))


if __name__ == "__main__":
    if reason := missing():
        sys.exit(reason)
    take_pictures()
