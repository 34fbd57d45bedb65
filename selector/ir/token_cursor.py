"""A cursor over the tokens of the text form: operators and keywords, names, counts, types."""

from __future__ import annotations

from typing import NoReturn

from selector.diagnostics import ParseError
from selector.ir.forms import MAX_LANES
from selector.ir.lexer import Source, Token
from selector.ir.lexicon import TYPE, unquote
from selector.ir.types import Type


class TokenCursor:
    """Where a parser is in a text; what is read steps over it. Raises ``ParseError`` with the place
    of the token that is not the expected one.
    """

    def __init__(self, source: Source) -> None:
        self.source, self.tokens, self.at = source, source.tokens(), 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def error(self, token: Token, what: str, why: str = "", hint: str = "") -> ParseError:
        return self.source.error(token.start, what, why, hint)

    def expected(self, what: str) -> NoReturn:
        found = f"`{self.token.text}`" if self.token.text else "the end of the text"
        raise self.error(self.token, f"expected {what}, found {found}")

    def take(self, text: str) -> Token:
        """The next token, which must be this operator or keyword."""
        token = self.token
        if token.text != text or token.kind in ("string", "quoted"):
            self.expected(f"`{text}`")
        self.at += 1
        return token

    def skip(self, text: str) -> bool:
        """Step over an operator or keyword if it is next."""
        found = self.token.text == text and self.token.kind in ("op", "name")
        self.at += found
        return found

    def name(self) -> str:
        """A plain or quoted name."""
        token = self.token
        if token.kind not in ("name", "quoted"):
            self.expected("a name")
        self.at += 1
        return token.text if token.kind == "name" else self.unquoted(token)

    def unquoted(self, token: Token) -> str:
        try:
            return unquote(token.text)
        except ValueError as e:
            raise self.error(token, f"bad escape in {token.text}") from e

    def integer(self, what: str) -> int:
        """A literal that stands for a count, not a value."""
        token = self.token
        if token.kind != "number" or not token.text.isdigit() or len(token.text) > 18:
            self.expected(what)
        self.at += 1
        return int(token.text)

    def type(self) -> Type:
        """A type such as ``float32x8``."""
        token = self.token
        if token.kind != "name" or not TYPE.fullmatch(token.text):
            self.expected("a type such as float32 or int32x8")
        self.at += 1
        return self.type_of(token)

    def type_of(self, token: Token) -> Type:
        lanes = token.text.partition("x")[2]
        if lanes and (len(lanes) > 9 or not 0 < int(lanes) <= MAX_LANES):
            raise self.error(token, f"{token.text} has an impossible number of lanes")
        try:
            return Type.parse(token.text)
        except ValueError as e:
            raise self.error(token, str(e)) from e
