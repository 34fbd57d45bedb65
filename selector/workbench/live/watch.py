"""``rules watch``: says what is wrong each time a rule file or a test is saved."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from selector.dataclass import dataclass
from selector.diagnostics import UserError
from selector.workbench.live.book import RULES_FOLDER, shown_as
from selector.workbench.live.checking import Checker, Checks
from selector.workbench.source import read_text

LOOK = 0.05
"""Seconds between two looks at the files."""


def never_ends() -> bool:
    return True


def watch(
    paths: Sequence[str], say: Callable[[str], None], looks: Callable[[], bool] = never_ends
) -> int:
    """Check the files named, or the package's rules and tests, and again when one changes, until
    ``looks`` says so or an interrupt comes; the exit code of what was said last. ``UserError`` for
    a file that is not there."""
    for path in paths:
        if not Path(path).is_file():
            why = "it is a folder" if Path(path).is_dir() else "there is no such file"
            hint = "name .egg files; without any, the rules and tests of the package are watched"
            raise UserError(f"cannot watch {path}", why, hint)
    watching = Watching(tuple(Path(p) for p in paths), say)
    checks: Checks | None = None
    try:
        while looks():
            if watching.look():
                if checks is not None:
                    checks.close()
                checks = watching.checker.check()
            checks = watching.go_on(checks)
    except KeyboardInterrupt:
        pass
    finally:
        if checks is not None:
            checks.close()
    return watching.code


@dataclass
class Watching:
    """The files, what they held when they were last looked at, and the checks of that."""

    named: tuple[Path, ...]
    say: Callable[[str], None]
    checker: Checker = field(default_factory=Checker)
    seen: Mapping[Path, str | UserError] = field(default_factory=dict[Path, str | UserError])
    code: int = 0

    def look(self) -> bool:
        """Take what has changed, and say which files that are; whether there were any."""
        rules = (*RULES_FOLDER.glob("*.egg"), *RULES_FOLDER.glob("tests/*.egg"))
        before = self.seen
        self.seen = {file: _text(file) for file in self.named or sorted(rules)}
        changed: list[str] = []
        for file in dict.fromkeys((*before, *self.seen)):
            old, new = before.get(file), self.seen.get(file)
            if str(old) == str(new) and type(old) is type(new):
                continue
            if isinstance(new, str):
                self.checker.book.open(shown_as(str(file)), new)
                changed.append(file.name)
            else:
                self.checker.book.close(shown_as(str(file)))
                changed.append(f"{file.name} ({'gone' if new is None else new.why})")
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            self.say(f"-- {', '.join(changed[:3])}{more}")
        return bool(changed)

    def go_on(self, checks: Checks | None) -> Checks | None:
        """A piece of the checks, or a pause; what is left of them."""
        standing = None
        try:
            standing = next(checks) if checks is not None else time.sleep(LOOK)
        except StopIteration:
            return None
        if standing is not None:
            self.code = standing.code
            self.say("\n".join([*map(str, standing.findings), standing.summary]))
        return checks


def _text(file: Path) -> str | UserError:
    """What a file holds, or why it cannot be read."""
    try:
        return read_text(file)
    except UserError as error:
        return error
