"""Words of the text form that printer and parser share: names, reserved words, spellings.

A plain name is a run of letters, digits, ``_``, ``$`` and ``.`` that does not start with a digit.
Any other name, and any name that would read as something else, is written between backquotes with
JSON escapes.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

from selector.ir.nodes import FloatImm, Location, Memory, ReduceOp
from selector.ir.types import Kind, Type

PLAIN_NAME = re.compile(r"\.?[A-Za-z_$][A-Za-z0-9_$.]*")
BROADCAST = re.compile(r"x([0-9]+)")
TYPE = re.compile(r"(?:int|uint|float|bfloat|handle)[0-9]+(?:x[0-9]+)?|bool")
MOVE = re.compile("({0})_to_({0})".format("|".join(x.value for x in Location)))
REDUCE = {f"vector_reduce_{op.value}": op for op in ReduceOp}
MEMORY = {m.value: m for m in Memory}
SHUFFLES = frozenset(
    ("shuffle", "concat_vectors", "interleave_vectors", "slice_vectors", "extract_element")
)
DROPPED_CALLS = frozenset(
    ("likely", "likely_if_innermost", "promise_clamped", "unsafe_promise_clamped")
)
SPECIAL_FLOATS = frozenset(
    f"{word}{suffix}" for word in ("inf", "nan") for suffix in ("f", "h", "")
)
_LOOPS = ("for", "parallel", "unrolled", "vectorized", "gpu_block", "gpu_thread", "gpu_lane")
_SCOPES = ("let", "in", "allocate", "stages", "produce", "consume", "atomic", "if", "else")
_DROPPED = ("assert", "free", "struct", "void", "aligned")
STATEMENTS = frozenset((*_LOOPS, *_SCOPES, *_DROPPED, "predicate"))
_FUNCTIONS = frozenset(("ramp", "select", "min", "max", "cast", "reinterpret", "ExprVar"))
_RESERVED = STATEMENTS | SPECIAL_FLOATS | {"true", "false"}
_CALLS = (_FUNCTIONS - {"reinterpret"}) | SHUFFLES | DROPPED_CALLS | REDUCE.keys()


@lru_cache(maxsize=4096)
def quote(name: str) -> str:
    """A name as the text form writes it."""
    plain = PLAIN_NAME.fullmatch(name) and name not in _RESERVED and not TYPE.fullmatch(name)
    return name if plain else _backquoted(name)


def quote_call(name: str) -> str:
    """A function's name as the text form writes it."""
    special = name in _CALLS or BROADCAST.fullmatch(name) or MOVE.fullmatch(name)
    return _backquoted(name) if special else quote(name)


def _backquoted(name: str) -> str:
    return "`" + json.dumps(name)[1:-1].replace("`", "\\u0060") + "`"


def unquote(text: str) -> str:
    """The name inside backquotes, or the string inside double quotes; ValueError if malformed."""
    value = json.loads(f'"{text[1:-1]}"')
    assert isinstance(value, str)
    return value


def quote_string(text: str) -> str:
    """A string of the module header."""
    return json.dumps(text)


_SUFFIX = {64: "", 32: "f", 16: "h"}
_DIGITS = {(Kind.FLOAT, 32): ".9g", (Kind.FLOAT, 16): ".5g", (Kind.BFLOAT, 16): ".4g"}


def float_text(value: float, t: Type) -> str:
    """A literal that reads back as exactly ``value``: Halide's six decimals where they suffice."""
    suffix = _SUFFIX[t.bits]
    prefix = "(bfloat16)" if t.kind is Kind.BFLOAT else ""
    short = f"{value:.6f}"
    if abs(value) >= 1e15 or FloatImm(float(short), t).value != value:
        digits = _DIGITS.get((t.kind, t.bits))
        short = repr(value) if digits is None else format(value, digits)
    if value != value:
        short = "nan"
    return f"{prefix}{short}{suffix}"
