"""Attention of sequences of different lengths, known at the call: arrays have room for
the longest, and one says how long each is. Queries behind a sequence's end give 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from casestudies.common.case import Arrays, ArraySpec, Peer
from casestudies.common.data import random_inputs
from casestudies.plain.common import tensor
from casestudies.plain.job import plain_case
from selector.diagnostics import UserError


@dataclass(frozen=True, slots=True)
class Problem:
    """``sequences`` with lengths from ``shortest`` to ``longest``, evenly, in any order."""

    sequences: int
    shortest: int
    longest: int
    heads: int
    depth: int
    types: str = "f16-f16"
    sharing = 1

    def __post_init__(self) -> None:
        if min(self.sequences, self.heads, self.depth, self.longest - self.shortest + 1) < 1:
            raise UserError(f"attention: no sequences are {self.shortest} ... {self.longest} long")

    @property
    def program(self) -> str:
        sizes = f"{self.sequences}x{self.heads}x{self.longest}"
        return f"plain-attention-lengths-{self.types}-d{self.depth}-{sizes}"

    @property
    def name(self) -> str:
        return f"{self.program}-from{self.shortest}"

    @property
    def operand(self) -> str:
        return self.types.split("-")[0]

    @property
    def factor(self) -> float:
        return self.depth**-0.5

    @property
    def lengths(self) -> tuple[int, ...]:
        steps, room = max(1, self.sequences - 1), self.longest - self.shortest
        return tuple(self.shortest + room * s // steps for s in range(self.sequences))

    @property
    def _rows(self) -> tuple[int, ...]:
        return self.sequences, self.heads, self.longest, self.depth

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        arrays = (ArraySpec(name, self._rows, self.operand) for name in "QKV")
        return (*arrays, ArraySpec("lengths", (self.sequences,), "s32"))

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", self._rows, self.types.split("-")[1])

    @property
    def multiply_adds(self) -> int:
        return 2 * self.heads * self.depth * sum(n * n for n in self.lengths)


def random(problem: Problem, seed: int, xp: Any) -> Arrays:
    inputs = random_inputs(problem, seed, xp)
    order = xp.random.RandomState(seed).permutation(problem.sequences)
    inputs["lengths"] = xp.asarray(problem.lengths, dtype=xp.int32)[order]
    return inputs


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    result = xp.zeros(problem.output.shape, dtype=xp.float64)
    for sequence, length in enumerate(map(int, inputs["lengths"])):
        if not length:
            continue
        for head in range(problem.heads):
            q, k, v = (inputs[name][sequence, head, :length] for name in "QKV")
            scores = q @ k.T * problem.factor
            weights = xp.exp(scores - scores.max(axis=1, keepdims=True))
            result[sequence, head, :length] = weights @ v / weights.sum(axis=1, keepdims=True)
    return result


def _tensors(problem: Problem, inputs: Arrays) -> tuple[list[Any], Any]:
    arrays = [tensor(inputs[name], problem.operand) for name in "QKV"]
    return arrays, tensor(inputs["lengths"])


def _packed(problem: Problem, inputs: Arrays) -> tuple[list[Any], Any]:
    """Tokens of all sequences, one after the other, by heads and channels; where each begins."""
    from casestudies.common.gpu_torch import torch

    arrays, lengths = _tensors(problem, inputs)
    kept = torch.arange(problem.longest, device="cuda")[None] < lengths[:, None]
    ends = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
    return [x.transpose(1, 2)[kept].contiguous() for x in arrays], ends


def packed(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    (q, k, v), ends = _packed(problem, inputs)
    longest = problem.longest
    return lambda: varlen_attn(q, k, v, ends, ends, longest, longest)


def nested(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    from casestudies.common.gpu_torch import torch

    arrays, ends = _packed(problem, inputs)
    made = torch.nested.nested_tensor_from_jagged
    bounds = {"min_seqlen": problem.shortest, "max_seqlen": problem.longest}
    q, k, v = (made(x, offsets=ends, **bounds).transpose(1, 2) for x in arrays)
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)


def flexible(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    from torch.nn.attention.flex_attention import create_block_mask

    from casestudies.attention.bench import compiled_flexible

    (q, k, v), lengths = _tensors(problem, inputs)

    def seen(b: Any, h: Any, m: Any, n: Any) -> Any:
        return (n < lengths[b]) & (m < lengths[b])

    blocks = create_block_mask(
        seen, problem.sequences, None, problem.longest, problem.longest, device="cuda"
    )
    attend = compiled_flexible()
    return lambda: attend(q, k, v, block_mask=blocks)


PEERS = (
    Peer("varlen_attn", "torch's FlashAttention of packed sequences", packed),
    Peer("nested tensors", "scaled_dot_product_attention of jagged nested tensors", nested),
    Peer("flex_attention", "torch.compile of flex_attention with a mask of blocks", flexible),
)

CASE = plain_case(
    "lengths", "attention of sequences of different lengths", Problem, reference, PEERS, random
)
