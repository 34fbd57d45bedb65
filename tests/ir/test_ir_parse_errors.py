"""Wrong texts: each ends in ParseError at the right place, and nothing else ever escapes."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress

import pytest
from clock import assert_quick
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.diagnostics import ParseError
from selector.ir.parser import parse_expr, parse_module, parse_stmt
from selector.ir.types import FLOAT16, FLOAT32

pytestmark = pytest.mark.verified

TYPES = {"I": FLOAT16, "acc": FLOAT32}


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("x +", "1:4", "expected an expression, found the end of the text"),
        ("(x + y", "1:7", "expected `)`"),
        ("x ? y", "1:3", "unexpected character '?'"),
        ("x\n +\n  §", "3:3", "unexpected character '§'"),
        ("x + 1.0f", "1:3", "`+` between int32 and float32"),
        ("x && y", "1:3", "`&&` wants uint1, not int32"),
        ("!x", "1:1", "`!` wants uint1, not int32"),
        ("B[x]", "1:1", "`B` has no element type here"),
        ("I[1.0f]", "1:1", "the index of `I` is float32, not int32"),
        ("I[x if y]", "1:8", "expected uint1, found an expression of int32"),
        ("(float16x4)I[x]", "1:12", "a load of float16x4 with 1 indices"),
        ("float32x4(x)", "1:1", "a cast of int32 to float32x4 changes the lanes"),
        ("float33(x)", "1:1", "'float33' is not a type: no float of 33 bits"),
        ("ramp(0, 1)", "1:1", "`ramp` takes 3 argument(s), found 2"),
        ("ramp(0, x2(1), 4)", "1:1", "a ramp from int32 in steps of int32x2"),
        ("ramp(0, 1, n)", "1:1", "`ramp` wants a literal count of at least 1"),
        ("x0(y)", "1:1", "`x0` makes an impossible number of lanes: 0"),
        ("x4194305(y)", "1:1", "impossible number of lanes"),
        ("select(x, 1, 2)", "1:1", "`select` of int32 by int32"),
        ("min(x)", "1:1", "`min` takes at least 2 arguments"),
        ("vector_reduce_add(x8(y))", "1:1", "wants its type before it"),
        ("vector_reduce_add(x8(y), 3)", "1:1", "3 adjacent lanes do not divide int32x8"),
        ("(float32x2)vector_reduce_add(x8(y))", "1:12", "of int32x8 cannot give float32x2"),
        ("shuffle(x4(y), 4)", "1:1", "picks a lane outside the 4 lanes"),
        ("(float32)(x)", "1:10", "a type in parentheses wants a name or a literal"),
        ("2147483648", "1:1", "2147483648 does not fit int32"),
        ("(uint8)-1", "1:8", "-1 does not fit uint8"),
        ("(let t = 1 t)", "1:12", "expected `in`, found `t`"),
        ("`a\\q`", "1:1", "bad escape"),
        ("cast(x)", "1:1", "`cast` wants a type"),
    ],
)
def test_expressions(text: str, place: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_expr(text, TYPES, "a.vir")
    assert message in caught.value.what
    assert caught.value.where is not None
    assert caught.value.where.location == f"a.vir:{place}"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("acc[0] = ", "1:10", "expected an expression"),
        ("acc[0] == 1", "1:8", "expected `=`, found `==`"),
        ("acc[ramp(0, 1, 4)] = x3(1)", "1:22", "expected int32x4, found an expression of int32x3"),
        ("acc[0] = 1 if x", "1:15", "expected uint1"),
        ("for (x, 0) {\n}", "1:10", "expected `,`, found `)`"),
        ("for (x, 0, 4) {\n acc[x] = 1", "2:12", "expected `}`, found the end of the text"),
        ("if (x) {\n}", "1:5", "expected uint1, found an expression of int32"),
        ("allocate a[float32 * 4] in Nowhere", "1:28", "`Nowhere` is no memory"),
        ("allocate a[flat * 4]", "1:12", "expected a type"),
        ("assert((x", "1:7", "this parenthesis is never closed"),
        ("let = 4", "1:5", "expected a name, found `=`"),
        ("}", "1:1", "expected the end of the text, found `}`"),
        ("acc[0 aligned", "1:14", "expected `(`, found the end of the text"),
    ],
)
def test_statements(text: str, place: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_stmt(text, TYPES)
    assert message in caught.value.what
    assert caught.value.where is not None
    assert caught.value.where.location == f"<text>:{place}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("acc[0] = 1", "expected `module NAME`, the header of a module,"),
        (
            "module m",
            "expected input, output, scalar, require, promise, origin, resident, persistent, teams",
        ),
        ("module m\ninput I float32", "expected `:`"),
        ("module m\ninput I: float32x4 []", "a parameter holds scalars"),
        ("module m\ninput I: float32 [(0, 1)]", "expected `,`"),
        ("module m\nrequire I dim x from 0 to 1", "expected the number of a dimension"),
        ('module m\norigin I: func "a" "b"', "expected `at`"),
        ('module m\norigin I: func "a at "b"', "unexpected character"),
        ("module m\nbody {", "expected `}`"),
        ("module m\nbody {\n}\nx", "expected the end of the text"),
    ],
)
def test_modules(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_module(text)
    assert message in caught.value.what


def test_the_line_and_a_caret_are_shown() -> None:
    with pytest.raises(ParseError) as caught:
        parse_stmt("acc[0] = 1\nacc[1] = acc[2] + 1", TYPES, "a.vir")
    assert str(caught.value).splitlines()[:4] == [
        "`+` between float32 and int32",
        "  where: a.vir:2:17",
        "    acc[1] = acc[2] + 1",
        "                    ^",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "x" + ")" * 5000,
        "+".join(["x"] * 30_000),
        "-" * 9000 + "x",
        "!" * 9000 + "true",
        "f(" * 5000 + ")" * 5000,
        "I[" * 5000 + "]" * 5000,
        "(let a = " * 5000,
        "x2(" * 5000 + "y" + ")" * 5000,
        "9" * 100_000,
        "1" * 50_000 + "e5",
        "x" + "9" * 10_000 + "(y)",
        "float32x" + "9" * 10_000 + "(y)",
    ],
)
def test_deep_or_huge_expressions(text: str) -> None:
    def parse() -> None:
        with pytest.raises(ParseError):
            parse_expr(text, TYPES)

    assert_quick(parse, 1, 3)


@pytest.mark.parametrize(
    "text",
    [
        "for (x, 0, 1) {" * 5000,
        "{" * 50_000,
        "if (true) {} else " * 5000,
        "let a = 1\n" * 5000,
        "allocate a[int32] in Heap\n{" * 3000,
        "produce a {" * 5000,
    ],
)
def test_deep_statements(text: str) -> None:
    def parse() -> None:
        with pytest.raises(ParseError):
            parse_stmt(text, TYPES)

    assert_quick(parse, 1, 3)


def test_a_deep_stack_of_the_caller_shows_as_parse_error() -> None:
    def descend(levels: int) -> None:
        if levels:
            descend(levels - 1)
        else:
            parse_expr("f(" * 70 + "x" + ")" * 70)

    failures: list[BaseException] = []

    def run() -> None:
        try:
            descend(sys.getrecursionlimit() - 150)
        except BaseException as e:
            failures.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert [type(e) for e in failures] == [ParseError]


_TEXT = """
( ) [ ] { } , = == < + - * / % ! && || : ; x y 0 1 -1 2.5f 1e9 x4 ramp float32x4
(float16x2) I acc let in if else for gpu_block<CUDA> produce allocate Register assert
likely select free void vector_reduce_add cast<float> aligned struct predicate module
input output body require dim from to stages `a` "s" shuffle mem_to_amx
"""
_WORDS = st.sampled_from([*_TEXT.split(), "\n"])


@settings(deadline=None, max_examples=400)
@given(st.text(max_size=60) | st.lists(_WORDS, max_size=25).map(" ".join))
def test_nothing_but_parse_error_escapes(text: str) -> None:
    for parse in (parse_expr, parse_stmt, parse_module):
        with suppress(ParseError):
            parse(text)
