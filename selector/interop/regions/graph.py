"""A region of a model as data: operators by their names in aten, types, sizes; neither torch nor
Halide. Its digest names its kernel, here and on another machine.

A size is a number, or an expression of symbols (``"s0"``, ``"(s0 - 1) // 2 + 1"``); every symbol is
an extent of an input.
"""

from __future__ import annotations

import ast
import hashlib
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from selector.dataclass import dataclass
from selector.diagnostics import ArtifactError

FORMAT = 1  # of the text; another one gives other digests

Size = int | str


@dataclass(frozen=True, slots=True)
class TensorType:
    """``dtype`` by torch's name; ``shape`` in NumPy's order."""

    dtype: str
    shape: tuple[Size, ...]


@dataclass(frozen=True, slots=True)
class Ref:
    """The value of that number: inputs first, then nodes."""

    number: int


@dataclass(frozen=True, slots=True)
class Symbolic:
    """A size among arguments that is not a plain number."""

    size: str


@dataclass(frozen=True, slots=True)
class Named:
    """A constant of torch, such as a dtype, by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Node:
    """``op``: ``"aten.add.Tensor"``; ``args`` and ``named`` as its schema has them, without
    trailing defaults. ``type``: of the result; several for an operator that gives a tuple.
    """

    op: str
    args: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]
    type: TensorType | tuple[TensorType, ...]


@dataclass(frozen=True, slots=True)
class RegionGraph:
    """``outputs``: numbers of values. Inputs and outputs lie in memory row by row as their types
    say; what a model has otherwise is permuted outside. ``order``: of the outputs' axes in memory,
    the outermost first, where it is another one.
    """

    inputs: tuple[TensorType, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    order: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        return json.dumps(
            {
                "format": FORMAT,
                "inputs": [_type(t) for t in self.inputs],
                "nodes": [
                    [n.op, _value(n.args), [[k, _value(v)] for k, v in n.named], _type(n.type)]
                    for n in self.nodes
                ],
                "outputs": list(self.outputs),
                "order": list(self.order),
            },
            separators=(",", ":"),
        )

    @property
    def key(self) -> str:
        """The digest that names it."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:32]

    @property
    def symbols(self) -> dict[str, tuple[int, int]]:
        """Input and axis of each symbol."""
        found: dict[str, tuple[int, int]] = {}
        for i, t in enumerate(self.inputs):
            for d, size in enumerate(t.shape):
                if isinstance(size, str) and size.isidentifier():
                    found.setdefault(size, (i, d))
        return found

    @property
    def result_types(self) -> tuple[TensorType, ...]:
        """Of the outputs."""
        found: list[TensorType] = []
        for number in self.outputs:
            t = self.type_of(number)
            assert isinstance(t, TensorType)
            found.append(t)
        return tuple(found)

    def type_of(self, number: int) -> TensorType | tuple[TensorType, ...]:
        count = len(self.inputs)
        return self.inputs[number] if number < count else self.nodes[number - count].type

    def shapes(self, given: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """Shapes of the outputs, from those of inputs (numbers, or torch's symbolic ones)."""
        known = {name: given[i][d] for name, (i, d) in self.symbols.items()}
        return [tuple(evaluated(n, known) for n in t.shape) for t in self.result_types]

    def __str__(self) -> str:
        """One operator after the other."""
        return " ".join(short(n.op) for n in self.nodes if n.op != "getitem")


def short(op: str) -> str:
    """``aten.add.Tensor`` as ``add``."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else op


def from_text(text: str) -> RegionGraph:
    """What ``RegionGraph.text`` gave. ``ArtifactError`` for anything else."""
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise ArtifactError(f"a region of format {data['format']}, and this reads {FORMAT}")
        nodes = tuple(
            Node(op, tuple(map(_read, args)), tuple((k, _read(v)) for k, v in named), _types(t))
            for op, args, named, t in data["nodes"]
        )
        inputs = tuple(_tensor(t) for t in data["inputs"])
        outputs, order = (tuple(map(int, data[name])) for name in ("outputs", "order"))
        return RegionGraph(inputs, nodes, outputs, order)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise ArtifactError("this is no region", why=str(error)) from error


def _type(t: TensorType | tuple[TensorType, ...]) -> Any:
    if isinstance(t, TensorType):
        return [t.dtype, list(t.shape)]
    return {"several": [_type(each) for each in t]}


def _types(data: Any) -> TensorType | tuple[TensorType, ...]:
    if isinstance(data, dict):
        return tuple(_tensor(each) for each in data["several"])
    return _tensor(data)


def _tensor(data: Any) -> TensorType:
    dtype, shape = data
    for size in shape:
        if not isinstance(size, (int, str)):
            raise TypeError(f"{size!r} is no size")
    return TensorType(str(dtype), tuple(shape))


def _value(value: Any) -> Any:
    match value:
        case Ref(number):
            return {"value": number}
        case Symbolic(size):
            return {"size": size}
        case Named(name):
            return {"named": name}
        case tuple():
            return [_value(v) for v in value]
        case float():
            return {"float": value.hex()}
        case _:
            assert value is None or isinstance(value, (bool, int, str)), value
            return value


def _read(data: Any) -> Any:
    match data:
        case list():
            return tuple(map(_read, data))
        case {"value": number}:
            return Ref(int(number))
        case {"size": size}:
            return Symbolic(str(size))
        case {"named": name}:
            return Named(str(name))
        case {"float": text}:
            return float.fromhex(text)
        case _:
            return data


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def evaluated(
    size: Size, known: Mapping[str, Any], divide: Callable[..., Any] | None = None
) -> Any:
    """A size with symbols for which ``known`` has something that adds, multiplies and divides.
    ``divide``: how, if not by ``//``. ``ArtifactError`` for what is no such expression.
    """
    if isinstance(size, int):
        return size

    def of(e: ast.AST) -> Any:
        match e:
            case ast.Name(id=name) if name in known:
                return known[name]
            case ast.Constant(value=int() as value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=value):
                return -of(value)
            case ast.BinOp(left=left, op=ast.FloorDiv(), right=right) if divide is not None:
                return divide(of(left), of(right))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](of(left), of(right))
            case _:
                raise ArtifactError(f"{size!r} is no size that is known here")

    try:
        return of(ast.parse(size, mode="eval").body)
    except SyntaxError as error:
        raise ArtifactError(f"{size!r} is no size") from error
