"""Programs in Python that want more than to compute: none gets it, and none harms the next one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from escapes import ATTEMPTS, FLOODS, program
from service_tools import ROOT

pytest.importorskip("halide", reason="extra `compile`")

from halide_bridge import confined
from halide_bridge.source import lower_source
from selector.diagnostics import LimitError, ParseError, UserError
from selector.service import calls, sandbox
from selector.service.programs import Programs

pytestmark = [
    pytest.mark.verified,
    pytest.mark.skipif(
        sandbox.abi() < 1 or not calls.are_filtered_here(), reason="this kernel cannot confine"
    ),
]
SECONDS = 4.0


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    before = os.environ.copy()
    os.environ.update({"PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "SECRET": "word"})
    try:
        found = Programs.start(SECONDS, 512 << 20)
    finally:
        os.environ.clear()
        os.environ.update(before)
    yield found
    found.requests.close()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    found = tmp_path / "tokens"
    found.write_text("a token\n")
    return found


def refusal(programs: Programs, text: str) -> UserError:
    with pytest.raises(UserError) as caught:
        programs.lower(text.encode(), "sm_80")
    return caught.value


@pytest.mark.parametrize("name", ATTEMPTS)
def test_an_attempt(programs: Programs, secret: Path, name: str) -> None:
    made = secret.parent / "made"
    error = refusal(programs, program(ATTEMPTS[name], str(secret), str(made)))
    assert "Escaped" not in error.what
    assert "a token" not in str(error)
    assert not made.exists()


@pytest.mark.parametrize("name", ATTEMPTS)
def test_without_the_wall_it_succeeds(
    monkeypatch: pytest.MonkeyPatch, secret: Path, name: str
) -> None:
    """What is attempted is possible, but for the wall."""
    monkeypatch.setattr(calls, "allow_only_computing", lambda: None)
    monkeypatch.setattr(confined.resource, "setrlimit", lambda *_: None)
    text = program(ATTEMPTS[name], str(secret), str(secret.parent / "made"))
    found = confined.perform(lambda: confined._lowered(text.encode(), "sm_80"), 60.0)
    assert b"Escaped" in found.body


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood(programs: Programs, name: str) -> None:
    text, said = FLOODS[name]
    error = refusal(programs, program(text))
    assert re.search(said, error.what), error.what
    # What depends on time is a LimitError, which nobody keeps.
    assert isinstance(error, LimitError) or said != "longer than"
    assert not lower_errors_differ(programs)


def lower_errors_differ(programs: Programs) -> bool:
    """Whether the next program has another answer than in a process of its own."""
    return programs.lower(confined._SAMPLE.encode(), "sm_80") != str(
        lower_source(confined._SAMPLE, "sm_80")
    )


def test_the_environment_is_empty(programs: Programs) -> None:
    text = "if os.environ or libc.getenv(b'SECRET') or libc.getenv(b'PATH'): escaped()\n1 / 0"
    assert "ZeroDivisionError" in refusal(programs, program(text)).what


def test_a_program_knows_nothing_of_the_one_before(programs: Programs) -> None:
    leave = "import halide_bridge, math\nhalide_bridge.left = math.left = 1\n1 / 0"
    look = "import halide_bridge, math\nprint(halide_bridge.left)"
    assert "ZeroDivisionError" in refusal(programs, leave).what
    assert "AttributeError" in refusal(programs, look).what


def test_a_forged_answer_is_data(programs: Programs) -> None:
    """A program may say what it likes, of itself."""
    for event, body, expected in (
        ("lowered", b"module forged", "module forged"),
        ("lowered", b"\xff\xfe", None),
        ("held", b"", None),
        ("mistake", b"{}", None),
        (
            "mistake",
            b'{"kind": "InternalError", "what": 1, "why": [], "hint": {}, "where": 5}',
            None,
        ),
        ("mistake", b"[" * 100_000, None),
    ):
        header = b'{"event":"%s"}' % event.encode()
        frame = b"".join(n.to_bytes(4, "big") for n in (len(header), len(body), 0)) + header + body
        forge = f"""
for n in range(3, 40):
    try: os.write(n, {frame!r})
    except OSError: pass
os._exit(0)
""".replace("{", "{{").replace("}", "}}")
        if expected is not None:
            assert programs.lower(program(forge).encode(), "sm_80") == expected
        else:
            assert isinstance(refusal(programs, program(forge)), ParseError)


def test_the_wall_is_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is not confined is not used: with any call more, the trial fails."""
    held = confined.perform(confined._tried, SECONDS)
    assert held.header == {"event": "held"}
    for name, number in (("openat", 257), ("socket", 41), ("clone", 56), ("execve", 59)):
        with monkeypatch.context() as patch:
            patch.setitem(calls._ALLOWED, name, number)
            assert confined.perform(confined._tried, SECONDS).header["event"] != "held", name


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_the_numbers_are_those_of_the_system() -> None:
    numbers = {**calls._ALLOWED, **calls._MAPPING}
    text = "#include <sys/syscall.h>\n" + "\n".join(f'"{name}" SYS_{name}' for name in numbers)
    command = ["gcc", "-E", "-P", "-xc", "-"]
    done = subprocess.run(command, input=text, check=True, capture_output=True, text=True)
    assert {n: int(v) for n, v in re.findall(r'^"(\w+)" (\d+)$', done.stdout, re.M)} == numbers
