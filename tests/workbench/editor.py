"""An editor by script: what a client of ``rules lsp`` sends, and what came back."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

LONG = 60.0  # seconds; a machine under load
SOON = 0.2  # seconds in which edits and questions are answered


@dataclass
class Editor:
    """A server in a process, and its messages as they come."""

    process: subprocess.Popen[bytes] = field(init=False)
    messages: queue.Queue[Any] = field(default_factory=queue.Queue[Any])
    passed: list[Any] = field(default_factory=list[Any])
    """What came while something else was waited for."""
    number: int = 0
    version: int = 0

    def __post_init__(self) -> None:
        command = [sys.executable, "-m", "selector", "rules", "lsp", "--stdio"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        source = self.process.stdout
        assert source is not None
        while head := source.readline():
            source.readline()
            self.messages.put(json.loads(source.read(int(head.split(b":")[1]))))
        self.messages.put(None)

    def raw(self, text: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def send(self, **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.raw(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    def tell(self, method: str, **params: Any) -> None:
        self.send(method=method, params=params)

    def ask(self, method: str, **params: Any) -> Any:
        """A request's answer: its result, or the code of its error."""
        self.number += 1
        self.send(id=self.number, method=method, params=params)
        return self.answer(self.number)

    def answer(self, number: int | None) -> Any:
        found = self._wait(lambda m: "id" in m and m["id"] == number)
        return found["error"]["code"] if "error" in found else found["result"]

    def _wait(self, wanted: Any) -> Any:
        while True:
            message = self.messages.get(timeout=LONG)
            assert message is not None, "the server has ended"
            if wanted(message):
                return message
            self.passed.append(message)

    def initialized(self) -> Editor:
        self.ask("initialize", capabilities={})
        self.tell("initialized")
        return self

    def open(self, uri: str, text: str) -> None:
        self.version += 1
        document = {"uri": uri, "languageId": "egg", "version": self.version, "text": text}
        self.tell("textDocument/didOpen", textDocument=document)

    def change(self, uri: str, *texts: str) -> None:
        self.version += 1
        document = {"uri": uri, "version": self.version}
        changes = [{"text": text} for text in texts]
        self.tell("textDocument/didChange", textDocument=document, contentChanges=changes)

    def at(self, method: str, uri: str, line: int, character: int) -> Any:
        """Ask about a place, counted from 0."""
        place = {"line": line, "character": character}
        return self.ask(f"textDocument/{method}", textDocument={"uri": uri}, position=place)

    def diagnostics(self, uri: str) -> list[Any]:
        """The next that come for a document as it is since the last edit."""
        wanted = {"uri": uri, "version": self.version}
        return self._wait(lambda m: wanted.items() <= m.get("params", {}).items())["params"][
            "diagnostics"
        ]

    def settled(self, uri: str) -> list[Any]:
        """The last that come for a document since the last edit."""
        self.passed.clear()
        self._wait(lambda m: m.get("params", {}).get("message", "").endswith(" ms"))
        found = [m["params"] for m in self.passed if m.get("params", {}).get("uri") == uri]
        return found[-1]["diagnostics"] if found else []

    def logged(self, text: str) -> None:
        """Wait for a line of the log."""
        self._wait(lambda m: text in m.get("params", {}).get("message", ""))

    def end(self) -> int:
        """Shut down; the exit code."""
        self.ask("shutdown")
        self.tell("exit")
        return self.process.wait(LONG)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(LONG)


def timed(job: Any) -> float:
    """The seconds that it takes."""
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def edits(text: str) -> dict[str, str]:
    """Edits of a rule file: of a rule, a rule that is wrong, a declaration more."""
    wrong = '\n; a -> a\n(rewrite (Rump a) a :ruleset axioms :name "wrong")\n'
    rule = "(rewrite (" if "(rewrite (" in text else "(rule ("
    return {
        "rule": text.replace(rule, rule.replace(" ", "  "), 1),
        "wrong": text + wrong,
        "added": f"{text}\n(relation added (Expr))\n",
    }
