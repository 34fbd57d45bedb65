"""What a user is told: errors with a cause, a place and a way out.

``UserError`` is for mistakes of the user; anything else that escapes is a defect of ours. Both
print without a traceback of our insides on the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from selector.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Where:
    """A place in the user's program: Func, stage, ``file:line``, and the statement in the text
    form.
    """

    func: str = ""
    stage: str = ""
    location: str = ""
    statement: str = ""

    def __str__(self) -> str:
        parts = [f"in `{self.func}`" if self.func else "", self.stage, self.location]
        head = ", ".join(p for p in parts if p)
        return f"{head}\n    {self.statement}" if self.statement else head


class UserError(Exception):
    """A mistake that the user can mend: ``what`` went wrong, ``why``, a ``hint`` towards the way
    out.
    """

    def __init__(
        self, what: str, why: str = "", hint: str = "", where: Where | str | None = None
    ) -> None:
        self.what, self.why, self.hint = what, why, hint
        self.where = Where(location=where) if isinstance(where, str) else where
        super().__init__(self.what)

    def __str__(self) -> str:
        lines = [self.what]
        if self.where is not None and str(self.where):
            lines.append(f"  where: {self.where}")
        if self.why:
            lines.append(f"  why:   {self.why}")
        if self.hint:
            lines.append(f"  hint:  {self.hint}")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, object]:
        """The error as data, for JSON."""
        where = self.where or Where()
        return {
            "kind": type(self).__name__,
            "what": self.what,
            "why": self.why,
            "hint": self.hint,
            "where": {
                "func": where.func,
                "stage": where.stage,
                "location": where.location,
                "statement": where.statement,
            },
        }


class ScheduleError(UserError):
    """The schedule cannot be lowered or mapped onto the target."""


class SelectionError(UserError):
    """A statement that was asked onto a tensor unit cannot go there."""


class ParseError(UserError):
    """Text that is not a program, a rule file or a type."""


class TargetError(UserError):
    """An unknown target, or one that this machine cannot run."""


class ArgumentError(UserError):
    """A kernel called with arrays that do not fit."""


class ArtifactError(UserError):
    """A saved kernel that cannot be read."""


class EmitError(UserError):
    """A construct that has no form in the target's language."""


class LimitError(UserError):
    """A program that takes more time or memory than it is given."""


class ServiceError(UserError):
    """A compile service that cannot be reached, refuses, or answers what it must not."""


def as_error(data: Mapping[str, Any]) -> UserError:
    """The inverse of ``as_dict``, plain ``UserError`` for kinds that are not ours; KeyError or
    TypeError for what is no error.
    """
    kind = globals().get(str(data["kind"]))
    if not (isinstance(kind, type) and issubclass(kind, UserError)):
        kind = UserError
    what, why, hint = (str(data[k]) for k in ("what", "why", "hint"))
    places = ("func", "stage", "location", "statement")
    return kind(what, why, hint, Where(*(str(data["where"][k]) for k in places)))


class PerformanceWarning(UserWarning):
    """A kernel that is right, and much slower than another schedule would make it."""


class InternalError(Exception):
    """A defect of this package, with what is needed to report it."""
