"""Attention as it is defined, which the compiler schedules: the problems, inputs and libraries of
the case study, in arrays of heads, queries and channels. Heads that share keys read those of their
group, as users write it.
"""

from __future__ import annotations

from dataclasses import dataclass

from casestudies.attention import CASE as OWN
from casestudies.attention import random
from casestudies.attention.problem import Problem as Attention
from casestudies.attention.reference import reference
from casestudies.plain.job import plain_case


@dataclass(frozen=True, slots=True)
class Problem(Attention):
    """The same job, whatever its schedule."""

    @property
    def program(self) -> str:
        score = "" if self.score == "plain" else f"{self.score}-"
        more = f"-window{self.window}" if self.window else ""
        more += f"-shared{self.sharing}" if self.sharing > 1 else ""
        sizes = f"{self.heads}x{self.length}x{self.key_count}"
        kind = f"{'causal-' * self.causal}{score}{self.types}"
        return f"plain-attention-{kind}-d{self.depth}{more}-{sizes}"

    @property
    def name(self) -> str:
        return self.program

    @property
    def packed(self) -> int:
        return 1


CASE = plain_case(
    "attention", "softmax(Q K' / sqrt(depth)) V of heads", Problem, reference, OWN.peers, random
)
