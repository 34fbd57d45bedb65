"""What a worker says of requests that end in something else than an answer."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from io import BytesIO

import pytest
from service_tools import CONV

from selector.service import frames, jobs, worker
from selector.service.answers import Answer
from selector.service.frames import Frame

pytestmark = pytest.mark.verified

BODY = json.dumps({"ir": CONV, "target": "sm_80"}).encode()


def said(monkeypatch: pytest.MonkeyPatch, perform: Callable[..., object], body: bytes) -> Frame:
    """The last message to a request."""
    monkeypatch.setattr(jobs, "perform", perform)
    answers = BytesIO()
    worker._serve(Frame({"kind": "compile"}, body), answers)
    answers.seek(0)
    last = None
    while (found := frames.read(answers)) is not None:
        last = found
    assert last is not None
    return last


def test_an_answer_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Answer(200, bytes(worker.LARGEST_ANSWER), keep=True)
    last = said(monkeypatch, lambda *_: (made, b"x"), BODY)
    assert last.header["status"] == 422
    assert json.loads(last.body)["error"]["what"] == "the answer has more than 31 MiB"
    assert not last.header["keep"]


def test_a_request_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> object:
        raise MemoryError

    last = said(monkeypatch, full, BODY)
    assert (last.header["status"], last.header["keep"]) == (422, False)
    assert "more memory than it is given" in json.loads(last.body)["error"]["what"]


@pytest.mark.parametrize(("code", "status"), [(errno.ENOSPC, 507), (errno.EBADF, 500)])
def test_a_disk_without_room_is_no_defect(
    monkeypatch: pytest.MonkeyPatch, code: int, status: int
) -> None:
    """A stage that writes a file, as for the disassembler, on a disk that others have filled."""

    def compile_program(*_: object) -> object:
        raise OSError(code, os.strerror(code))

    monkeypatch.setitem(jobs._JOBS, "compile", compile_program)
    last = said(monkeypatch, jobs.perform, BODY)
    assert (last.header["status"], last.header["keep"]) == (status, False)


@pytest.mark.parametrize(("rules", "status"), [("", 500), ("(ruleset a)", 422)])
def test_a_panic(monkeypatch: pytest.MonkeyPatch, rules: str, status: int) -> None:
    """Of the rule engine: it is no Exception. With rules of the request, these are to blame."""

    def panic(*_: object) -> object:
        raise BaseException("index out of bounds")

    body = json.dumps({"ir": CONV, "target": "sm_80", "rules": rules}).encode()
    assert said(monkeypatch, panic, body).header["status"] == status


def test_stages_say_whether_there_are_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    def stage(_: str, request: dict[str, object], watch: Callable[[str], None]) -> object:
        watch("read")
        raise MemoryError

    for rules in ("", "(ruleset a)"):
        written: list[Frame] = []
        monkeypatch.setattr(frames, "write", lambda _, frame, to=written: to.append(frame))
        monkeypatch.setattr(jobs, "perform", stage)
        body = json.dumps({"ir": CONV, "target": "sm_80", "rules": rules}).encode()
        worker._serve(Frame({"kind": "compile"}, body), BytesIO())
        assert written[0].header == {"event": "stage", "stage": "read", "rules": bool(rules)}
