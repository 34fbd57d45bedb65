"""How much code a task is, by the measures of NineToothed's paper (table 2), as radon takes them.

Of ours the function of ``algorithm``, of Triton's kernel with its decorators and the functions that
it shares with others; what launches it is not counted, nor are docstrings in ``sloc``.
"""

from __future__ import annotations

import ast
import io
import math
import tokenize
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
_MM = ("mm_kernel", "place_of", "product")
KERNELS: dict[str, tuple[str, ...]] = {
    "mm": _MM,
    "bmm": _MM,
    "addmm": ("addmm_kernel", *_MM[1:]),
    "conv2d": ("conv2d_kernel", "place_of"),
}

# Table 2 of the paper: lines, logical lines, cyclomatic complexity, Halstead volume.
PUBLISHED = {
    "Triton": {
        "add": (17, 12, 1, 79.95),
        "addmm": (101, 43, 2, 990.79),
        "bmm": (93, 44, 2, 1024.43),
        "conv2d": (129, 56, 2, 1625.34),
        "mm": (85, 39, 2, 822.20),
        "rms_norm": (27, 12, 1, 142.62),
        "rope": (53, 26, 2, 649.85),
        "sdpa": (120, 43, 2, 505.24),
        "silu": (16, 11, 1, 66.61),
        "softmax": (31, 17, 1, 116.69),
    },
    "NineToothed": {
        "add": (21, 12, 2, 4.75),
        "addmm": (22, 12, 2, 27.00),
        "bmm": (39, 22, 1, 25.36),
        "conv2d": (25, 18, 1, 4.00),
        "mm": (44, 24, 3, 25.54),
        "rms_norm": (21, 11, 2, 48.43),
        "rope": (56, 34, 5, 116.00),
        "sdpa": (60, 44, 3, 284.60),
        "silu": (19, 11, 2, 4.75),
        "softmax": (24, 14, 2, 15.51),
    },
}


@dataclass(frozen=True, slots=True)
class Metrics:
    """``loc``: lines, ``sloc``: those that are neither blank, comment nor docstring, ``lloc``:
    statements; ``complexity``: cyclomatic; ``vocabulary``, ``length`` and ``volume``: Halstead's.
    """

    loc: int
    lloc: int
    sloc: int
    complexity: int
    vocabulary: int
    length: int

    @property
    def volume(self) -> float:
        return self.length * math.log2(self.vocabulary) if self.vocabulary else 0.0


def ours(task: str) -> Metrics:
    """Of a plain pipeline."""
    return measure(_functions("algorithm.py", (task,)))


def triton(task: str) -> Metrics:
    """Of a kernel in Triton."""
    return measure(_functions("triton_kernels.py", KERNELS.get(task, (f"{task}_kernel",))))


def _functions(file: str, names: tuple[str, ...]) -> str:
    """The text of some functions, decorators included."""
    text = (HERE / file).read_text(encoding="utf-8")
    found = {n.name: n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)}
    parts: list[str] = []
    for name in names:
        node = found[name]
        first = min((node.lineno, *(d.lineno for d in node.decorator_list)))
        parts.append("\n".join(text.splitlines()[first - 1 : node.end_lineno]))
    return "\n".join(parts) + "\n"


def measure(text: str) -> Metrics:
    """Of some functions."""
    tree = ast.parse(text)
    code = _lines_of_code(text) - _docstrings(tree)
    complexity = max(_complexity(f) for f in tree.body)
    statements = sum(isinstance(n, ast.stmt) for n in ast.walk(tree))
    operators, operands = list[str](), list[tuple[int, object]]()
    for number, function in enumerate(tree.body):
        for node in ast.walk(function):
            kinds, values = _counted(node)
            operators += [type(kind).__name__ for kind in kinds]
            operands += [(number, _known(value)) for value in values]
    vocabulary = len(set(operators)) + len(set(operands))
    length = len(operators) + len(operands)
    return Metrics(len(text.splitlines()), statements, len(code), complexity, vocabulary, length)


def _lines_of_code(text: str) -> set[int]:
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    blank.add(tokenize.ENDMARKER)
    return {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in blank
        for line in range(token.start[0], token.end[0] + 1)
    }


def _docstrings(tree: ast.Module) -> set[int]:
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            first = node.body[0]
            found |= {*range(first.lineno, (first.end_lineno or first.lineno) + 1)}
    return found


_BRANCHES = (ast.If, ast.For, ast.While, ast.IfExp, ast.Assert, ast.comprehension, ast.Try)


def _complexity(node: ast.AST) -> int:
    inner = list(ast.walk(node))
    logical = sum(len(n.values) - 1 for n in inner if isinstance(n, ast.BoolOp))
    return 1 + sum(isinstance(n, _BRANCHES) for n in inner) + logical


def _counted(node: ast.AST) -> tuple[list[ast.AST], list[ast.expr]]:
    """The operators and operands that radon counts for a node."""
    match node:
        case ast.BinOp(left, op, right):
            return [op], [left, right]
        case ast.UnaryOp(op, operand):
            return [op], [operand]
        case ast.BoolOp(op, values):
            return [op], values
        case ast.AugAssign(target, op, value):
            return [op], [target, value]
        case ast.Compare(left, ops, comparators):
            return [*ops], [*comparators, left]
        case _:
            return [], []


def _known(operand: object) -> object:
    """Names, attributes and constants are one where their text is; others are all different."""
    match operand:
        case ast.Name(name) | ast.Attribute(_, name):
            return name
        case ast.Constant(value):
            return value
        case _:
            return operand
