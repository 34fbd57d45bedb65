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


@contextmanager
def chromium() -> Generator[Any]:
    """A browser."""
    api: Any = importlib.import_module("playwright.sync_api")
    path = next(filter(None, map(shutil.which, NAMES)))
    # The sandbox of Chromium refuses to run as root.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, server: Server, path: str = "", **options: Any) -> Generator[Any]:
    """The page in a window and a profile of its own; no script may fail in it."""
    size = {"width": 1440, "height": 900}
    context = browser.new_context(**{"viewport": size, "reduced_motion": "reduce"} | options)
    page = context.new_page()
    page.set_default_timeout(WAIT)
    wrong: list[str] = []

    def failed(error: object) -> None:
        wrong.append(str(error))

    page.on("pageerror", failed)

    def said(message: Any) -> None:
        # A refused request shows up as an error of the network; anything else is one of ours.
        if message.type == "error" and "Failed to load resource" not in message.text:
            wrong.append(message.text)

    page.on("console", said)
    page.goto(f"{server.url}/{path}")
    yield page
    context.close()
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
