"""``rules lsp``: a language server for rule files, on standard input and output.

It has diagnostics, hover and definition. The main thread reads messages and answers from texts
alone; a second one checks what is open (a graph of egglog belongs to its thread, and egglog lets
others run), and leaves a check that an edit has made out of date.
"""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import field
from enum import Enum
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO
from urllib.parse import quote, unquote, urlsplit

from selector.dataclass import dataclass
from selector.diagnostics import ParseError
from selector.workbench.live.book import RULES_FOLDER, Book, shown_as
from selector.workbench.live.checking import Checker, Finding, Severity, Standing
from selector.workbench.live.names import Named, Names, declared, described
from selector.workbench.live.protocol import (
    INTERNAL,
    INVALID_PARAMS,
    INVALID_REQUEST,
    NO_METHOD,
    NOT_INITIALIZED,
    Json,
    ProtocolError,
    from_wire,
    line_of,
    read_message,
    span_to_wire,
    write_message,
)

CAPABILITIES: Json = {
    "textDocumentSync": {"openClose": True, "change": 1},  # 1: whole documents
    "hoverProvider": True,
    "definitionProvider": True,
}
_SEVERITY = {Severity.ERROR: 1, Severity.WARNING: 2, Severity.NOTE: 3}
_ERROR, _LOG = 1, 4
"""Types of a message for the log."""
_PATIENCE = 1.0
"""Seconds that a check has to end in when the server does."""


class State(Enum):
    """Where a session is."""

    NEW = "not initialized"
    READY = "ready"
    STOPPED = "shut down"


@dataclass
class Server:
    """One session with an editor."""

    source: BinaryIO
    sink: BinaryIO
    state: State = State.NEW
    book: Book = field(default_factory=Book)
    uris: dict[str, str] = field(default_factory=dict[str, str])
    """Of every document that was open, by the name of its file."""
    shown: set[str] = field(default_factory=set[str])
    """The documents that have diagnostics; of the thread that checks."""
    edits: SimpleQueue[Book | None] = field(default_factory=SimpleQueue[Book | None])
    """What is open, after each edit; None at the end."""

    def __post_init__(self) -> None:
        self._writing = threading.Lock()
        self._checks = threading.Thread(target=self._check, name="checks", daemon=True)

    def run(self) -> int:
        """Serve until ``exit``; 0 if ``shutdown`` was asked for first."""
        self._checks.start()
        try:
            while True:
                try:
                    message = read_message(self.source)
                except ProtocolError as error:
                    self._send(id=None, error={"code": error.code, "message": str(error)})
                    if error.fatal:
                        return 1
                    continue
                if message is None or message.get("method") == "exit":
                    return 0 if self.state is State.STOPPED else 1
                self._handle(message)
        except (OSError, KeyboardInterrupt):  # the editor is gone
            return 1
        finally:
            self.edits.put(None)
            self._checks.join(_PATIENCE)

    def _send(self, **message: Any) -> None:
        with self._writing:
            write_message(self.sink, message)

    def _log(self, kind: int, text: str) -> None:
        self._send(method="window/logMessage", params={"type": kind, "message": text})

    # Messages

    def _handle(self, message: Json) -> None:
        if "method" not in message and ("result" in message or "error" in message):
            return  # an answer; nothing is asked
        asked = "id" in message or "method" not in message
        try:
            answer: Json = {"result": self._answer(message.get("method"), message.get("params"))}
        except ProtocolError as error:
            if not asked and error.code in (INVALID_PARAMS, INTERNAL):
                self._log(_ERROR, f"{message.get('method')}: {error}")
            answer = {"error": {"code": error.code, "message": str(error)}}
        if asked:
            self._send(id=message.get("id"), **answer)

    def _answer(self, method: object, params: Any) -> object:
        if not isinstance(method, str):
            raise ProtocolError(INVALID_REQUEST, "a method is a string")
        if self.state is State.NEW and method != "initialize":
            raise ProtocolError(NOT_INITIALIZED, f"{method} before initialize")
        if self.state is State.STOPPED:
            raise ProtocolError(INVALID_REQUEST, f"{method} after shutdown")
        run = {
            "initialize": self._initialize,
            "shutdown": self._shutdown,
            "textDocument/didOpen": self._opened,
            "textDocument/didChange": self._changed,
            "textDocument/didClose": self._closed,
            "textDocument/hover": self._hover,
            "textDocument/definition": self._definition,
        }.get(method)
        if run is None:
            raise ProtocolError(NO_METHOD, f"there is no method {method}")
        try:
            return run(params)
        except ProtocolError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"parameters that are not right: {type(error).__name__}: {error}"
            raise ProtocolError(INVALID_PARAMS, why) from None
        except Exception as error:
            raise ProtocolError(INTERNAL, f"{type(error).__name__}: {error}") from error

    def _initialize(self, params: Json) -> Json:
        if self.state is State.READY:
            raise ProtocolError(INVALID_REQUEST, "a second initialize")
        self.state = State.READY
        return {"capabilities": CAPABILITIES, "serverInfo": {"name": "tensor-selector rules"}}

    def _shutdown(self, params: Json) -> None:
        self.state = State.STOPPED
        self.edits.put(None)

    # Documents

    def _file(self, params: Json) -> str:
        return shown_as(unquote(urlsplit(params["textDocument"]["uri"]).path))

    def _opened(self, params: Json) -> None:
        file, document = self._file(params), params["textDocument"]
        self.uris[file] = document["uri"]
        self._take(file, document["text"], document["version"])

    def _changed(self, params: Json) -> None:
        file, changes = self._file(params), params["contentChanges"]
        if file not in self.book.texts:
            raise ValueError(f"{file} is not open")
        if changes:
            self._take(file, changes[-1]["text"], params["textDocument"]["version"])

    def _take(self, file: str, text: object, version: int) -> None:
        if not isinstance(text, str):
            raise TypeError("a text is a string")
        self.book.open(file, text, version)
        self.edits.put(self.book.copy())

    def _closed(self, params: Json) -> None:
        self.book.close(self._file(params))
        self.edits.put(self.book.copy())

    def _uri(self, file: str) -> str:
        if file in self.uris:
            return self.uris[file]
        path = RULES_FOLDER / file.removeprefix("rules/") if file.startswith("rules/") else file
        return f"file://{quote(str(Path(path).absolute()))}"

    # Diagnostics, in the thread that checks

    def _check(self) -> None:
        try:
            self._check_edits()
        except OSError:
            return  # the editor is gone
        except BaseException as error:  # a panic of egglog is no Exception
            self._log(_ERROR, f"nothing is checked any more: {type(error).__name__}: {error}")
            raise

    def _check_edits(self) -> None:
        checker = Checker(lambda: not self.edits.empty())
        while True:
            book = self.edits.get()
            while book is not None and not self.edits.empty():
                book = self.edits.get()
            if book is None:
                return
            checker.book = book
            with closing(checker.check()) as checks:
                for standing in checks:
                    if standing is not None:
                        self._publish(book, standing)
                    if not self.edits.empty():
                        break

    def _publish(self, book: Book, standing: Standing) -> None:
        by_file: dict[str, list[Json]] = {file: [] for file in (*book.texts, *self.shown)}
        for finding in standing.findings:
            found = by_file.setdefault(finding.problem.file, [])
            found.append(_diagnostic(book.text(finding.problem.file), finding))
        self.shown = {file for file, found in by_file.items() if found}
        for file, found in by_file.items():
            params: Json = {"uri": self._uri(file), "diagnostics": found}
            if file in book.texts:
                params["version"] = book.versions[file]
            self._send(method="textDocument/publishDiagnostics", params=params)
        self._log(_LOG, standing.summary)

    # Questions

    def _named(self, params: Json) -> Named | None:
        """What is named at a place, by all files that can be read."""
        text = self.book.text(self._file(params))
        line, column = from_wire(text, params["position"])
        found: list[tuple[str, str]] = []
        for file, other in self.book.documents():
            try:
                declared(other, file)
            except ParseError:
                continue
            found.append((file, other))
        return Names.of(found).at(line_of(text, line), column)

    def _hover(self, params: Json) -> Json | None:
        named = self._named(params)
        if named is None:
            return None
        return {"contents": {"kind": "markdown", "value": described(named)}}

    def _definition(self, params: Json) -> Json | None:
        named = self._named(params)
        if named is None:
            return None
        text = self.book.text(named.file)
        place = span_to_wire(text, named.line, named.column, len(named.name))
        return {"uri": self._uri(named.file), "range": place}


def _diagnostic(text: str, finding: Finding) -> Json:
    problem = finding.problem
    marked = problem.shown.splitlines()[-1].count("^") if problem.shown else 1
    return {
        "range": span_to_wire(text, problem.line, problem.column, max(1, marked)),
        "severity": _SEVERITY[finding.severity],
        "source": "rules",
        "message": "\n".join((problem.what, *(d for d in problem.details if d))),
        **({"code": problem.rule} if problem.rule else {}),
    }
