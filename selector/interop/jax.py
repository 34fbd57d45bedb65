"""Kernels as functions of JAX: calls of XLA's foreign function interface under ``jit``, ``vmap``
and ``grad``.

A kernel is exported (``selector.interop.ahead``) and compiled when a function with it is first
traced, once for each size class. Reading it back from a file takes no Halide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax as installed  # pyright: ignore
import jax.custom_batching  # pyright: ignore
import numpy as np

from selector.diagnostics import ArgumentError
from selector.interop import shapes
from selector.interop.ahead import jax_handler, shared
from selector.interop.ahead.export import files_of
from selector.interop.backward import GRAD, backward_batches
from selector.interop.batches import Batches
from selector.interop.operator import asked_for, kernel_of
from selector.interop.results import Results, Shapes
from selector.ir.nodes import BufferParam
from selector.ir.types import Kind
from selector.kernel import Kernel
from selector.runtime import arguments
from selector.runtime.arrays import accepted_dtypes

jax: Any = installed
_registered: dict[int, tuple[Kernel, str]] = {}  # by the kernel, which is kept
_libraries: dict[str, Any] = {}


class JaxOp:
    """A kernel as a function of JAX's arrays, then Python's numbers, in calling order or by name.

    Numbers are constants of what is traced. The result is an array, or a tuple of several.
    """

    def __init__(
        self, work: Work, rule: Callable[..., Any], backward: Work | None, name: str
    ) -> None:
        self._work, self._backward, self._name = work, backward, name
        self._results = Results(name, work.kernel.plan, rule)

    def __call__(self, *args: Any, **named: Any) -> Any:
        plan = self._work.kernel.plan
        values = arguments.match_names(plan, args, named)
        arrays = [jax.numpy.asarray(values[b.name]) for b in self._work.inputs]
        numbers = {s.name: _number(s, values[s.name]) for s in plan.scalars}
        results = self._differentiable(numbers)(*arrays)
        return results[0] if len(results) == 1 else results

    def __repr__(self) -> str:
        return (
            f"<JaxOp {self._name}({', '.join(arguments.parameter_names(self._work.kernel.plan))})>"
        )

    def _differentiable(self, numbers: dict[str, Any]) -> Callable[..., Any]:
        run = self._forward(numbers)
        function: Any = jax.custom_vjp(run)

        def forward(*given: Any) -> Any:
            arrays = [g.value for g in given]
            wanted = [b.name for b, g in zip(self._work.inputs, given, strict=True) if g.perturbed]
            self._check_gradients(wanted)
            results = run(*arrays)
            return results, (arrays, results)

        def backward(kept: Any, grads: Any) -> Any:
            arrays, results = kept
            return self._gradients(arrays, results, grads, numbers)

        function.defvjp(forward, backward, symbolic_zeros=True)
        return function

    def _forward(self, numbers: dict[str, Any]) -> Callable[..., Any]:
        def once(*arrays: Any) -> Any:
            flat, lead = self._work.batches.flat(arrays)
            self._work.check(flat)
            _, found = self._results.of((*flat, *(v.item() for v in numbers.values())))
            return tuple(self._work.batches.restored(self._work.call(flat, numbers, found), lead))

        return _batched(once, self._work)

    def _check_gradients(self, wanted: Sequence[str]) -> None:
        if not wanted:
            return
        if self._backward is None:
            raise ArgumentError(
                f"{self._name} has no backward",
                hint="jax_op(..., backward=pipeline), or jax.lax.stop_gradient",
            )
        computed = [b.name.removeprefix(GRAD) for b in self._backward.outputs]
        for name in sorted({*wanted} - {*computed}):
            raise ArgumentError(
                f"{self._name} has no gradient of {name}",
                why=f"its backward gives those of {', '.join(computed)}",
                hint=f"jax.lax.stop_gradient({name}), or a backward with an output {GRAD}{name}",
            )

    def _gradients(
        self, arrays: Sequence[Any], results: Any, grads: Any, numbers: dict[str, Any]
    ) -> Any:
        """The gradients of all inputs, None for those that have none."""
        work = self._backward
        assert work is not None
        values = dict(zip((b.name for b in self._work.inputs), arrays, strict=True))
        shaped = dict(values)
        for buffer, result, grad in zip(self._work.outputs, results, grads, strict=True):
            zero = isinstance(grad, jax.custom_derivatives.SymbolicZero)
            values[buffer.name] = result
            values[GRAD + buffer.name] = jax.numpy.zeros_like(result) if zero else grad
        own = {s.name: numbers[s.name] for s in work.kernel.plan.scalars}
        like = [shaped[b.name.removeprefix(GRAD)] for b in work.outputs]

        def once(*given: Any) -> Any:
            """Inputs of the kernel, then arrays of the shapes of its results."""
            count = len(work.inputs)
            flat, lead = work.batches.flat(given[:count])
            ranks = [len(b.dims) for b in work.outputs]
            found = tuple(
                (int(np.prod(a.shape[: a.ndim - r + 1])), *a.shape[a.ndim - r + 1 :])
                if i in work.batches.gathered and lead is not None
                else tuple(a.shape)
                for i, (a, r) in enumerate(zip(given[count:], ranks, strict=True))
            )
            work.check(flat)
            return tuple(work.batches.restored(work.call(flat, own, found), lead))

        given = [values[b.name] for b in work.inputs]
        results = _batched(once)(*given, *like)
        found = dict(zip((b.name for b in work.outputs), results, strict=True))
        return tuple(found.get(GRAD + b.name) for b in self._work.inputs)


class Work:
    """A kernel with its axes of batches. ``interpreted``: on the CPU, in NumPy."""

    def __init__(self, kernel: Kernel, batches: Batches, interpreted: bool) -> None:
        self.kernel, self.batches, self.interpreted = kernel, batches, interpreted
        self.inputs = arguments.inputs_of(kernel.plan)
        self.outputs = arguments.outputs_of(kernel.plan)

    def check(self, arrays: Sequence[Any]) -> None:
        """``ArgumentError`` for arrays of another dtype or rank than the kernel has."""
        for buffer, array in zip(self.inputs, arrays, strict=True):
            if array.dtype != _dtype(buffer) or array.ndim != len(buffer.dims):
                raise ArgumentError(
                    f"{buffer.name}: expected {len(buffer.dims)} axes of {_dtype(buffer)}, got "
                    f"{array.ndim} of {array.dtype}",
                    why=f"its shape is {tuple(array.shape)}",
                    hint=f"{buffer.name}.astype('{_dtype(buffer)}')"
                    if array.dtype != _dtype(buffer)
                    else "",
                )

    def call(self, arrays: Sequence[Any], numbers: dict[str, Any], found: Shapes) -> Any:
        """The results, which have these shapes."""
        made = tuple(
            jax.ShapeDtypeStruct(s, _dtype(b)) for s, b in zip(found, self.outputs, strict=True)
        )
        if self.interpreted:
            interpret = partial(self._interpret, numbers, found)
            return jax.pure_callback(interpret, made, *arrays)
        names = [b.name for b in (*self.inputs, *self.outputs)]
        all_shapes = (*(tuple(a.shape) for a in arrays), *found)
        kernel = self.kernel.program_for(dict(zip(names, all_shapes, strict=True)))
        attributes = {f"number_{i}": v for i, v in enumerate(numbers.values())}
        return jax.ffi.ffi_call(_target(kernel), made)(*arrays, **attributes)

    def _interpret(self, numbers: dict[str, Any], found: Shapes, *given: Any) -> Any:
        sizes = dict(zip((b.name for b in self.outputs), found, strict=True))
        values = [np.asarray(g) for g in given]
        results = self.kernel.interpret(*values, **numbers, sizes=sizes)
        several = [results] if len(self.outputs) == 1 else list(results.values())
        return tuple(
            np.asarray(r).view(_dtype(b)) for r, b in zip(several, self.outputs, strict=True)
        )


def jax_op(
    kernel: Any,
    *,
    shape: str | Callable[..., Any] | None = None,
    batched: Sequence[str] = (),
    backward: Any = None,
    target: str = "cuda",
    cpu: str = "refuse",
) -> JaxOp:
    """A function of JAX from a kernel, the path of a saved one, a pipeline, or an operator of
    ``halide_bridge.operators``.

    ``shape``, ``batched`` and ``backward`` are those of ``selector.interop.torch.torch_op``;
    ``target`` is what a pipeline is compiled for: a GPU, or ``"amx"`` for arrays on the CPU.
    ``cpu="interpret"`` runs a kernel for a GPU in NumPy: slow, for tests. ``ArgumentError`` for
    names that do not fit.
    """
    asked, interpreted = asked_for(kernel, shape, batched, backward, cpu)
    first = kernel_of(asked.kernel, target)
    name = first.name
    work = Work(first, Batches.of(first.plan, asked.batched), interpreted)
    behind = None
    if asked.backward is not None:
        second = kernel_of(asked.backward, target)
        own, gathered = backward_batches(name, first.plan, work.batches.batched, second.plan)
        behind = Work(second, Batches.of(second.plan, own, gathered), interpreted)
    return JaxOp(work, shapes.rule_of(first.plan, asked.shape), behind, name)


def _target(kernel: Kernel) -> str:
    """The name that XLA knows the kernel by; compiled and registered when first asked for."""
    known = _registered.get(id(kernel))
    if known is None:
        programs = kernel.programs_to_export()
        text = "".join(files_of("kernel_of_selector", programs).values())
        # By what it is: XLA may find what was compiled by another process, which knows the name.
        name = f"selector_{hashlib.sha256(text.encode()).hexdigest()[:32]}"
        if name not in _libraries:
            files = files_of(name, programs)
            files |= {f"{name}_jax.cpp": jax_handler.handler_text(name, kernel.plan)}
            library = _libraries[name] = shared.load(files, [jax.ffi.include_dir()])
            host = kernel.target.family == "amx"
            symbol = getattr(library, jax_handler.HOST if host else jax_handler.GPU)
            platform = "cpu" if host else "CUDA"
            jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(symbol), platform=platform)
        known = _registered[id(kernel)] = (kernel, name)
    return known[1]


def _batched(once: Callable[..., Any], work: Work | None = None) -> Callable[..., Any]:
    """With a rule for ``jax.vmap``: at once if only the batched inputs of ``work`` have the new
    axis, else one by one.
    """
    run = jax.custom_batching.custom_vmap(once)

    def rule(size: int, mapped: Sequence[bool], *arrays: Any) -> Any:
        axes = {i: 0 for i, m in enumerate(mapped) if m}
        if work is not None and work.batches.together(axes, len(work.outputs)):
            moved = list(arrays)
            for i in work.batches.batched:
                if i not in axes:
                    moved[i] = jax.numpy.broadcast_to(arrays[i], (size, *arrays[i].shape))
            results = run(*moved)
        else:
            results = _one_by_one(run, mapped, arrays)
        return results, (True,) * len(results)

    run.def_vmap(rule)
    return run


def _one_by_one(run: Callable[..., Any], mapped: Sequence[bool], arrays: Sequence[Any]) -> Any:
    def step(own: Any) -> Any:
        rest = iter(own)
        return run(*(next(rest) if m else a for m, a in zip(mapped, arrays, strict=True)))

    return jax.lax.map(step, tuple(a for m, a in zip(mapped, arrays, strict=True) if m))


def _number(scalar: Any, value: Any) -> Any:
    if isinstance(value, jax.core.Tracer):
        raise ArgumentError(
            f"{scalar.name} is traced, and numbers of a kernel are constants of the trace",
            hint=f"mark it as static: jax.jit(..., static_argnames={scalar.name!r})",
        )
    return arguments.check_scalar(scalar, value)


def _dtype(buffer: BufferParam) -> Any:
    if buffer.type.kind is Kind.BFLOAT:
        return jax.numpy.bfloat16.dtype
    return np.dtype(accepted_dtypes(buffer.type)[0])
