"""Sizes of attention: heads of ``length`` queries and as many keys, ``depth`` channels. Variants
of the score, by the names that they have elsewhere: ``scores`` says what each is."""

from __future__ import annotations

from dataclasses import dataclass

from casestudies.common.case import ArraySpec, check_known
from selector.diagnostics import UserError
from selector.families.attention import Shape, Tiling, pick, usual
from selector.machine import machine_for

DEPTHS = (64, 128)
TYPES = ("f16-f32", "f16-f16", "bf16-bf16", "bf16-f32")
SCORES = ("plain", "soft_cap", "slopes", "bias")
SOFT_CAP = 5.0
"""Where scores are capped: as large as those of normally distributed operands get."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Arrays ``Q``, ``K``, ``V`` and ``output`` of heads x length x depth; ``slopes`` of heads,
    ``bias`` of heads x queries x keys. ``scale`` of the scores: 1/sqrt(depth) if None. ``types``:
    of operands and result. ``sharing``: neighbouring heads that have the same keys and values, of
    which there are ``keys`` (0: as many as queries). ``window``: a query has the last so many of
    its keys (causal; 0: all).
    """

    heads: int
    length: int
    depth: int
    causal: bool = False
    score: str = "plain"
    scale: float | None = None
    types: str = "f16-f32"
    sharing: int = 1
    keys: int = 0
    window: int = 0

    def __post_init__(self) -> None:
        if min(self.heads, self.length, self.depth) < 1:
            raise UserError(
                f"attention: {self.heads} heads of {self.length} x {self.depth} is not a size"
            )
        check_known("attention", "score", self.score, SCORES, "one of")
        check_known("attention", "variant", self.types, TYPES)
        if self.heads % self.sharing:
            raise UserError(f"attention: {self.sharing} do not divide {self.heads} heads")
        if (self.window or self.causal) and self.keys not in (0, self.length):
            raise UserError("attention: with causal there are as many keys as queries")
        if self.window and not self.causal:
            raise UserError("attention: a window is causal")

    @property
    def name(self) -> str:
        keys = f"x{self.keys}" if self.keys else ""
        return f"{self.program}-{self.heads}x{self.length}{keys}"

    @property
    def packed(self) -> int:
        """Heads that are rows of one, since they share keys and all their scores are alike."""
        return self.sharing if self.score == "plain" and not self.causal else 1

    @property
    def shape(self) -> Shape:
        """As the family of schedules knows it."""
        return Shape(
            self.heads // self.packed, self.length * self.packed, self.key_count, self.depth,
            self.causal, self.window, int(self.score == "bias"),
        )  # fmt: skip

    @property
    def tiling(self) -> Tiling | None:
        """The schedule for warpgroups; None for more channels than their registers hold."""
        return pick(self.shape, machine_for("sm_90a"))

    @property
    def program(self) -> str:
        """Named by the tiles where they are not the usual ones."""
        tiling = self.tiling
        tiles = "" if tiling in (None, usual(self.shape)) else f"-{tiling.label}"
        score = "" if self.score == "plain" else f"{self.score}-"
        scale = "" if self.scale is None else f"-scale{self.scale:g}"
        types = "" if self.types == "f16-f32" else f"{self.types}-"
        more = f"-window{self.window}" if self.window else ""
        sharing = self.sharing // self.packed
        more += f"-shared{sharing}" if sharing > 1 else ""
        return f"attention-{'causal-' * self.causal}{score}{types}d{self.depth}{scale}{more}{tiles}"

    @property
    def operand(self) -> str:
        return self.types.split("-")[0]

    @property
    def key_count(self) -> int:
        return self.keys or self.length

    @property
    def factor(self) -> float:
        """What the products of queries and keys are multiplied by."""
        return self.depth**-0.5 if self.scale is None else self.scale

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        shared = (self.heads // self.sharing, self.key_count, self.depth)
        arrays = [ArraySpec("Q", self._rows, self.operand)]
        arrays += [ArraySpec(name, shared, self.operand) for name in "KV"]
        match self.score:
            case "slopes":
                arrays.append(ArraySpec("slopes", (self.heads,), "f32"))
            case "bias":
                matrix = (self.heads, self.length, self.key_count)
                arrays.append(ArraySpec("bias", matrix, "f16"))
            case _:
                pass
        return tuple(arrays)

    @property
    def _rows(self) -> tuple[int, int, int]:
        return self.heads // self.packed, self.length * self.packed, self.depth

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("output", self._rows, self.types.split("-")[1])

    @property
    def multiply_adds(self) -> int:
        """Those of the two products, of the scores that count."""
        scores = self.length * self.key_count
        if self.causal:
            late = max(0, self.length - self.window) if self.window else 0  # keys that are too old
            scores = (self.length * (self.length + 1) - late * (late + 1)) // 2
        return 2 * self.heads * scores * self.depth


BENCHMARK = (
    *(Problem(64, 4096, depth) for depth in DEPTHS),
    *(Problem(64, 4096, 64, score=score) for score in ("soft_cap", "slopes")),
    Problem(16, 4096, 64, score="bias"),  # a matrix of 537 MB
)
# One query, fewer and more than a tile, one more and less than a run of keys; other depths.
SMALL = (
    *(
        Problem(*sizes)
        for sizes in (
            (2, 128, 64),
            (1, 1, 64),
            (3, 17, 64),
            (1, 129, 64),
            (2, 257, 64),
            (1, 63, 128),
            (2, 130, 128),
            (1, 65, 32),
            (1, 70, 96),
            (2, 131, 40),
            (1, 66, 20),
        )
    ),
    *(Problem(*sizes, causal=True) for sizes in ((2, 1, 64), (2, 300, 64), (1, 129, 128))),
    *(
        Problem(heads, length, depth, causal, score)
        for score in SCORES[1:]
        for heads, length, depth, causal in (
            (2, 1, 64, False),
            (2, 131, 64, False),
            (1, 384, 64, True),
            (3, 70, 128, True),
            (1, 264, 128, False),
        )
    ),
    Problem(2, 130, 64, scale=0.25),
    *(
        Problem(heads, length, depth, True, window=window)
        for heads, length, depth, window in ((2, 300, 64, 100), (1, 129, 128, 1), (1, 64, 32, 40))
    ),
    *(
        Problem(heads, length, depth, types="f16-f16", sharing=sharing, keys=keys)
        for heads, sharing, length, keys, depth in ((8, 4, 1, 1030, 64), (2, 1, 3, 513, 128))
    ),
)
