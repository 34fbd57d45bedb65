"""The rule files and tests as they are now: those that come with the package, and what is open.

A file that is open stands for the one of its name, as in ``rules check FILE``: a file of tests for
the tests, any other for the rules. All others are added. What a file is, its content says.
"""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from rules import rule_files, test_files
from selector.dataclass import dataclass
from selector.workbench.cases import Case, has_header
from selector.workbench.files import split, with_standard
from selector.workbench.ruleset import RuleFiles

RULES_FOLDER = Path(str(files("rules")))


@lru_cache(maxsize=256)
def parted(text: str, file: str) -> tuple[str, tuple[Case, ...]]:
    """The rules of a file and its tests; ``ParseError`` if it is no egglog text."""
    return split(text, file)


def shown_as(path: str) -> str:
    """The name that findings have for a file: as in the source tree for one that comes with the
    package."""
    inside = Path(path)
    if inside.is_relative_to(RULES_FOLDER):
        return f"rules/{inside.relative_to(RULES_FOLDER).as_posix()}"
    return path


@dataclass
class Book:
    """Open texts by the name of their file, with an editor's numbers of them, over the files of the
    package."""

    texts: dict[str, str] = field(default_factory=dict[str, str])
    versions: dict[str, int] = field(default_factory=dict[str, int])

    def copy(self) -> Book:
        """What is open now."""
        return Book(dict(self.texts), dict(self.versions))

    def open(self, file: str, text: str, version: int = 0) -> None:
        self.texts[file], self.versions[file] = text, version

    def close(self, file: str) -> None:
        self.texts.pop(file, None)

    def text(self, file: str) -> str:
        """What a file holds; empty for one that is not here."""
        return self.texts[file] if file in self.texts else self._packaged().get(file, "")

    @staticmethod
    def _packaged() -> dict[str, str]:
        return {
            **{f"rules/{name}": text for name, text in rule_files()},
            **{f"rules/tests/{name}": text for name, text in test_files()},
        }

    def rules(self) -> RuleFiles:
        """The rule files in the order in which they load."""
        own = ((file, parted(text, file)[0]) for file, text in self.texts.items())
        return with_standard(tuple((file, text) for file, text in own if text))

    def cases(self) -> tuple[Case, ...]:
        """All tests: of the package's files those that are not open."""
        own = [parted(text, file)[1] for file, text in self.texts.items()]
        taken = {Path(file).name for file, text in self.texts.items() if has_header(text)}
        rest = [
            parted(text, f"rules/tests/{name}")[1]
            for name, text in test_files()
            if name not in taken
        ]
        return tuple(case for cases in (*own, *rest) for case in cases)

    def documents(self) -> tuple[tuple[str, str], ...]:
        """(file, text) of every file that is open, and of the package's that none stands for."""
        taken = {(has_header(text), Path(file).name) for file, text in self.texts.items()}
        rest = [
            (file, text)
            for file, text in self._packaged().items()
            if (has_header(text), Path(file).name) not in taken and file not in self.texts
        ]
        return (*self.texts.items(), *rest)
