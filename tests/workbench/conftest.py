"""The bench's command line, in this process."""

from __future__ import annotations

import pytest
from workbench_command import Done, Rules

from selector.__main__ import main


@pytest.fixture
def rules(capsys: pytest.CaptureFixture[str]) -> Rules:
    """``rules("check", "a.egg")`` is ``python -m selector rules check a.egg``."""

    def run(*arguments: object) -> Done:
        code = main(["rules", *map(str, arguments)])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return Done(code, printed.out, printed.err)

    return run
