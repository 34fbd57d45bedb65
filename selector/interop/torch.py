"""Compiled pipelines as PyTorch operators.

``torch_op`` registers a kernel through ``torch.library.Library`` (a call costs a quarter of what
the decorators cost): what it computes on a GPU, what it would give (for tracing), its gradients and
how it is batched. What users call is a ``TorchOp``: it goes below autograd where no gradient is
wanted, and through a ``torch.autograd.Function`` where one is, which ``torch.func`` understands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch as installed  # pyright: ignore

from selector.diagnostics import ArgumentError
from selector.interop import shapes
from selector.interop.calls import Call
from selector.interop.gradients import Gradients, function_of
from selector.interop.operator import asked_for, kernel_of
from selector.ir.nodes import ScalarParam
from selector.ir.types import Kind

torch: Any = installed

_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*")
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
_OPEN: dict[str, TorchOp] = {}  # operators live as long as the process


class TorchOp:
    """An operator that ``torch_op`` has registered. ``kernel``: what it runs; ``backward``: what
    its gradients run, if there are any; ``overload``: what ``torch.ops`` has. Calling it takes
    tensors in the kernel's order, then numbers, or by name.
    """

    def __init__(self, call: Call, gradients: Gradients, library: Any) -> None:
        self.name, self.kernel = call.name, call.kernel
        self.backward = None if gradients.behind is None else gradients.behind[0].kernel
        self.overload: Any = _overload(call.name)
        self._library = library  # the registration lives as long as this
        self._call, self._names, self._inputs = call, call.names, call.inputs
        self._functorch: Callable[[], bool] = torch._C._are_functorch_transforms_active
        batch = call.batch_rule(self)
        torch.library.register_vmap(call.name, batch, lib=library)
        self._function = function_of(self.overload, gradients, batch)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run it: a tensor, or a tuple of them if there are several outputs.

        ``ArgumentError`` for tensors that do not fit, with the way out.
        """
        if named or len(args) < len(self._names):
            args = self._in_order(args, named)
        if torch.compiler.is_compiling():
            return self.overload(*args)
        gradient = torch.is_grad_enabled() and any(map(_wants_gradient, args))
        if not gradient and _plain(args[: self._inputs]):  # torch's dispatcher would do the same
            return self._call.on_gpu(*args)
        if gradient or self._functorch():
            return self._function.apply(*args)
        with torch._C._AutoDispatchBelowAutograd():
            return self.overload(*args)

    def _in_order(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        left = self._names[len(args) :]
        if set(left) != set(named):
            raise ArgumentError(
                f"{self.name} takes {', '.join(self._names)}",
                why=f"got {len(args)} by position, and {', '.join(named) or 'none by name'}",
            )
        return (*args, *(named[name] for name in left))

    def __repr__(self) -> str:
        return f"<TorchOp {self.name}({', '.join(self._names)})>"


def torch_op(
    name: str,
    kernel: Any,
    *,
    shape: str | Callable[..., Any] | None = None,
    batched: Sequence[str] = (),
    backward: Any = None,
    cpu: str = "refuse",
    target: str = "cuda",
) -> TorchOp:
    """Register a compiled pipeline as the operator ``name``, such as ``"mylib::blur"``.

    ``kernel``: a kernel, the path of a saved one, or a Halide pipeline, which is scheduled and
    compiled for ``target`` (``halide_bridge.compile``); or an ``Operator`` with all of these, such
    as those of ``halide_bridge.operators``. ``shape``: the input whose shape the output
    has, or a function of the inputs' shapes (and numbers), in the kernel's order, that gives it (a
    dict by name for several outputs); without, it is what the inputs suffice for. ``batched``:
    inputs whose first axis counts things that are computed alike, one by one, and so does the
    outputs': they, and the outputs, may then have any number of axes in its place. ``cpu``: what
    tensors on the CPU are, an error (``"refuse"``) or ``"interpret"``: slow, for tests.

    ``backward``: a kernel, path or pipeline for the gradients. Of its inputs, those with the name
    of an input or output of ``kernel`` are that, ``grad_NAME`` is the gradient of the output NAME;
    its outputs ``grad_NAME`` are the gradients of inputs, and have their shapes. ``"adjoint"``: the
    one that ``halide_bridge.adjoint`` writes for a pipeline that is a sum of products.

    The operator has an implementation for CUDA (on torch's current stream, capturable), one for
    tracing, and the rule of batching for ``torch.vmap``; ``torch.compile`` breaks no graph at it.
    ``ArgumentError`` for a name that is taken or none, and for names of ``backward`` that do not
    fit.
    """
    if _NAME.fullmatch(name) is None:
        raise ArgumentError(
            f"{name!r} is no name of an operator", hint='a namespace and a name: "mylib::blur"'
        )
    if name in _OPEN or hasattr(getattr(torch.ops, name.split("::")[0]), name.split("::")[1]):
        raise ArgumentError(f"there is an operator {name} already", hint="choose another name")
    asked, interpreted = asked_for(kernel, shape, batched, backward, cpu)
    forward = kernel_of(asked.kernel, target)
    rule = shapes.rule_of(forward.plan, asked.shape)
    call = Call(name, forward, rule, asked.batched, interpreted)
    library = torch.library.Library(name.split("::")[0], "FRAGMENT")
    gradients = Gradients(name, call, None)
    if asked.backward is not None:
        second = kernel_of(asked.backward, target)
        behind = gradients.call_of(second, interpreted)
        nothing = Gradients(behind.name, behind, None)
        gradients = Gradients(name, call, (behind, _defined(library, behind, nothing)))
    found = _OPEN[name] = _defined(library, call, gradients)
    return found


def _defined(library: Any, call: Call, gradients: Gradients) -> TorchOp:
    local = call.name.split("::")[1]
    library.define(f"{local}{schema_of(call)}", tags=_TAGS)
    library.impl(local, call.on_gpu, "CUDA")
    library.impl(local, call.on_cpu, "CPU")
    torch.library.register_fake(call.name, call.traced, lib=library)
    torch.library.register_autograd(
        call.name, gradients.backward, setup_context=gradients.setup, lib=library
    )
    return TorchOp(call, gradients, library)


def schema_of(call: Call) -> str:
    """What torch is told of arguments and results."""
    plan = call.kernel.plan
    tensors = [f"Tensor {name}" for name in call.names[: call.inputs]]
    numbers = zip(plan.scalars, call.names[call.inputs :], strict=True)
    scalars = [f"{_kind(scalar)} {name}" for scalar, name in numbers]
    sizes = ["SymInt[] sizes"] if call.results.rule is None else []
    results = ", ".join(["Tensor"] * call.outputs)
    return f"({', '.join(tensors + scalars + sizes)}) -> " + (
        results if call.outputs == 1 else f"({results})"
    )


def _kind(scalar: ScalarParam) -> str:
    if scalar.type.is_bool:
        return "bool"
    return "float" if scalar.type.kind in (Kind.FLOAT, Kind.BFLOAT) else "int"


def _overload(name: str) -> Any:
    namespace, local = name.split("::")
    return getattr(getattr(torch.ops, namespace), local).default


def _plain(tensors: Sequence[Any]) -> bool:
    """Whether these are tensors of a GPU and nothing else (no subclass, no view of a conjugate, not
    wrapped by a transformation), and nobody looks at what is called with them.
    """
    if torch._C._len_torch_dispatch_stack():
        return False
    keys, known = torch._C._dispatch_keys, _plain_keys()
    for t in tensors:  # no generator: this is part of what a call costs
        if not isinstance(t, torch.Tensor) or keys(t).raw_repr() not in known:
            return False
    return True


@cache
def _plain_keys() -> frozenset[int]:
    if not torch.cuda.is_available():
        return frozenset()
    made = [torch.empty(0, device="cuda")]
    with torch.inference_mode():
        made.append(torch.empty(0, device="cuda"))
    return frozenset(torch._C._dispatch_keys(t).raw_repr() for t in made)


def _wants_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
