"""A part of a graph of torch (``torch.fx``) as a ``RegionGraph``: names, constants and sizes."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import sympy  # torch's own
import torch as installed  # pyright: ignore

from selector.interop.regions.graph import Named, Node, Ref, RegionGraph, Size, Symbolic, TensorType

torch: Any = installed


class NotARegion(Exception):  # noqa: N818 - it is no error, but a reason
    """Why a part of a graph is none."""


class Symbols:
    """Sizes of one region. What is no number and an extent of an input gets a name, whatever
    torch has it as; until ``closed``. After that, sizes are told by these.
    """

    def __init__(self) -> None:
        self._names: dict[Any, Any] = {}
        self.hints: dict[str, int] = {}
        self.closed = False

    def size(self, value: Any) -> Size:
        """A number, or an expression of names."""
        if not isinstance(value, torch.SymInt):
            return int(value)
        expression = value.node.expr
        if expression.is_number:
            return int(expression)
        if expression not in self._names and not self.closed:
            name = f"s{len(self._names)}"
            self.hints[name] = hint(value)
            self._names[expression] = sympy.Symbol(name, integer=True, positive=True)
        return str(expression.xreplace(self._names))


def hint(value: Any) -> int:
    """A size as it was when the graph was made; nothing comes to depend on it."""
    if not isinstance(value, torch.SymInt):
        return int(value)
    found = value.node.hint
    if found is None:
        raise NotARegion("a size that data decide")
    return int(found)


def sized(value: Any) -> bool:
    """Whether sizes and strides were known when the graph was made: data decide others."""
    extents = (*value.shape, *value.stride())
    return all(not isinstance(n, torch.SymInt) or n.node.hint is not None for n in extents)


def memory_order(value: Any) -> tuple[int, ...]:
    """The axes of a tensor from the outermost to the innermost one in memory."""
    sizes, strides = [hint(n) for n in value.shape], [hint(n) for n in value.stride()]
    long = [d for d, n in enumerate(sizes) if n != 1]
    if [*sorted(long, key=lambda d: -strides[d])] == long:
        return tuple(range(len(sizes)))
    return tuple(sorted(range(len(sizes)), key=lambda d: (-strides[d], d)))


def dense(value: Any) -> bool:
    """Whether its elements lie side by side, in ``memory_order``."""
    return lies(value, memory_order(value))


def lies(value: Any, order: Sequence[int]) -> bool:
    """Whether its elements lie side by side with the axes in that order, the innermost last."""
    step = 1
    sizes, strides = [hint(n) for n in value.shape], [hint(n) for n in value.stride()]
    for d in reversed(order):
        if sizes[d] != 1 and strides[d] != step:
            return False
        step *= sizes[d]
    return True


def dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def operator_name(target: Any) -> str:
    """``aten.add.Tensor``; ``getitem``."""
    return "getitem" if target is operator.getitem else str(target)


def typed(value: Any, symbols: Symbols, order: Sequence[int] | None = None) -> Any:
    """The type of a tensor (axes in ``order``), or of several."""
    if isinstance(value, (tuple, list)):
        return tuple(typed(v, symbols) for v in value)
    if not isinstance(value, torch.Tensor):
        raise NotARegion(f"a value of type {type(value).__name__}")
    shape = [symbols.size(n) for n in value.shape]
    if order is not None:
        shape = [shape[d] for d in order]
    return TensorType(dtype_name(value.dtype), tuple(shape))


def encoded(node: Any, numbers: Mapping[Any, int], symbols: Symbols) -> Node:
    """A call as data: its arguments as its schema has them, defaults left out."""

    def value(v: Any) -> Any:
        match v:
            case torch.fx.Node():
                if v in numbers:
                    return Ref(numbers[v])
                return value(v.meta["val"])
            case torch.SymInt():
                size = symbols.size(v)
                return size if isinstance(size, int) else Symbolic(size)
            case None | bool() | int() | float() | str():
                return v
            case torch.dtype():
                return Named(dtype_name(v))
            case torch.memory_format() | torch.layout() | torch.device():
                return None  # of a copy: the type of its result says it
            case tuple() | list():
                return tuple(map(value, v))
            case _:
                raise NotARegion(f"an argument of type {type(v).__name__}")

    args = tuple(map(value, node.args))
    named: Mapping[str, Any] = {k: value(v) for k, v in node.kwargs.items()}
    if node.target is not operator.getitem:
        args, named = _by_schema(node.target._schema.arguments, args, named)
    found = typed(node.meta["val"], symbols)
    return Node(operator_name(node.target), args, tuple(sorted(named.items())), found)


def _by_schema(
    schema: Any, args: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    placed = [a for a in schema if not a.kwarg_only]
    filled = list(args)
    for a in placed[len(args) :]:
        filled.append(named.get(a.name, _default(a)))
    while filled and len(filled) <= len(placed):
        last = placed[len(filled) - 1]
        if not last.has_default_value() or filled[-1] != _default(last):
            break
        filled.pop()
    rest = {
        a.name: named[a.name]
        for a in schema
        if a.kwarg_only and named.get(a.name, _default(a)) != _default(a)
    }
    return tuple(filled), {k: v for k, v in rest.items() if v is not None}


def _default(argument: Any) -> Any:
    value = argument.default_value if argument.has_default_value() else None
    return tuple(value) if isinstance(value, list) else value


def checked(graph: RegionGraph) -> RegionGraph:
    """The graph, if inputs say all of its sizes. ``NotARegion`` if not."""
    from selector.diagnostics import ArtifactError
    from selector.interop.regions.graph import evaluated

    known = dict.fromkeys(graph.symbols, 1)

    def sizes(v: Any) -> list[Any]:
        if isinstance(v, Symbolic):
            return [v.size]
        return [s for each in v for s in sizes(each)] if isinstance(v, tuple) else []

    wanted = [size for t in graph.inputs for size in t.shape]
    for node in graph.nodes:
        types = (node.type,) if isinstance(node.type, TensorType) else node.type
        wanted += [size for t in types for size in t.shape] + sizes(node.args)
    for size in wanted:
        try:
            evaluated(size, known)
        except (ArtifactError, ZeroDivisionError) as error:
            raise NotARegion(f"a size that no input has: {size}") from error
    return graph
