"""Reading expressions of the text form: operator precedence, then one table of named forms.

Infix operators and parentheses are kept on explicit stacks, so that a long sum costs no recursion;
the height of a tree and the nesting of calls are bounded, because every later pass descends into
the tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import partial
from math import isinf
from typing import NoReturn

from selector.dataclass import dataclass
from selector.ir.forms import Form, build_form, call
from selector.ir.lexer import Source, Token
from selector.ir.lexicon import SPECIAL_FLOATS, TYPE
from selector.ir.nodes import (
    Binary,
    BinaryOp,
    Compare,
    CompareOp,
    Expr,
    FloatImm,
    IntImm,
    Let,
    Load,
    Not,
    Var,
)
from selector.ir.simplify import literal, wrap
from selector.ir.token_cursor import TokenCursor
from selector.ir.types import BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64, INT32, Type

MAX_HEIGHT = 200
MAX_CALLS = 80

_INFIX: dict[str, tuple[int, BinaryOp | CompareOp]] = {
    "||": (1, BinaryOp.OR),
    "&&": (2, BinaryOp.AND),
    "==": (3, CompareOp.EQ),
    "!=": (3, CompareOp.NE),
    "<": (4, CompareOp.LT),
    "<=": (4, CompareOp.LE),
    ">": (4, CompareOp.GT),
    ">=": (4, CompareOp.GE),
    "+": (5, BinaryOp.ADD),
    "-": (5, BinaryOp.SUB),
    "*": (6, BinaryOp.MUL),
    "/": (6, BinaryOp.DIV),
    "%": (6, BinaryOp.MOD),
}
FACTOR = 7  # binds tighter than every infix operator
_PREFIX = {"!": 8, "-": 8}
_C_TYPES = {"float": FLOAT32, "double": FLOAT64, "int": INT32, "half": FLOAT16, "bool": BOOL}
_FLOAT_SUFFIX = {"f": FLOAT32, "h": FLOAT16, "": FLOAT64}


@dataclass(slots=True)
class _Pending:
    """An operator (or an open parenthesis: precedence 0) that waits for its right operand."""

    precedence: int
    token: Token
    op: BinaryOp | CompareOp | None = None


@dataclass(slots=True)
class _Stacks:
    operators: list[_Pending] = field(default_factory=list[_Pending])
    values: list[tuple[Expr, int]] = field(default_factory=list[tuple[Expr, int]])
    open: int = 0


class ExpressionParser(TokenCursor):
    """Reads expressions. ``height`` is the height of the expression read last."""

    def __init__(self, source: Source, types: Mapping[str, Type]) -> None:
        super().__init__(source)
        self.buffers = {name: t.element for name, t in types.items()}
        self.variables = dict(types)
        self.height = self.calls = 0

    def expr(self, minimum: int = 1) -> Expr:
        """The longest expression of operators that bind at least as tightly as ``minimum``."""
        stacks = _Stacks()
        while True:
            self._prefixes(stacks)
            stacks.values.append((self._primary(), self.height))
            if not self._operators(stacks, minimum):
                break
        if stacks.open:
            self.expected("`)`")
        ((value, self.height),) = stacks.values
        return value

    def _prefixes(self, stacks: _Stacks) -> None:
        """Push open parentheses, ``!`` and ``-`` up to the next operand."""
        while self.token.kind == "op":
            token = self.token
            if token.text == "(" and not self._typed() and self.peek().text != "let":
                stacks.operators.append(_Pending(0, token))
                stacks.open += 1
            elif token.text in _PREFIX and not self._negative_literal():
                stacks.operators.append(_Pending(_PREFIX[token.text], token))
            else:
                return
            if len(stacks.operators) > 2 * MAX_HEIGHT:
                self._too_deep(token)
            self.at += 1

    def _negative_literal(self) -> bool:
        after = self.peek()
        literal = after.kind == "number" or after.text in SPECIAL_FLOATS
        return self.token.text == "-" and literal and after.start == self.token.start + 1

    def _typed(self) -> bool:
        """Whether a type in parentheses is next, as in ``(float16x8)A[..]``."""
        word = self.peek()
        if self.peek(2).text != ")" or word.kind != "name":
            return False
        return TYPE.fullmatch(word.text) is not None

    def _operators(self, stacks: _Stacks, minimum: int) -> bool:
        """Close what ends after an operand; True if an infix operator asks for another operand."""
        while True:
            token = self.token
            infix = _INFIX.get(token.text) if token.kind == "op" else None
            if infix is not None and (stacks.open or infix[0] >= minimum):
                self._reduce(stacks, infix[0])
                stacks.operators.append(_Pending(infix[0], token, infix[1]))
                self.at += 1
                return True
            self._reduce(stacks, 1)
            if not stacks.open:
                return False
            if token.text == "if" and not token.fresh:
                self._predicate(stacks)
            if self.token.text != ")":
                return False
            self.at += 1
            stacks.operators.pop()
            stacks.open -= 1

    def _predicate(self, stacks: _Stacks) -> None:
        """``(A[index] if predicate)``: Halide's spelling of a predicated load."""
        value, height = stacks.values[-1]
        if not isinstance(value, Load) or value.predicate is not None:
            raise self.error(self.token, "only a load in parentheses takes `if`")
        self.at += 1
        token = self.token
        predicate = self.lanes_of(token, self.expr(), BOOL.with_lanes(value.type.lanes))
        stacks.values[-1] = replace(value, predicate=predicate), max(height, self.height) + 1

    def _reduce(self, stacks: _Stacks, precedence: int) -> None:
        """Apply the waiting operators that bind at least as tightly as ``precedence``."""
        operators, values = stacks.operators, stacks.values
        while operators and operators[-1].precedence >= precedence:
            pending = operators.pop()
            b, height = values.pop()
            if pending.op is None:
                values.append((self._prefixed(pending.token, b), height + 1))
            else:
                a, left = values.pop()
                values.append((self.infix(pending.token, pending.op, a, b), max(left, height) + 1))
            if values[-1][1] > MAX_HEIGHT:
                self._too_deep(pending.token)

    def _too_deep(self, token: Token) -> NoReturn:
        raise self.error(token, f"an expression is nested more than {MAX_HEIGHT} deep")

    def _prefixed(self, token: Token, value: Expr) -> Expr:
        if token.text == "!":
            if not value.type.is_bool:
                raise self.error(token, f"`!` wants uint1, not {value.type}")
            return Not(value)
        return self.infix(token, BinaryOp.SUB, literal(0, value.type), value)

    def infix(self, token: Token, op: BinaryOp | CompareOp, a: Expr, b: Expr) -> Expr:
        """An operator with both operands of one type."""
        if a.type != b.type:
            raise self.error(token, f"`{op.value}` between {a.type} and {b.type}")
        if isinstance(op, CompareOp):
            return Compare(op, a, b)
        if op in (BinaryOp.AND, BinaryOp.OR) and not a.type.is_bool:
            raise self.error(token, f"`{op.value}` wants uint1, not {a.type}")
        return Binary(op, a, b)

    def lanes_of(self, token: Token, e: Expr, wanted: Type) -> Expr:
        """``e``, which must have the type ``wanted``."""
        if e.type != wanted:
            raise self.error(token, f"expected {wanted}, found an expression of {e.type}")
        return e

    def _primary(self) -> Expr:
        """A literal, variable, load, call or let; sets ``height``."""
        token = self.token
        self.height = 0
        if token.text == "(" and self._typed():
            self.at += 1
            given = self.type()
            self.take(")")
            return self._operand(given)
        if token.text == "(" and self.peek().text == "let":
            return self._let()
        return self._operand(None)

    def _operand(self, given: Type | None) -> Expr:
        token = self.token
        if token.kind == "number" or token.text in SPECIAL_FLOATS or token.text == "-":
            return self._literal(given)
        if token.text in ("true", "false") and token.kind == "name":
            self.at += 1
            return IntImm(int(token.text == "true"), BOOL)
        if token.kind not in ("name", "quoted"):
            if given is not None:
                hint = f"write {given}(..) to convert a value"
                raise self.error(
                    token, "a type in parentheses wants a name or a literal", hint=hint
                )
            self.expected("an expression")
        name, after = self.name(), self.token
        if after.text == "[" and not after.fresh:
            return self._load(token, name, given)
        if (after.text == "(" and not after.fresh) or name in ("cast", "reinterpret"):
            return self._form(token, name, given)
        return Var(name, given or self.variables.get(name, INT32))

    def _literal(self, given: Type | None) -> Expr:
        first = self.token
        negative = self.skip("-")
        token = self.token
        sign = "-" if negative else ""
        self.at += 1
        if token.kind == "number" and token.text.isdigit():
            return self._integer_literal(first, sign + token.text, given or INT32)
        if token.kind != "number" and token.text not in SPECIAL_FLOATS:
            raise self.error(token, "expected a number")
        suffix = token.text[-1] if token.text[-1] in "fh" and token.text != "inf" else ""
        digits = token.text[:-1] if suffix else token.text
        t = given or _FLOAT_SUFFIX[suffix]
        if t not in (BFLOAT16, FLOAT16, FLOAT32, FLOAT64):
            raise self.error(first, f"{token.text} is not a literal of type {t}")
        value = float(sign + digits)
        if isinf(value) and token.kind == "number":
            raise self.error(first, "a number too large for any type")
        return FloatImm(value, t)

    def _integer_literal(self, token: Token, text: str, t: Type) -> Expr:
        if t.lanes != 1 or not (t.is_integer or t.is_float):
            raise self.error(token, f"{text[:20]} is not a literal of type {t}")
        if len(text) > 24 or (t.is_integer and wrap(int(text), t) != int(text)):
            raise self.error(token, f"{text[:24]} does not fit {t}")
        return IntImm(int(text), t) if t.is_integer else FloatImm(float(text), t)

    def _load(self, token: Token, buffer: str, given: Type | None) -> Expr:
        self.take("[")
        index = self.nested(token)
        height = self.height
        predicate = None
        if self.token.text == "if":
            self.at += 1
            at = self.token
            wanted = BOOL.with_lanes(index.type.lanes)
            predicate = self.lanes_of(at, self.nested(at), wanted)
        self.height = max(height, self.height) + 1
        self.closing_bracket()
        element = given.element if given else self.buffers.get(buffer)
        if element is None:
            hint = "declare it in the header, allocate it, or pass types={name: type}"
            raise self.error(token, f"`{buffer}` has no element type here", hint=hint)
        if index.type.element != INT32:
            raise self.error(token, f"the index of `{buffer}` is {index.type}, not int32")
        if given and given.lanes != index.type.lanes:
            raise self.error(token, f"a load of {given} with {index.type.lanes} indices")
        return Load(element.with_lanes(index.type.lanes), buffer, index, predicate)

    def closing_bracket(self) -> None:
        """``]``, with Halide's alignment before it ignored."""
        if self.skip("aligned"):
            self.take("(")
            self.integer("the modulus of an alignment")
            self.take(",")
            self.integer("the remainder of an alignment")
            self.take(")")
        self.take("]")

    def nested(self, token: Token) -> Expr:
        """An expression inside brackets, one level of recursion deeper."""
        self.calls += 1
        if self.calls > MAX_CALLS:
            raise self.error(token, f"calls and loads are nested more than {MAX_CALLS} deep")
        value = self.expr()
        self.calls -= 1
        return value

    def _let(self) -> Expr:
        token = self.take("(")
        self.take("let")
        name = self.name()
        self.take("=")
        value = self.nested(token)
        height = self.height
        self.take("in")
        outer = self.variables.get(name)
        self.variables[name] = value.type
        body = self.nested(token)
        del self.variables[name]
        if outer is not None:
            self.variables[name] = outer
        self.take(")")
        self.height = max(height, self.height) + 1
        return Let(name, value, body)

    def _form(self, token: Token, name: str, given: Type | None) -> Expr:
        """``name(args)``, or ``name<type>(args)`` for a cast."""
        if name in ("cast", "reinterpret") and self.token.text == "<":
            self.at += 1
            word = self.token
            given = _C_TYPES.get(word.text) or self.type()
            self.at += word.text in _C_TYPES
            self.take(">")
        self.take("(")
        args: list[Expr] = []
        plain: list[bool] = []
        height = 0
        while self.token.text != ")":
            start = self.at
            args.append(self.nested(self.token))
            height = max(height, self.height)
            plain.append(self.at == start + 1 and self.tokens[start].text.isdigit())
            if not self.skip(","):
                break
        self.take(")")
        self.height = height + 1
        form = Form(name, given, tuple(args), tuple(plain), partial(self.error, token))
        return call(form) if token.kind == "quoted" else build_form(form)
