"""The shapes of an operator's results, and what its arguments have to be."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from selector.diagnostics import ArgumentError
from selector.runtime import arguments
from selector.runtime.plan import Plan

Shapes = tuple[tuple[Any, ...], ...]
_SHAPES_AT_MOST = 1024


class Results:
    """``rule``: shapes of inputs and numbers to those of all outputs; None where a call is told
    them as one list of integers, its last argument.
    """

    def __init__(self, name: str, plan: Plan, rule: Callable[..., Any] | None) -> None:
        self.rule = rule
        self._name = name
        self._names = ", ".join(arguments.parameter_names(plan))
        self._inputs = len(arguments.inputs_of(plan))
        self._ranks = tuple(len(b.dims) for b in arguments.outputs_of(plan))
        self._known: dict[Hashable, Shapes] = {}

    def traced(self, args: Sequence[Any]) -> Any:
        """Shapes for arguments whose sizes may be symbols."""
        return self.split(args[-1]) if self.rule is None else self.rule(*self._given(args))

    def of(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Shapes]:
        """Arguments of the kernel, and the shapes of its outputs."""
        if self.rule is None:
            return args[:-1], self.split(args[-1])
        key = (*[a.shape for a in args[: self._inputs]], *args[self._inputs :])
        found = self._known.get(key)
        if found is None:
            found = tuple(tuple(map(int, s)) for s in self.rule(*self._given(args)))
            if any(n < 0 for shape in found for n in shape):
                raise ArgumentError(
                    f"{self._name}: its inputs are too small for any output",
                    why=f"{self._names} have {', '.join(map(str, key))}",
                )
            if len(self._known) >= _SHAPES_AT_MOST:
                self._known.clear()
            self._known[key] = found
        return args, found

    def split(self, sizes: Sequence[Any]) -> Shapes:
        """The list of all extents, by output."""
        found: list[tuple[Any, ...]] = []
        for rank in self._ranks:
            at = sum(map(len, found))
            found.append(tuple(sizes[at : at + rank]))
        return tuple(found)

    def _given(self, args: Sequence[Any]) -> list[Any]:
        """What a rule of shapes takes."""
        return [tuple(a.shape) for a in args[: self._inputs]] + list(args[self._inputs :])
