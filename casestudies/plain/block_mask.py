"""Attention behind a mask of whole blocks of queries and keys, the same for all heads, which is
known at the call. A query without any key gives 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from casestudies.common.case import Arrays, ArraySpec, Peer
from casestudies.common.data import random_inputs
from casestudies.plain.common import BLOCK, tensor
from casestudies.plain.job import plain_case
from selector.diagnostics import UserError


@dataclass(frozen=True, slots=True)
class Problem:
    """``kept``: the share of the blocks of keys that each block of queries has, at least one."""

    heads: int
    length: int
    depth: int
    kept: float
    types: str = "f16-f16"
    sharing = 1

    def __post_init__(self) -> None:
        if min(self.heads, self.length, self.depth) < 1 or not 0 < self.kept <= 1:
            raise UserError(f"attention: {self.kept} of {self.length} keys is not a size")

    @property
    def program(self) -> str:
        return f"plain-attention-blocks-{self.types}-d{self.depth}-{self.heads}x{self.length}"

    @property
    def name(self) -> str:
        return f"{self.program}-kept{self.kept:g}"

    @property
    def operand(self) -> str:
        return self.types.split("-")[0]

    @property
    def factor(self) -> float:
        return self.depth**-0.5

    @property
    def blocks(self) -> int:
        return -(-self.length // BLOCK)

    @property
    def blocks_kept(self) -> int:
        return max(1, round(self.kept * self.blocks))

    @property
    def _rows(self) -> tuple[int, ...]:
        return self.heads, self.length, self.depth

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        arrays = (ArraySpec(name, self._rows, self.operand) for name in "QKV")
        return (*arrays, ArraySpec("mask", (self.blocks, self.blocks), "u8"))

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", self._rows, self.types.split("-")[1])

    @property
    def multiply_adds(self) -> int:
        keys = min(self.length, self.blocks_kept * BLOCK)
        return 2 * self.heads * self.length * keys * self.depth


def random(problem: Problem, seed: int, xp: Any) -> Arrays:
    inputs = random_inputs(problem, seed, xp)
    ranks = xp.random.RandomState(seed).random_sample((problem.blocks,) * 2).argsort(axis=1)
    inputs["mask"] = (ranks < problem.blocks_kept).astype(xp.uint8)
    return inputs


def reference(problem: Problem, inputs: Mapping[str, Any], xp: Any) -> Any:
    seen = xp.kron(inputs["mask"], xp.ones((BLOCK, BLOCK)))[: problem.length, : problem.length] > 0
    result = xp.empty(problem.output.shape, dtype=xp.float64)
    for head in range(problem.heads):
        q, k, v = (inputs[name][head] for name in "QKV")
        scores = xp.where(seen, q @ k.T * problem.factor, -math.inf)
        top = xp.maximum(scores.max(axis=1, keepdims=True), -1e300)
        weights = xp.exp(scores - top)
        total = weights.sum(axis=1, keepdims=True)
        result[head] = weights @ v / xp.where(total > 0, total, 1)
    return result


def _tensors(problem: Problem, inputs: Arrays) -> tuple[list[Any], Any]:
    arrays = [tensor(inputs[name], problem.operand)[None] for name in "QKV"]
    return arrays, tensor(inputs["mask"])


def flexible(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    from torch.nn.attention.flex_attention import create_block_mask

    from casestudies.attention.bench import compiled_flexible

    (q, k, v), mask = _tensors(problem, inputs)

    def seen(b: Any, h: Any, m: Any, n: Any) -> Any:
        return mask[m // BLOCK, n // BLOCK] != 0

    blocks = create_block_mask(seen, None, None, problem.length, problem.length, device="cuda")
    attend = compiled_flexible()
    return lambda: attend(q, k, v, block_mask=blocks)


def masked(problem: Problem, inputs: Arrays, output: Any) -> Callable[[], object] | None:
    from casestudies.common.gpu_torch import torch

    (q, k, v), mask = _tensors(problem, inputs)
    seen = mask.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1) != 0
    seen = seen[: problem.length, : problem.length].contiguous()[None, None]
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)


PEERS = (
    Peer("flex_attention", "torch.compile of flex_attention with a mask of blocks", flexible),
    Peer("masked", "scaled_dot_product_attention with a mask of queries and keys", masked),
)

CASE = plain_case(
    "block_mask", "attention behind a mask of blocks", Problem, reference, PEERS, random
)
