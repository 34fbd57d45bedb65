"""The client of a compile service: the standard library alone.

    kernel = hb.compile(output, target="sm_80", service="http://127.0.0.1:8080")

The program is lowered here and compiled there; what comes back is checked (its hash, its target,
its own hashes) before it becomes a kernel. A service that is busy, or away for a moment, is asked
again after growing pauses.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Mapping
from dataclasses import field
from typing import Any
from urllib.parse import unquote, urlsplit

from selector.dataclass import dataclass
from selector.diagnostics import ServiceError, UserError, as_error
from selector.ir.module import Module
from selector.runtime import artifact as artifacts
from selector.runtime.artifact import Artifact

LARGEST = 256 << 20
"""Bytes of an answer that are read."""
_AGAIN = (408, 429, 500, 502, 503, 504, 507)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0
_AWAY = "start one with `python -m selector serve`, or leave out service= to compile here"


@dataclass(frozen=True, slots=True)
class Reply:
    """A status, the value of Retry-After in seconds (0: none), and the body."""

    status: int
    retry_after: float
    body: bytes


@dataclass(frozen=True)
class Service:
    """A compile service by its address, ``http://host:port`` or ``https://...``.

    ``token`` is what the service wants to see (also ``http://:TOKEN@host:port``). ``timeout`` is in
    seconds for everything, the pauses between attempts included; ``attempts`` the most requests
    that are sent for one question.
    """

    url: str
    token: str = field(default="", repr=False)
    timeout: float = 120.0
    attempts: int = 6

    def __post_init__(self) -> None:
        """``ServiceError`` for what is no address."""
        try:
            parts = urlsplit(self.url)
            port = parts.port
        except ValueError as error:
            raise ServiceError(f"{self.url!r} is no address of a service", str(error)) from None
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
            raise ServiceError(
                f"{self.url!r} is no address of a service", hint="such as http://127.0.0.1:8080"
            )

    def compile(
        self,
        module: Module,
        target: str,
        strict: bool = True,
        instructions: tuple[str, ...] | None = None,
    ) -> Artifact:
        """Compile a module. The errors are those of compiling here, and ``ServiceError``."""
        from selector.ir.serialize import dumps

        only = None if instructions is None else list(instructions)
        request = {"ir": dumps(module), "target": target, "strict": strict, "instructions": only}
        body = json.dumps(request).encode()
        deadline = time.monotonic() + self.timeout
        for last in (False, True):
            sha = self._name(self._ask("POST", "/v1/compile", body, deadline))
            reply = self._ask("GET", f"/v1/artifacts/{sha}", b"", deadline)
            if reply.status != 404 or last:
                break  # 404: it was removed in between, so ask for it anew
        if reply.status != 200 or hashlib.sha256(reply.body).hexdigest() != sha:
            raise self._nonsense("the artifact is not the one that was announced")
        found = artifacts.from_bytes(reply.body, f"the artifact of {self._shown}")
        if found.plan.target != target:
            raise self._nonsense(f"a kernel for {found.plan.target}, and {target} was asked for")
        return found

    def _name(self, reply: Reply) -> str:
        """The hash of the kernel in an answer of ``/v1/compile``."""
        data = self._object(reply)
        if reply.status != 200:
            raise self._refused(reply.status, data)
        sha = data.get("artifact")
        if not isinstance(sha, str) or len(sha) != 64 or not sha.isalnum():
            raise self._nonsense("an answer without an artifact")
        return sha

    def _ask(self, method: str, path: str, body: bytes, deadline: float) -> Reply:
        """Send a request until it is answered with something else than "later"."""
        pause = _FIRST_PAUSE
        reply: Reply | str = "no attempt is allowed"
        for attempt in range(1, self.attempts + 1):
            reply = self._try(method, path, body, deadline)
            after = reply.retry_after if isinstance(reply, Reply) else 0.0
            if isinstance(reply, Reply) and reply.status not in _AGAIN:
                return reply
            wait = min(_LONGEST_PAUSE, max(after, pause * random.uniform(0.5, 1.0)))
            if attempt >= self.attempts or time.monotonic() + wait >= deadline:
                break
            time.sleep(wait)
            pause *= 2
        if isinstance(reply, Reply):
            return reply
        raise self._away(reply)

    def _try(self, method: str, path: str, body: bytes, deadline: float) -> Reply | str:
        """One attempt: the reply, or why there is none."""
        import http.client  # these two take longer than a kernel from the cache
        import ssl

        try:
            return self._send(method, path, body, deadline)
        except ssl.SSLError as error:
            raise self._away(str(error)) from error
        except (OSError, http.client.HTTPException) as error:
            return str(error) or type(error).__name__

    def _send(self, method: str, path: str, body: bytes, deadline: float) -> Reply:
        import http.client

        parts = urlsplit(self.url)
        assert parts.hostname is not None
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no answer within {self.timeout:g} s")
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        connection = kind(parts.hostname, parts.port, timeout=left)
        try:
            connection.request(method, parts.path.rstrip("/") + path, body, self._headers())
            reply = connection.getresponse()
            data = reply.read(LARGEST + 1)
            if len(data) > LARGEST:
                raise self._nonsense("an answer that does not end")
            after = reply.getheader("Retry-After", "")
            return Reply(reply.status, float(after) if after.isdigit() else 0.0, data)
        finally:
            connection.close()

    def _headers(self) -> dict[str, str]:
        token = self.token or unquote(urlsplit(self.url).password or "")
        headers = {"Content-Type": "application/json", "Accept": "application/json, */*"}
        return headers | ({"Authorization": f"Bearer {token}"} if token else {})

    def _object(self, reply: Reply) -> dict[str, Any]:
        try:
            data = json.loads(reply.body)
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, dict):
            raise self._nonsense(f"status {reply.status} and no JSON object")
        return dict(data)  # pyright: ignore[reportUnknownArgumentType]

    def _refused(self, status: int, data: Mapping[str, Any]) -> UserError:
        """The error that the service speaks of, as the same kind of error here."""
        try:
            error = as_error(data["error"])
        except (KeyError, TypeError):
            return self._nonsense(f"status {status} and no error")
        if status == 422:
            return error
        what = f"the service at {self._shown} answers {status}: {error.what}"
        return ServiceError(what, error.why, error.hint, error.where)

    def _nonsense(self, why: str) -> ServiceError:
        hint = "is it a compile service, of this version?"
        return ServiceError(f"the service at {self._shown} answers nonsense", why, hint)

    def _away(self, why: str) -> ServiceError:
        return ServiceError(f"the service at {self._shown} cannot be reached", why, _AWAY)

    @property
    def _shown(self) -> str:
        """The address without a token."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def as_service(service: str | Service) -> Service:
    """A service by its address."""
    if isinstance(service, Service):
        return service
    if not isinstance(service, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ServiceError(f"service={service!r} is no address", hint="http://127.0.0.1:8080")
    return Service(service)
