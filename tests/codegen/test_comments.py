"""Names from outside stay inside of comments and identifiers, whatever they are."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest

import selector
from rules import program_files
from selector.diagnostics import ParseError
from selector.gpu.codegen.scalars.names import comment
from selector.ir.module import Module
from selector.ir.parser import parse_module
from selector.ir.serialize import dumps, loads
from selector.ir.verify import verify_given

PROGRAMS = dict(program_files())
EVIL = "x\n#include </etc/passwd>\n//"


def renamed(text: str, old: str, new: str) -> Module:
    """A module with a name changed wherever it stands alone; empty: the module's own."""
    if not old:
        return replace(parse_module(text), name=new)
    data = dumps(parse_module(text))
    assert json.dumps(old) in data
    return loads(data.replace(json.dumps(old), json.dumps(new)))


@cache
def plain_source(name: str, target: str, old: str) -> str:
    return selector.compile(renamed(PROGRAMS[name], old, "plain"), target, cache=False).source


@pytest.mark.parametrize("new", [EVIL, "a\\", "\u2028#include <x>", "??/", "*/ #error", "\r#error"])
@pytest.mark.parametrize(
    ("name", "target", "old"),
    [("conv1d.vir", "sm_80", o) for o in ("", "conv", "I", "K", "I_im_in_conv", "K.extent.0")]
    + [("amx_matmul.vir", "amx", o) for o in ("", "acc", "A", "B", "out")],
)
def test_no_line_of_the_source_is_the_users(name: str, target: str, old: str, new: str) -> None:
    source = selector.compile(renamed(PROGRAMS[name], old, new), target, cache=False).source
    plain = plain_source(name, target, old)
    assert directives(source) == directives(plain)
    assert len(source.splitlines()) == len(plain.splitlines())
    assert not [line for line in source.split("\n") if line.endswith("\\") and "//" in line]
    with pytest.raises(ParseError, match="is no name"):
        verify_given(renamed(PROGRAMS[name], old, new))


def directives(source: str) -> list[str]:
    return [line for line in source.splitlines() if line.lstrip().startswith("#")]


def test_names_of_halide_are_taken() -> None:
    for text in PROGRAMS.values():
        verify_given(parse_module(text))


def test_a_comment_is_one_line() -> None:
    assert comment("a\nb\\\r\u2028\x85c") == "// a?b????c"
