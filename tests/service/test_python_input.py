"""Programs in Python, sent to the service: as the text form of what they are lowered to."""

from __future__ import annotations

import argparse
import base64
from typing import Any

import pytest
from service_tools import ROOT, SECRET, Server

pytest.importorskip("halide", reason="extra `compile`")

from halide_bridge.source import lower_source
from selector.diagnostics import ParseError, UserError
from selector.service import calls, command, sandbox
from selector.service.links import LARGEST

pytestmark = pytest.mark.verified

CAN_CONFINE = sandbox.abi() >= 1 and calls.are_filtered_here()
START = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
BY_HAND = START.split("```python\n")[1].split("```")[0]
BLUR = BY_HAND.partition("\nkernel = ")[0]
MISS = BLUR.replace("y]) * hl.f32(taps", "y] * taps")
assert MISS != BLUR


def ask(server: Server, route: str, program: str, **more: object) -> object:
    body = {"kind": "python", "program": program, "target": "sm_90a", **more}
    return server.ask("POST", f"/v1/{route}", body)


def test_it_is_the_text_form_from_there_on(python: Server) -> None:
    made = ask(python, "compile", BLUR)
    assert made.status == 200, made.body
    text = str(lower_source(BLUR, "sm_90a"))
    assert made.data["ir"] == text
    same = python.compile(text, "sm_90a")
    assert made.data["artifact"] == same.data["artifact"]
    assert "ir" not in same.data
    again = ask(python, "compile", BLUR)
    assert again.data == {**made.data, "cached": True}
    (update,) = (s for s in made.data["report"]["statements"] if s["instruction"])
    line = 1 + BLUR[: BLUR.index("hb.store_in")].count("\n")
    assert update["location"] == f"program:{line}"


PLAIN = """import halide as hl
x, y = hl.Var("x"), hl.Var("y")
image, output = hl.ImageParam(hl.Float(32), 2, "image"), hl.Func("output")
output[x, y] = image[x, y] + image[x + 1, y]
"""


@pytest.mark.parametrize("target", ["sm_90a", "amx"])
def test_the_compiler_schedules_it(python: Server, target: str) -> None:
    made = ask(python, "compile", PLAIN, target=target, schedule="auto")
    assert made.status == 200, made.body
    assert made.data["ir"] == str(lower_source(PLAIN, target, "auto"))


def test_what_halide_has_serialized(python: Server) -> None:
    made: dict[str, Any] = {}
    exec(PLAIN + "data = hl.serialize_pipeline(hl.Pipeline(output))", made)
    data = base64.b64encode(made["data"]).decode()
    answer = ask(python, "compile", data, kind="hlpipe", schedule="auto")
    assert answer.status == 200, answer.body
    assert answer.data["ir"] == str(lower_source(PLAIN, "sm_90a", "auto"))
    for program in ("!", base64.b64encode(b"damaged" * 40).decode()):
        answer = ask(python, "compile", program, kind="hlpipe")
        assert (answer.status, answer.error["kind"]) == (422, "ParseError")


def test_it_is_explained_and_drawn(python: Server) -> None:
    reasons = ask(python, "explain", BLUR)
    assert reasons.status == 200
    assert reasons.data["ir"].startswith("module output")
    assert reasons.data["misses"] == 0
    assert ask(python, "graph", BLUR).body.startswith(b"<svg ")


@pytest.mark.parametrize(
    ("program", "kind", "where"),
    [
        ("x = 1\ny = (", "ParseError", "program:2:5"),
        ("x = 1\n\nx.y", "ParseError", "program:3"),
        ("import os", "ParseError", "program:1"),
        ("", "ParseError", "program"),
        ("x = \0", "ParseError", "program"),
        ("\noutput = 3", "ScheduleError", "program:2"),
        ("import halide as hl\noutput = hl.Func('none')", "ScheduleError", "program:2"),
        (BY_HAND, "ParseError", f"program:{1 + BLUR.count(chr(10)) + 1}"),
        (MISS, "SelectionError", f"program:{1 + MISS[: MISS.index('hb.store_in')].count(chr(10))}"),
    ],
)  # fmt: skip
def test_mistakes_have_their_line(python: Server, program: str, kind: str, where: str) -> None:
    reply = ask(python, "compile", program)
    assert reply.status == 422
    assert (reply.error["kind"], reply.error["where"]["location"]) == (kind, where)


def test_a_program_knows_its_target(python: Server) -> None:
    found = ask(python, "compile", "1 / 0 if target == 'sm_90a' else None")
    assert "ZeroDivisionError" in found.error["what"]
    assert ask(python, "compile", BLUR, target="sm_75").error["kind"] == "TargetError"


def test_what_does_not_end_costs_no_worker(python: Server) -> None:
    (worker,) = python.workers()
    reply = ask(python, "compile", "while True: pass")
    assert reply.status == 422
    assert reply.error["kind"] == "LimitError"
    assert python.workers() == [worker]


def test_nothing_of_the_server_is_there(python: Server) -> None:
    """Neither its environment nor its folder, said in what a program raises."""
    found = ask(
        python, "compile",
        "b = ().__class__.__base__.__subclasses__()\n"
        "m = [c.__init__.__globals__ for c in b if c.__name__ == '_wrap_close'][0]\n"
        "raise KeyError(dict(m['environ']), m['getcwd'](), m['sys'].argv)",
    )  # fmt: skip
    assert "KeyError" in found.error["what"]
    assert SECRET not in found.error["what"]
    assert str(python.folder) not in found.error["what"]


def test_it_can_be_linked(python: Server) -> None:
    body = {"kind": "python", "program": BLUR, "target": "sm_90a"}
    name = python.ask("POST", "/links", body).data["id"]
    assert python.ask("GET", f"/links/{name}").data == body
    assert len(BLUR) < LARGEST


def test_the_page_can_ask(python: Server, server: Server) -> None:
    assert python.ask("GET", "/v1/targets").data["python_input"] is True
    assert server.ask("GET", "/v1/targets").data["python_input"] is False


def test_it_is_refused_unless_the_operator_wants_it(server: Server) -> None:
    for route in ("compile", "explain", "graph"):
        reply = ask(server, route, BLUR)
        assert reply.status == 422
        assert (reply.error["kind"], reply.error["where"]["location"]) == ("ParseError", "kind")


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"kind": "python"}, "program"),
        ({"kind": "python", "ir": "x"}, "program"),
        ({"kind": "python", "ir": "x", "program": "y"}, "ir"),
        ({"kind": "ir", "program": "y"}, "ir"),
        ({"program": "y"}, "ir"),
        ({"ir": "x", "program": "y"}, "program"),
        ({"kind": "c", "ir": "x"}, "kind"),
        ({"kind": "python", "program": 1}, "program"),
        ({"kind": "python", "program": "x" * (1 << 18) + "x"}, "program"),
    ],
)
def test_requests_that_are_neither(server: Server, body: dict[str, object], where: str) -> None:
    reply = server.ask("POST", "/v1/compile", {**body, "target": "sm_80"})
    assert reply.status == 422
    assert reply.error["where"]["location"] == where


@pytest.mark.parametrize("missing", ["abi", "are_filtered_here"])
def test_without_a_wall_it_cannot_be_turned_on(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    parser = argparse.ArgumentParser()
    command.add_options(parser)
    options = parser.parse_args(["--python-input", "--workers", "1"])
    assert not parser.parse_args([]).python_input
    if CAN_CONFINE:
        settings = command.read_settings(options)
        assert settings.python
        assert settings.confined
    monkeypatch.setattr(sandbox if missing == "abi" else calls, missing, lambda: 0)
    with pytest.raises(UserError, match="cannot be confined"):
        command.read_settings(options)


def test_the_last_statement_that_says_output_is_the_place() -> None:
    with pytest.raises(UserError) as caught:
        lower_source("output = 1\nfor i in range(3):\n    (a, output) = 1, 2\nx = 4", "sm_80")
    assert str(caught.value.where) == "program:2"


def test_only_some_modules_can_be_imported() -> None:
    for name in ("os", "sys", "ctypes", "selector", "halide_bridge_", "."):
        with pytest.raises(ParseError):
            lower_source(f"from {name} import x", "sm_80")
    lower_source(BLUR.replace("import numpy as np", "import numpy.random, itertools"), "sm_90a")
