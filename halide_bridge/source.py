"""A pipeline as text: run a program that schedules a Func, and lower what it calls ``output``.

The program is Python, with all that this means: whoever runs text from elsewhere confines the
process first (``confined``). What the import statement refuses here is a help for its author, and
no wall: Python has many ways around it.
"""

from __future__ import annotations

import ast
import builtins
import traceback
from collections.abc import Mapping
from types import CodeType
from typing import Any

from halide_bridge.lowering import lower
from selector.diagnostics import LimitError, ParseError, UserError
from selector.ir.module import Module

NAME = "program"
"""What places in errors call the text."""
OUTPUT = "output"
MODULES = (
    "__future__", "cmath", "collections", "dataclasses", "enum", "fractions", "functools",
    "halide", "halide_bridge", "itertools", "math", "numpy", "operator", "typing",
)  # fmt: skip
"""What a program may import."""
_WANTED = f"assign the Func (a Pipeline, a list of Funcs) to `{OUTPUT}`, at the top level"


def lower_source(text: str, target: str) -> Module:
    """The module of what ``text`` calls ``output``; ``target`` is there for it as a variable.

    Mistakes in it are ``UserError``s with their line.
    """
    code = _compiled(text)
    variables: dict[str, Any] = {
        "__name__": "__main__",
        "__builtins__": {**vars(builtins), "__import__": _import},
        "target": target,
    }
    _run(code, variables)
    if OUTPUT not in variables:
        raise ParseError(f"the program has no `{OUTPUT}`", hint=_WANTED, where=NAME)
    # The bridge tells the place of who calls it: that is the statement that says `output`.
    asked = compile("\n" * (_line(text) - 1) + "lower(output, target=target)", NAME, "eval")
    found: Module = _run(asked, {"lower": lower, OUTPUT: variables[OUTPUT], "target": target})
    return found


def _compiled(text: str) -> CodeType:
    try:
        return compile(text, NAME, "exec", dont_inherit=True)
    except SyntaxError as error:
        where = ":".join(str(n) for n in (NAME, error.lineno, error.offset) if n)
        raise ParseError(f"the program is no Python: {error.msg}", where=where) from None
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL, or nested too deeply
        raise ParseError(f"the program is no Python: {error}", where=NAME) from None


def _run(code: CodeType, variables: dict[str, Any]) -> Any:
    try:
        return eval(code, variables)
    except UserError:
        raise
    except MemoryError as error:
        raise LimitError(
            "the program takes more memory than it is given", where=_place(error)
        ) from (None)
    except BaseException as error:  # it may raise what it likes, SystemExit too
        what = f"the program raises {type(error).__name__}: {_said(error)}"
        raise ParseError(what, where=_place(error)) from None


def _said(error: BaseException) -> str:
    try:
        return str(error)[:2000]
    except BaseException:
        return "(what cannot be said)"


def _place(error: BaseException) -> str:
    """The innermost line of the program in which an error arose."""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == NAME]
    return f"{NAME}:{lines[-1]}" if lines else NAME


def _line(text: str) -> int:
    """Of the last statement at the top level that could give ``output`` its value."""
    names = (
        (node.id, statement.lineno)
        for statement in ast.parse(text).body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    return max((line for name, line in names if name == OUTPUT), default=1)


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,  # noqa: A002 - the names of __import__
    locals: Mapping[str, object] | None = None,  # noqa: A002
    fromlist: tuple[str, ...] | None = (),
    level: int = 0,
) -> object:
    if level or name.partition(".")[0] not in MODULES:
        raise ImportError(f"`{name}` cannot be imported here, only {', '.join(MODULES)}")
    return __import__(name, globals, locals, fromlist or (), level)
