"""The JSON form: a round trip, and ParseError for everything else."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ir_strategies import modules

from selector.diagnostics import ParseError
from selector.ir.module import Module
from selector.ir.parser import parse_module
from selector.ir.serialize import dumps, from_json, loads, to_json

TEXT = """
module conv
input I: float16 [(0, I.extent.0, 1)]
output out: float32 [(0, out.extent.0, 1)]
scalar gain: float32
require I dim 0 from 0 to out.extent.0 + 3
origin out: func "out" at "a.py:1"
resident out: 2
persistent out: 1
cluster out: 4
body {
 gpu_block<CUDA> (x, 0, out.extent.0) {
  allocate acc[float32 * 4] in Register stages(2)
  acc[ramp(0, 1, 4)] = x4(0.0f) if ramp(0, 1, 4) < x4(3)
  if (x < 3) {
   out[x] = float32(I[x])*gain + (float32)sqrt_f32(acc[0])
  } else {
   (let t = x in t)
  }
 }
}"""
MODULE = parse_module(TEXT)


def test_round_trip() -> None:
    assert loads(dumps(MODULE)) == MODULE
    assert from_json(json.loads(json.dumps(to_json(MODULE)))) == MODULE
    assert dumps(MODULE) == dumps(loads(dumps(MODULE)))


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(modules())
def test_random_modules(module: Module) -> None:
    assert loads(dumps(module)) == module


def test_equal_expressions_are_written_once() -> None:
    rows = to_json(MODULE)["exprs"]
    assert len({json.dumps(r) for r in rows}) == len(rows)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), "other", "'other' is not 'selector-ir'"),
        (("version",), 2, "version 2; this reader knows version 1"),
        (("version",), True, "version True"),
        (("name",), 3, "expected a string, found int"),
        (("buffers", 0, 1), "float33", "'float33' is not a type"),
        (("buffers", 0, 2), "inout", "'inout' is no Role"),
        (("buffers", 0, 1), "float32x4", "a parameter holds scalars"),
        (("buffers", 0, 3, 0), [0, 1], "expected 3 entries, found 2"),
        (("exprs", 0), ["what"], "starts no expression"),
        (("exprs", 0), [], "starts no expression"),
        (("exprs", 0), ["int", "int32", 1 << 31], "is no literal of int32"),
        (("exprs", 0), ["int", "int32", 1.5], "expected an integer, found float"),
        (("exprs", 0), ["int", "float32", 1], ""),
        (("exprs", 0), ["not", 0], "out of range"),
        (("exprs", 0), ["int", "int32", 1, 2], "is too long"),
        (("exprs", 0), ["int", "int32"], "is too short"),
        (("exprs", 0), ["float", "float32", "one"], "is no literal of float32"),
        (("body",), ["jump", 1], "is no statement"),
        (("body",), ["block", 3], "expected a list, found int"),
        (("body",), ["evaluate", 10_000], "out of range"),
        (("body", 1), "gpu_warp", "'gpu_warp' is no ForKind"),
        (("body", 4), -1, "out of range"),
        (("origins", 0), ["a", "b"], "expected 3 entries"),
        (("grids", 0), ["resident", "out", 0], "0 is not a number of blocks"),
        (("grids", 0), ["square", "out", 2], "'square' is no GridKind"),
    ],
)
def test_malformed(path: tuple[Any, ...], value: object, message: str) -> None:
    data: Any = to_json(MODULE)
    target = data
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    with pytest.raises(ParseError, match="not a module") as caught:
        from_json(data)
    assert message in caught.value.what
    assert caught.value.where is not None
    assert caught.value.where.location.startswith("$")


@pytest.mark.parametrize(
    "text", ["", "{", "[1, 2", "[" * 100_000, "1" * 10_000, "null", "[]", '"x"']
)
def test_not_even_json(text: str) -> None:
    with pytest.raises(ParseError):
        loads(text)


def test_missing_keys_are_named() -> None:
    data = to_json(MODULE)
    del data["body"]
    with pytest.raises(ParseError, match="'body' is missing"):
        from_json(data)


def test_shared_expressions_cannot_explode() -> None:
    data = to_json(MODULE)
    data["exprs"] = [["var", "int32", "x"]] + [["binary", "+", i, i] for i in range(100)]
    data["body"] = ["evaluate", 100]
    with pytest.raises(ParseError, match="too many nodes"):
        from_json(data)


def test_deep_statements() -> None:
    data = to_json(MODULE)
    body: Any = ["block", []]
    for _ in range(3000):
        body = ["block", [body]]
    data["body"] = body
    with pytest.raises(ParseError, match="nested"):
        from_json(data)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 40)
    | st.floats()
    | st.sampled_from(("int32", "store", "x")),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=12,
)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_nothing_but_parse_error_escapes(data: st.DataObject) -> None:
    broken: Any = to_json(MODULE)
    target, key = broken, data.draw(st.sampled_from(sorted(broken)))
    while isinstance(target[key], list) and target[key] and data.draw(st.booleans()):
        target, key = target[key], data.draw(st.integers(0, len(target[key]) - 1))
    target[key] = data.draw(_JSON)
    with suppress(ParseError):
        from_json(broken)
