"""What an operator does when it is called: on a GPU, on the CPU, and when it is only traced.

Kept short where all is well: contiguous tensors of one GPU go to the kernel as they are. Any other
layout that the kernel can read goes as well, else as a copy; axes of batches become one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch as installed  # pyright: ignore

from selector.diagnostics import ArgumentError
from selector.interop.batches import Batches
from selector.interop.results import Results
from selector.ir.types import Kind
from selector.kernel import Kernel
from selector.runtime import arguments
from selector.runtime.arrays import accepted_dtypes, view

torch: Any = installed


class Call:
    """The calls of one operator. ``rule``: shapes of inputs and numbers to those of all outputs;
    None for an operator that is told them as one list of integers, its last argument. ``batched``:
    inputs with any number of axes for the first one; ``gathered``: outputs for which that holds as
    well, by default all.
    """

    def __init__(
        self,
        name: str,
        kernel: Kernel,
        rule: Callable[..., Any] | None,
        batched: tuple[str, ...],
        interpreted: bool,
        gathered: Sequence[str] | None = None,
    ) -> None:
        plan = kernel.plan
        self.name, self.kernel, self.interpreted = name, kernel, interpreted
        self._inputs, outputs = arguments.inputs_of(plan), arguments.outputs_of(plan)
        self.inputs, self.outputs = len(self._inputs), len(outputs)
        known = arguments.parameter_names(plan)
        self.names = tuple(re.sub(r"\W", "_", n) for n in known)
        self.batches = Batches.of(plan, batched, gathered)
        self.results = Results(name, plan, rule)
        self._out_names = tuple(b.name for b in outputs)
        self._dtypes = tuple(_dtype(b) for b in outputs)

    def on_gpu(self, *args: Any) -> Any:
        """Run on torch's current stream."""
        lead = None
        if self.batches.batched:
            args, lead = self.batches.flat(args)
        device = args[0].device if self.inputs else None
        for tensor in args[: self.inputs]:
            if tensor.device != device or not tensor.is_contiguous():
                args = self._laid_out(args)
                break
        args, found = self.results.of(args)
        like = args[0]
        made = [like.new_empty(s, dtype=t) for s, t in zip(found, self._dtypes, strict=True)]
        if len(made) == 1:
            self.kernel(*args, out=made[0])
        else:
            self.kernel(*args, out=dict(zip(self._out_names, made, strict=True)))
        return self._result(made, lead)

    def on_cpu(self, *args: Any) -> Any:
        """Run in the interpreter, or say that it has to be on a GPU."""
        if not self.interpreted:
            raise ArgumentError(
                f"{self.names[0]} is on the CPU, and {self.name} runs on a GPU",
                hint=f"{self.names[0]}.cuda(); for tests without a GPU: torch_op(..., "
                "cpu='interpret')",
            )
        args, lead = self.batches.flat(args)
        self._check(args)
        args, found = self.results.of(args)
        sizes = dict(zip(self._out_names, found, strict=True))
        results = self.kernel.interpret(*args, sizes=sizes)
        return self._result([results] if self.outputs == 1 else list(results.values()), lead)

    def traced(self, *args: Any) -> Any:
        """Empty results of the right shapes; ``ArgumentError`` for dtypes and ranks that do not
        fit.
        """
        args, lead = self.batches.flat(args)
        self._check(args)
        found = self.results.traced(args)
        made = [args[0].new_empty(s, dtype=t) for s, t in zip(found, self._dtypes, strict=True)]
        return self._result(made, lead)

    def batch_rule(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """How ``torch.vmap`` runs it: at once if only the batched inputs have the new axis, else
        one by one.
        """

        def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
            mapped = {i: d for i, d in enumerate(in_dims) if isinstance(d, int)}
            if self.batches.together(mapped, self.outputs):
                results = run(*self._merged(mapped, args, info.batch_size))
            else:
                each = [
                    run(*(a.select(mapped[i], n) if i in mapped else a for i, a in enumerate(args)))
                    for n in range(info.batch_size)
                ]
                if self.outputs == 1:
                    results = torch.stack(each)
                else:
                    results = tuple(map(torch.stack, zip(*each, strict=True)))
            return results, 0 if self.outputs == 1 else (0,) * self.outputs

        return rule

    def _merged(self, mapped: Mapping[int, int], args: Sequence[Any], count: int) -> list[Any]:
        """Arguments whose batches have ``count`` times as many elements, along a new axis."""
        moved = [a.movedim(mapped[i], 0) if i in mapped else a for i, a in enumerate(args)]
        for i in self.batches.batched:
            if i not in mapped:
                moved[i] = moved[i].expand(count, *moved[i].shape)
        if self.results.rule is None:
            own = self.results.split(moved[-1])
            moved[-1] = [n for first, *rest in own for n in (first * count, *rest)]
        return moved

    def _check(self, args: Sequence[Any]) -> None:
        """``ArgumentError`` for tensors of another dtype or rank than the kernel has."""
        for buffer, tensor in zip(self._inputs, args, strict=False):
            if tensor.dtype != _dtype(buffer) or tensor.dim() != len(buffer.dims):
                raise ArgumentError(
                    f"{buffer.name}: expected {len(buffer.dims)} axes of {_dtype(buffer)}, got "
                    f"{tensor.dim()} of {tensor.dtype}",
                    why=f"its shape is {tuple(tensor.shape)}",
                    hint=f"{buffer.name}.to({_dtype(buffer)})"
                    if tensor.dtype != _dtype(buffer)
                    else "",
                )

    def _laid_out(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments in layouts that the kernel reads. ``ArgumentError`` if they are apart."""
        changed = list(args)
        first = args[0].device
        for i, buffer in enumerate(self._inputs):
            if args[i].device != first:
                raise ArgumentError(
                    f"{self.names[i]} is on {args[i].device}, {self.names[0]} on {first}",
                    hint=f"{self.names[i]}.to({str(first)!r})",
                )
            if not args[i].is_contiguous():
                seen = view(buffer.name, args[i])
                shared = 0 in seen.strides
                if shared or arguments.strides_fit(buffer, seen):
                    changed[i] = args[i].contiguous()
        return tuple(changed)

    def _result(self, found: list[Any], lead: Any) -> Any:
        """What is returned; with the axes of batches."""
        found = self.batches.restored(found, lead)
        return found[0] if self.outputs == 1 else tuple(found)


def _dtype(buffer: Any) -> Any:
    if buffer.type.kind is Kind.BFLOAT:
        return torch.bfloat16
    return getattr(torch, accepted_dtypes(buffer.type)[0])
