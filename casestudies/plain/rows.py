"""Functions of the rows of a matrix: softmax, RMSNorm, LayerNorm of a sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from casestudies.common.case import Arrays, ArraySpec, Peer
from casestudies.plain.common import EPSILON, RMS, SOFTMAX, tensor
from casestudies.plain.job import plain_case


@dataclass(frozen=True, slots=True)
class Problem:
    types: str
    function: str
    rows: int
    columns: int

    @property
    def name(self) -> str:
        return f"rows-{self.types}-{self.function}-{self.rows}x{self.columns}".replace(" ", "-")

    @property
    def program(self) -> str:
        return self.name

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        """``W`` and ``B``: what normal values are multiplied by, and what is added."""
        shape, one = (self.rows, self.columns), (self.columns,)
        names = {SOFTMAX: "X", RMS: "XW"}.get(self.function, "XRWB")
        element = self.types.split("-")[0]
        return tuple(ArraySpec(n, shape if n in "XR" else one, element) for n in names)

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", (self.rows, self.columns), self.types.split("-")[1])

    @property
    def multiply_adds(self) -> int:
        return 2 * self.rows * self.columns


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    x = inputs["X"]
    if problem.function == SOFTMAX:
        weights = xp.exp(x - x.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)
    if problem.function == RMS:
        return x / xp.sqrt((x * x).mean(1, keepdims=True) + EPSILON) * inputs["W"]
    x = x + inputs["R"]
    x = x - x.mean(1, keepdims=True)
    return x / xp.sqrt((x * x).mean(1, keepdims=True) + EPSILON) * inputs["W"] + inputs["B"]


def _function(problem: Problem) -> Callable[..., Any]:
    from casestudies.common.gpu_torch import torch

    functional, shape = torch.nn.functional, (problem.columns,)
    if problem.function == SOFTMAX:
        return lambda x: torch.softmax(x, 1)
    if problem.function == RMS:
        return lambda x, w: functional.rms_norm(x, shape, w, EPSILON)
    return lambda x, r, w, b: functional.layer_norm(x + r, shape, w, b, EPSILON)


def eager(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
    arrays = [tensor(inputs[s.name], s.element) for s in problem.inputs]
    call = _function(problem)
    return lambda: call(*arrays)


_compiled: dict[Problem, Any] = {}


def compiled(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object]:
    from casestudies.common.gpu_torch import torch

    arrays = [tensor(inputs[s.name], s.element) for s in problem.inputs]
    if problem not in _compiled:
        torch._dynamo.reset()
        _compiled.clear()
        _compiled[problem] = torch.compile(_function(problem), dynamic=False)
    call = _compiled[problem]
    call(*arrays)
    return lambda: call(*arrays)


PEERS = (
    Peer("torch", "softmax, rms_norm, layer_norm of a sum", eager),
    Peer("torch.compile", "the same compiled", compiled),
)
CASE = plain_case("rows", "softmax and normalisation of rows", Problem, reference, PEERS)
