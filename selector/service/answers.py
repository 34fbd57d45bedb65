"""What the service says: a status, a media type and bytes, the same bytes for the same request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

from selector.dataclass import dataclass
from selector.diagnostics import LimitError, UserError

JSON = "application/json"
_FRESH, _CACHED = b'"cached":false}', b'"cached":true}'


@dataclass(frozen=True, slots=True)
class Answer:
    """``artifact`` is the SHA-256 of the saved kernel that the answer speaks of; ``keep``: it is
    the same whenever the request comes again; ``last``: its connection ends with it.
    """

    status: int
    body: bytes
    media: str = JSON
    artifact: str = ""
    keep: bool = False
    retry_after: int = 0
    last: bool = False

    def known(self) -> Answer:
        """The answer as it is from now on: it says that it was found."""
        if self.artifact and self.body.endswith(_FRESH):
            return replace(self, body=self.body.removesuffix(_FRESH) + _CACHED)
        return self


def encoded(data: Mapping[str, object]) -> bytes:
    """JSON as it goes over the wire."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=True).encode()


def compiled(data: Mapping[str, object], artifact: bytes) -> Answer:
    """What ``/v1/compile`` says of a kernel that was made just now."""
    sha = digest(artifact)
    body = encoded({"artifact": sha, **data, "cached": False})
    assert body.endswith(_FRESH)
    return Answer(200, body, artifact=sha, keep=True)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def mistake(error: UserError, status: int = 422, retry_after: int = 0) -> Answer:
    """The answer to a mistake. What depends on time and memory is not kept."""
    body = encoded({"error": error.as_dict()})
    keep = status == 422 and not isinstance(error, LimitError)
    return Answer(status, body, keep=keep, retry_after=retry_after)


def refusal(
    status: int, kind: str, what: str, why: str = "", hint: str = "", retry_after: int = 0
) -> Answer:
    """An error of the service itself, in the shape of all errors."""
    where = {"func": "", "stage": "", "location": "", "statement": ""}
    error = {"kind": kind, "what": what, "why": why, "hint": hint, "where": where}
    return Answer(status, encoded({"error": error}), retry_after=retry_after)


def defect(what: str, why: str) -> Answer:
    """The answer to a defect of ours."""
    hint = "this is a defect of the compiler: report it with the request"
    return refusal(500, "InternalError", what, why, hint)
