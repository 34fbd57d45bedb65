"""Axes of batches in a call of an operator: any number of them stands for the first axis of some
inputs, and of the outputs, which counts what is computed one by one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from selector.dataclass import dataclass
from selector.diagnostics import ArgumentError
from selector.runtime import arguments
from selector.runtime.plan import Plan


@dataclass(frozen=True, slots=True)
class Batches:
    """``batched``: positions of the inputs with such axes; ``gathered``: of the outputs.
    ``names`` and ``ranks`` are those of the inputs.
    """

    names: tuple[str, ...]
    ranks: tuple[int, ...]
    batched: tuple[int, ...]
    gathered: frozenset[int]

    @staticmethod
    def of(plan: Plan, batched: Sequence[str], gathered: Sequence[str] | None = None) -> Batches:
        """By the names of inputs, and of outputs: all of them where nothing is said.
        ``ArgumentError`` for a name that is no input.
        """
        inputs, known = arguments.inputs_of(plan), arguments.parameter_names(plan)
        for wrong in sorted({*batched} - {b.name for b in inputs}):
            raise ArgumentError(
                f"batched=: {plan.name} has no input {wrong!r}", why=f"it takes {', '.join(known)}"
            )
        outputs = arguments.outputs_of(plan)
        return Batches(
            tuple(b.name for b in inputs),
            tuple(len(b.dims) for b in inputs),
            tuple(i for i, b in enumerate(inputs) if b.name in batched),
            frozenset(i for i, b in enumerate(outputs) if gathered is None or b.name in gathered),
        )

    def flat(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        """The arguments with one axis for those of batches, which are returned; None where they
        have one.
        """
        for i in self.batched:
            if args[i].ndim != self.ranks[i]:
                break
        else:
            return args, None
        first = self.batched[0]
        lead = tuple(args[first].shape[: args[first].ndim - self.ranks[first] + 1])
        changed = list(args)
        for i in self.batched:
            array, inner = args[i], self.ranks[i] - 1
            own = tuple(array.shape[: max(0, array.ndim - inner)])
            if array.ndim < inner or own != lead:
                raise ArgumentError(
                    f"{self.names[i]}: its shape is {tuple(array.shape)}",
                    why=f"{self.names[first]} has the batch {lead}, and the last {inner} axes of "
                    f"{self.names[i]} are its own",
                )
            changed[i] = array.reshape(math.prod(lead), *array.shape[len(lead) :])
        return tuple(changed), lead

    def restored(self, found: Sequence[Any], lead: Any) -> list[Any]:
        """Results with the axes of batches."""
        if lead is None:
            return list(found)
        return [
            r.reshape(*lead, *r.shape[1:]) if i in self.gathered else r for i, r in enumerate(found)
        ]

    def together(self, mapped: Mapping[int, int], outputs: int) -> bool:
        """Whether calls that differ in these arguments alone are one call."""
        everything = len(self.gathered) == outputs
        return bool(self.batched) and everything and mapped.keys() <= set(self.batched)
