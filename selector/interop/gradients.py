"""Gradients of an operator: a second kernel, as an operator of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch as installed  # pyright: ignore

from selector.diagnostics import ArgumentError
from selector.interop.backward import GRAD, backward_batches
from selector.interop.calls import Call
from selector.kernel import Kernel
from selector.runtime import arguments

torch: Any = installed


class Gradients:
    """Those of the operator of ``call``; ``behind``: the calls and the operator that compute them,
    if anybody has said how.
    """

    def __init__(
        self, name: str, call: Call, behind: tuple[Call, Callable[..., Any]] | None
    ) -> None:
        self.name, self.call, self.behind = name, call, behind
        plan = call.kernel.plan
        self._inputs = [b.name for b in arguments.inputs_of(plan)]
        self._outputs = [b.name for b in arguments.outputs_of(plan)]
        self._scalars = [s.name for s in plan.scalars]
        self._ranks = {b.name: len(b.dims) for b in arguments.inputs_of(plan)}

    def call_of(self, kernel: Kernel, interpreted: bool) -> Call:
        """The operator of a kernel of gradients; ``ArgumentError`` if its names do not fit."""
        batched, gathered = backward_batches(
            self.name, self.call.kernel.plan, self.call.batches.batched, kernel.plan
        )
        return Call(f"{self.name}_backward", kernel, None, batched, interpreted, gathered)

    def setup(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep what the gradients take."""
        if self.behind is None:
            return
        outputs = (output,) if isinstance(output, torch.Tensor) else output
        values = dict(zip(self._inputs + self._scalars, inputs, strict=True))
        values |= dict(zip(self._outputs, outputs, strict=True))
        wanted = [n for n in self.behind[0].names if not n.startswith(GRAD)]
        ctx.save_for_backward(*(values[n] for n in wanted if n not in self._scalars))
        ctx.numbers = {n: values[n] for n in wanted if n in self._scalars}
        ctx.shapes = [tuple(values[n].shape) for n in self._inputs]

    def backward(self, ctx: Any, *grads: Any) -> Any:
        """The gradients of all inputs, None for those that have none."""
        if self.behind is None:
            raise ArgumentError(
                f"{self.name} has no backward",
                hint="torch_op(..., backward=pipeline), or call it under torch.no_grad()",
            )
        call, run = self.behind
        computed = [b.name.removeprefix(GRAD) for b in arguments.outputs_of(call.kernel.plan)]
        needs = ctx.needs_input_grad
        for name, needed in zip(self._inputs, needs, strict=False):
            if needed and name not in computed:
                raise ArgumentError(
                    f"{self.name} has no gradient of {name}",
                    why=f"its backward gives those of {', '.join(computed)}",
                    hint=f"{name}.detach(), or a backward with an output {GRAD}{name}",
                )
        saved = iter(ctx.saved_tensors)
        given = {GRAD + n: g for n, g in zip(self._outputs, grads, strict=True)}
        values = [
            given[n].contiguous()
            if n in given
            else ctx.numbers[n]
            if n in ctx.numbers
            else next(saved)
            for n in call.names
        ]
        shapes = dict(zip(self._inputs, ctx.shapes, strict=True))
        sizes = [n for name in computed for n in self._flat(name, shapes[name])]
        results = run(*values, sizes)
        found = dict(zip(computed, (results,) if call.outputs == 1 else results, strict=True))
        return (*(found.get(n) for n in self._inputs), *(None for _ in self._scalars))

    def _flat(self, name: str, shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """The shape of an input as the kernel has it."""
        if self._inputs.index(name) not in self.call.batches.batched:
            return shape
        at = len(shape) - self._ranks[name] + 1
        return (math.prod(shape[:at]), *shape[at:])


def function_of(overload: Any, gradients: Gradients, batch: Callable[..., Any]) -> Any:
    """The operator as a ``torch.autograd.Function`` that ``torch.func`` understands."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(*args: Any) -> Any:
            with torch._C._AutoDispatchBelowAutograd():
                return overload(*args)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            gradients.setup(ctx, inputs, output)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            found = gradients.backward(ctx, *grads)
            return found if len(found) > 1 else found[0]

        @staticmethod
        def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
            return batch(info, in_dims, *args)

    return Function
