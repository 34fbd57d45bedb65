"""What a kernel of gradients takes and gives, by names: inputs and outputs of the first kernel as
they are, and ``grad_NAME``.
"""

from __future__ import annotations

from collections.abc import Sequence

from selector.diagnostics import ArgumentError
from selector.runtime import arguments
from selector.runtime.plan import Plan

GRAD = "grad_"


def backward_batches(
    name: str, first: Plan, batched: Sequence[int], second: Plan
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The inputs of the second kernel with axes of batches, and the outputs, where ``batched`` says
    which inputs of the first one have them. ``ArgumentError`` if its names do not fit.
    """
    inputs = [b.name for b in arguments.inputs_of(first)]
    outputs = [b.name for b in arguments.outputs_of(first)]
    names = arguments.parameter_names(second)
    known = {*inputs, *outputs, *(s.name for s in first.scalars), *(GRAD + n for n in outputs)}
    for each in names:
        if each not in known:
            raise ArgumentError(
                f"backward of {name}: what is its input {each!r}?",
                why=f"it can be given {', '.join(sorted(known))}",
            )
    for buffer in arguments.outputs_of(second):
        if buffer.name.removeprefix(GRAD) not in inputs or GRAD not in buffer.name:
            raise ArgumentError(
                f"backward of {name}: what is its output {buffer.name!r}?",
                why=f"it can give {', '.join(GRAD + n for n in inputs)}",
            )
    own = [inputs[i] for i in batched]
    alike = {*own, *(outputs if own else ())}
    return (tuple(n for n in names if n.removeprefix(GRAD) in alike), tuple(GRAD + n for n in own))
