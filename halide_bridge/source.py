"""A pipeline from outside: run a program that makes a Func, and lower what it calls ``output``; or
read what Halide has serialized, of a program in C++ say.

The program is Python, with all that this means: whoever runs text from elsewhere confines the
process first (``confined``). What the import statement refuses there is a help for its author, and
no wall: Python has many ways around it. Nor does Halide check what it deserializes.
"""

from __future__ import annotations

import ast
import builtins
import faulthandler
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import CodeType
from typing import Any

from halide_bridge.lowering import lower
from halide_bridge.schedules.auto import lower_auto
from halide_bridge.stock import HalideError, deserialized
from halide_bridge.unscheduled import source_of
from selector.diagnostics import LimitError, ParseError, UserError
from selector.ir.module import Module

NAME = "program"
"""What places in errors call the text."""
OUTPUT = "output"
AUTO, SERIALIZED = "auto", ".hlpipe"
MODULES = (
    "__future__", "cmath", "collections", "dataclasses", "enum", "fractions", "functools",
    "halide", "halide_bridge", "itertools", "math", "numpy", "operator", "typing",
)  # fmt: skip
"""What a program may import."""
_WANTED = f"assign the Func (a Pipeline, a list of Funcs) to `{OUTPUT}`, at the top level"


def lower_file(name: str, target: str, schedule: str | None = None) -> Module:
    """The module of a file: Python, or a pipeline that Halide has serialized (``.hlpipe``).

    ``schedule``: ``"auto"`` lets the compiler decide what nobody has scheduled. Python runs as it
    would by itself, and imports what it likes; ``UserError`` for its mistakes, and what cannot be
    read.
    """
    path = Path(name)
    try:
        data = path.read_bytes()
        text = "" if path.suffix == SERIALIZED else data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {name}", str(error)) from None
    if path.suffix == SERIALIZED:
        if not _is_readable(data):
            raise _unreadable(name)
        return lower_serialized(data, target, schedule, name)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        return _lowered(text, target, schedule, name, {"__file__": name, "__name__": "__main__"})
    finally:
        del sys.path[0]


def lower_source(text: str, target: str, schedule: str | None = None) -> Module:
    """The module of what ``text`` calls ``output``; ``target`` is there for it as a variable.

    Mistakes in it are ``UserError``s with their line.
    """
    few = {"__name__": "__main__", "__builtins__": {**vars(builtins), "__import__": _import}}
    return _lowered(text, target, schedule, NAME, few)


def lower_serialized(
    data: bytes, target: str, schedule: str | None = None, name: str = NAME
) -> Module:
    """The module of a pipeline that Halide has serialized. Other data end in a ``ParseError``, or
    with the process.
    """
    try:
        pipeline = deserialized(data)
    except HalideError:
        raise _unreadable(name) from None
    return lower_output(pipeline, target, schedule)


def lower_output(output: Any, target: str, schedule: str | None) -> Module:
    """The module of an output as it is scheduled, or by the compiler's own ``schedule``."""
    if schedule not in (None, AUTO):
        raise UserError(f"schedule is '{AUTO}' or nothing, not {schedule!r}")
    if schedule is None:
        return lower(output, target=target)
    return lower_auto(source_of(output, None, None), target=target, sizes=None)[0]


def _lowered(
    text: str, target: str, schedule: str | None, name: str, variables: dict[str, Any]
) -> Module:
    code = _compiled(text, name)
    variables["target"] = target
    _run(code, variables, name)
    if OUTPUT not in variables:
        raise ParseError(f"the program has no `{OUTPUT}`", hint=_WANTED, where=name)
    # The bridge tells the place of who calls it: that is the statement that says `output`.
    asked = compile("\n" * (_line(text) - 1) + "lowered(output, *how)", name, "eval")
    own = {"lowered": lower_output, OUTPUT: variables[OUTPUT], "how": (target, schedule)}
    found: Module = _run(asked, own, name)
    return found


def _unreadable(name: str) -> ParseError:
    return ParseError(
        "no pipeline that Halide can read",
        why="it is damaged, empty, or of another version of Halide",
        hint="write it with `serialize_pipeline` of the Halide that is installed here",
        where=name,
    )


def _is_readable(data: bytes) -> bool:
    """Whether Halide reads it and lives: another process tries."""
    child = os.fork()
    if not child:
        try:
            faulthandler.disable()
            for number in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            deserialized(data)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _compiled(text: str, name: str) -> CodeType:
    try:
        return compile(text, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        where = ":".join(str(n) for n in (name, error.lineno, error.offset) if n)
        raise ParseError(f"the program is no Python: {error.msg}", where=where) from None
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL, or nested too deeply
        raise ParseError(f"the program is no Python: {error}", where=name) from None


def _run(code: CodeType, variables: dict[str, Any], name: str) -> Any:
    try:
        return eval(code, variables)
    except UserError:
        raise
    except MemoryError as error:
        raise LimitError(
            "the program takes more memory than it is given", where=_place(error, name)
        ) from (None)
    except BaseException as error:  # it may raise what it likes, SystemExit too
        what = f"the program raises {type(error).__name__}: {_said(error)}"
        raise ParseError(what, where=_place(error, name)) from None


def _said(error: BaseException) -> str:
    try:
        return str(error)[:2000]
    except BaseException:
        return "(what cannot be said)"


def _place(error: BaseException, name: str) -> str:
    """The innermost line of the program in which an error arose."""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_code.co_filename == name]
    return f"{name}:{lines[-1]}" if lines else name


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
