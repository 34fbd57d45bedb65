"""Reading statements of the text form, Halide's debug print included."""

from __future__ import annotations

from dataclasses import field, replace

from selector.dataclass import dataclass
from selector.ir.expression_parser import FACTOR, ExpressionParser
from selector.ir.lexer import Token
from selector.ir.lexicon import MEMORY
from selector.ir.nodes import (
    Allocate,
    Atomic,
    Block,
    Evaluate,
    Expr,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Memory,
    Stmt,
    Store,
)
from selector.ir.types import BOOL, INT32

MAX_STATEMENTS = 60  # braces inside braces
MAX_SCOPES = 400  # lets and allocations inside one another

_LOOPS = {kind.value: kind for kind in ForKind}


@dataclass(slots=True)
class _Scope:
    """An open ``let`` or ``allocate`` (None: the braces themselves) and the statements in it so
    far."""

    owner: LetStmt | Allocate | None
    stmts: list[Stmt] = field(default_factory=list[Stmt])

    def close(self) -> Stmt:
        body = self.stmts[0] if len(self.stmts) == 1 else Block(tuple(self.stmts))
        return body if self.owner is None else replace(self.owner, body=body)


_EMPTY = Block(())


class StatementParser(ExpressionParser):
    """Statements and modules on top of expressions."""

    depth = 0
    scopes = 0

    def statements(self) -> Stmt:
        """Statements up to a closing brace or the end."""
        buffers, variables, outer = dict(self.buffers), dict(self.variables), self.scopes
        stack = [_Scope(None)]
        while self.token.kind != "end" and self.token.text != "}":
            if not self.skip(";"):
                self._statement(stack)
        while len(stack) > 1:
            closed = stack.pop().close()
            stack[-1].stmts.append(closed)
        self.buffers, self.variables, self.scopes = buffers, variables, outer
        return stack[0].close()

    def braces(self, token: Token) -> Stmt:
        """Statements in braces."""
        self.take("{")
        self.depth += 1
        if self.depth > MAX_STATEMENTS:
            raise self.error(token, f"statements are nested more than {MAX_STATEMENTS} deep")
        body = self.statements()
        self.depth -= 1
        self.take("}")
        return body

    def _statement(self, stack: list[_Scope]) -> None:
        token = self.token
        match token.text if token.kind in ("name", "op") else "":
            case "let":
                self._let_stmt(stack)
            case "allocate":
                self._allocate(stack)
            case "assert":
                self.at += 1
                self._skip_parentheses()
            case "free":
                self.at += 1
                self.name()
            case "produce" | "consume":
                self.at += 1
                self.name()
                _append(stack, self.braces(token))
            case "{":
                _append(stack, self.braces(token))
            case _:
                if not self._drop_bookkeeping():
                    _append(stack, self._simple(token))

    def _simple(self, token: Token) -> Stmt:
        word = token.text if token.kind == "name" else ""
        if word in _LOOPS and self.peek().text in ("(", "<"):
            return self._loop(_LOOPS[word])
        if word == "if":
            return self._condition()
        if word == "atomic" and self.peek().text == "(":
            return self._atomic()
        if word == "predicate" and self.peek().text == "(":
            return self._predicated_store()
        if token.kind in ("name", "quoted") and self.peek().text == "[":
            return self._store()
        return Evaluate(self.expr())

    def _drop_bookkeeping(self) -> bool:
        """Step over a line that handles pointers to Halide's own structures."""
        at = self.at
        while True:
            token = self.tokens[at]
            if token.kind == "end" or (token.fresh and at > self.at) or token.text in "{}":
                return False
            if token.kind == "name" and token.text in ("struct", "void"):
                break
            at += 1
        self.at += 1
        while not self.token.fresh:
            self.at += 1
        return True

    def _skip_parentheses(self) -> None:
        opening, depth = self.token, 0
        while True:
            token = self.token
            depth += (token.text == "(") - (token.text == ")") if token.kind == "op" else 0
            if token.kind == "end":
                raise self.error(opening, "this parenthesis is never closed")
            self.at += 1
            if depth <= 0:
                return

    def _enter(self, stack: list[_Scope], token: Token, owner: LetStmt | Allocate) -> None:
        self.scopes += 1
        if self.scopes > MAX_SCOPES:
            raise self.error(token, f"more than {MAX_SCOPES} lets and allocations in one another")
        stack.append(_Scope(owner))

    def _let_stmt(self, stack: list[_Scope]) -> None:
        if self._drop_bookkeeping():
            return
        token = self.take("let")
        name = self.name()
        self.take("=")
        value = self.expr()
        self.variables[name] = value.type
        self._enter(stack, token, LetStmt(name, value, _EMPTY))

    def _allocate(self, stack: list[_Scope]) -> None:
        token = self.take("allocate")
        name = self.name()
        self.take("[")
        element = self.type()
        extents: list[Expr] = []
        while self.skip("*"):
            extents.append(self.expr(FACTOR))
        self.take("]")
        memory = self._memory() if self.skip("in") else Memory.AUTO
        stages = 1
        if self.skip("stages"):
            self.take("(")
            stages = max(1, self.integer("a number of stages"))
            self.take(")")
        if any(isinstance(s.owner, Allocate) and s.owner.name == name for s in stack):
            self._end_scope(stack, name)
        self.buffers[name] = element.element
        owner = Allocate(name, element, tuple(extents), memory, _EMPTY, stages)
        self._enter(stack, token, owner)

    def _end_scope(self, stack: list[_Scope], name: str) -> None:
        while True:
            scope = stack.pop()
            self.scopes -= 1
            stack[-1].stmts.append(scope.close())
            if isinstance(scope.owner, Allocate) and scope.owner.name == name:
                return

    def _memory(self) -> Memory:
        token = self.token
        if token.text not in MEMORY:
            raise self.error(token, f"`{token.text}` is no memory", hint=", ".join(MEMORY))
        self.at += 1
        return MEMORY[token.text]

    def _loop(self, kind: ForKind) -> Stmt:
        token = self.token
        self.at += 1
        if self.skip("<"):
            self.name()
            self.take(">")
        self.take("(")
        name = self.name()
        self.take(",")
        low = self.lanes_of(self.token, self.expr(), INT32)
        self.take(",")
        extent = self.lanes_of(self.token, self.expr(), INT32)
        self.take(")")
        outer = self.variables.get(name, INT32)
        self.variables[name] = INT32
        body = self.braces(token)
        self.variables[name] = outer
        return For(name, low, extent, kind, body)

    def _condition(self) -> Stmt:
        branches: list[tuple[Expr, Stmt]] = []
        otherwise: Stmt | None = None
        while True:
            token = self.take("if")
            self.take("(")
            condition = self.lanes_of(self.token, self.expr(), BOOL)
            self.take(")")
            branches.append((condition, self.braces(token)))
            if len(branches) > MAX_STATEMENTS:
                raise self.error(token, f"more than {MAX_STATEMENTS} branches in one another")
            if not self.skip("else"):
                break
            if self.token.text != "if":
                otherwise = self.braces(self.token)
                break
        for condition, then in reversed(branches):
            otherwise = IfThenElse(condition, then, otherwise)
        assert otherwise is not None
        return otherwise

    def _atomic(self) -> Stmt:
        token = self.take("atomic")
        self.take("(")
        producer = self.name()
        if self.skip(","):
            self.name()
        self.take(")")
        return Atomic(producer, self.braces(token))

    def _predicated_store(self) -> Stmt:
        """Halide's ``predicate (p)`` on the line before a store."""
        self.take("predicate")
        self.take("(")
        at = self.token
        predicate = self.expr()
        self.take(")")
        store = self._store()
        if store.predicate is not None:
            raise self.error(at, "this store has two predicates")
        wanted = BOOL.with_lanes(store.value.type.lanes)
        return replace(store, predicate=self.lanes_of(at, predicate, wanted))

    def _store(self) -> Store:
        token = self.token
        buffer = self.name()
        self.take("[")
        index = self.expr()
        self.closing_bracket()
        self.take("=")
        at = self.token
        value = self.expr()
        if index.type.element != INT32:
            raise self.error(token, f"the index of `{buffer}` is {index.type}, not int32")
        self.lanes_of(at, value, value.type.with_lanes(index.type.lanes))
        predicate = None
        if self.token.text == "if" and not self.token.fresh:
            self.at += 1
            at = self.token
            predicate = self.lanes_of(at, self.expr(), BOOL.with_lanes(index.type.lanes))
        return Store(buffer, index, value, predicate)


def _append(stack: list[_Scope], stmt: Stmt) -> None:
    """Add to the innermost scope; a block becomes part of the one around it."""
    match stmt:
        case Block(stmts):
            stack[-1].stmts.extend(stmts)
        case _:
            stack[-1].stmts.append(stmt)
