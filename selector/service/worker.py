"""A worker process: rules preloaded, one request after the other, messages over a pipe.

    python -m selector.service.worker '{"parent": 1, "memory": 1073741824, "scratch": "/...", ..}'

It is ended from outside when a request takes too long or too much; what it holds is worth nothing.
Standard output is for messages alone: whatever else writes there goes to the error output.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import tempfile
from typing import Any, BinaryIO

from selector.diagnostics import LimitError, ParseError, UserError
from selector.service import frames, sandbox
from selector.service.answers import Answer, defect, mistake
from selector.service.frames import Frame
from selector.service.programs import Programs
from selector.service.requests import read_request
from selector.targets import find_target

LARGEST_FILE = 64 << 20
LARGEST_ANSWER = frames.LONGEST - (1 << 20)


def main(options: dict[str, Any]) -> None:
    sandbox.end_with_parent(int(options["parent"]))
    # A signal to stop goes to all processes of a terminal or a service: the server ends its workers
    # when they have answered.
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.SIG_IGN)
    os.nice(int(options["nice"]))
    requests, answers = frames.standard_pipes()
    tempfile.tempdir = str(options["scratch"])
    from selector.service import jobs

    # It confines itself, more than this process does.
    programs = Programs.start(*options["python"]) if options["python"] else None
    jobs.preload()
    sandbox.limit(int(options["memory"]), LARGEST_FILE)
    confined = sandbox.confine((*sandbox.installation(), *sandbox.SYSTEM), str(options["scratch"]))
    frames.write(answers, Frame({"event": "ready", "confined": confined}))
    while (request := frames.read(requests)) is not None:
        healthy = _serve(request, answers, programs)
        if not healthy:
            break


def _serve(request: Frame, answers: BinaryIO, programs: Programs | None = None) -> bool:
    """Answer one request, in Python if there are ``programs``; whether the process can go on."""
    from selector.service import jobs

    rules = False

    def watch(stage: str) -> None:
        frames.write(answers, Frame({"event": "stage", "stage": stage, "rules": rules}))

    healthy = True
    try:
        fields = read_request(str(request.header["kind"]), request.body)
        rules = bool(fields["rules"])
        if fields["kind"] != "ir":
            watch("python")
            fields["ir"] = _lowered(fields, programs)
        answer, artifact = jobs.perform(str(request.header["kind"]), fields, watch)
    except UserError as error:
        answer, artifact = mistake(error), b""
    except MemoryError:
        answer, artifact = (
            mistake(LimitError("the request takes more memory than it is given")),
            b"",
        )
    except BaseException as error:  # a panic of the rule engine is no Exception
        answer, artifact = _panicked(rules, error), b""
        healthy = False
    if len(answer.body) + len(artifact) > LARGEST_ANSWER:
        what = f"the answer has more than {LARGEST_ANSWER >> 20} MiB"
        answer, artifact = mistake(LimitError(what, hint="ask for less of it")), b""
    header = {
        "event": "answer",
        "status": answer.status,
        "media": answer.media,
        "artifact": answer.artifact,
        "keep": answer.keep,
    }
    frames.write(answers, Frame(header, answer.body, artifact))
    return healthy


def _lowered(fields: dict[str, Any], programs: Programs | None) -> str:
    if programs is None:
        what, hint = (
            "this service takes no Python",
            "send `str(halide_bridge.lower(output))` as `ir`",
        )
        raise ParseError(what, hint=hint, where="kind")
    target, serialized = find_target(fields["target"]).name, fields["kind"] == "hlpipe"
    data = _decoded(fields["program"]) if serialized else fields["program"].encode()
    return programs.lower(data, target, fields["schedule"], serialized=serialized)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ParseError("the program is no base64", str(error), where="program") from None


def _panicked(rules: bool, error: BaseException) -> Answer:
    if rules:
        return mistake(ParseError("these rules stop the rule engine", str(error)[:2000]))
    print(f"panic: {error}", file=sys.stderr, flush=True)
    return defect("the compiler stopped", f"{type(error).__name__}: {error}"[:2000])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
