"""Sizes and types of the matrix product: ``C[m, n] = f(sum_k A[m, k] * B[k, n])``, all row-major
unless the layout says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from casestudies.common.case import ELEMENT_BYTES, ArraySpec, check_known
from casestudies.gemm.tiles import TARGET, groups_for
from selector.diagnostics import UserError
from selector.families.contraction import Shape, usual
from selector.families.contraction.usual import is_large, is_tall
from selector.machine import machine_for

USUAL = ("f16-f32", "f16-f16", "bf16-f32", "bf16-bf16", "s8-s32")
TYPES = (*USUAL, "u8s8-s32", "s8-s8", "u8s8-s8")
LAYOUTS = ("nn", "nt", "tn", "tt")
EPILOGUES = ("", "relu", "bias", "bias-relu", "scale", "scale-bias-relu")


def elements(types: str) -> tuple[str, str, str]:
    """Those of A, B and the result: ``u8s8-s32`` has an A of u8 and a B of s8."""
    operands, result = types.split("-")
    a, b = (operands[:2], operands[2:]) if operands == "u8s8" else (operands, operands)
    return a, b, result


@dataclass(frozen=True, slots=True)
class Problem:
    """Extents, and the types of the operands and the result, such as ``f16-f32``.

    ``layout``: a letter for A and one for B, "t" if it is stored transposed, (k, m) or (n, k).
    ``epilogue``: what becomes of the sums before they are rounded to the result's type, see
    ``algorithm.multiply``; ``scale`` and ``bias`` hold a number for each column. ``batch``: pairs
    of matrices, a first axis of A, B and C where there are several.
    """

    m: int
    n: int
    k: int
    types: str = "f16-f32"
    layout: str = "nn"
    epilogue: str = ""
    batch: int = 1

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.k, self.batch) < 1:
            raise UserError(f"gemm: {self.m} x {self.n} x {self.k} is not a size")
        check_known("gemm", "variant", self.types, TYPES)
        check_known("gemm", "layout", self.layout, LAYOUTS)
        check_known("gemm", "epilogue", self.epilogue, EPILOGUES)
        if self.operand == "s8" and "scale" in self.epilogue and self.output.element != "s8":
            raise UserError("gemm: sums of bytes are whole numbers, which no scale goes with")
        if self.output.element == "s8" and self.epilogue != "scale":
            raise UserError(f"gemm of {self.types} scales its sums", hint="--epilogue scale")

    @property
    def name(self) -> str:
        batch = f"{self.batch}x" if self.batch > 1 else ""
        return f"gemm-{self.variant}-{batch}{self.m}x{self.n}x{self.k}"

    @property
    def variant(self) -> str:
        """What tells pipelines apart: types, then layout and epilogue where they are others than
        the usual ones.
        """
        layout = "" if self.layout == "nn" else self.layout
        batched = "batched" if self.batch > 1 else ""
        return "-".join(filter(None, (self.types, layout, self.epilogue, batched)))

    @property
    def shape(self) -> Shape:
        """The problem as its family of schedules knows it."""
        a, b = self.layout
        sizes = ELEMENT_BYTES[self.operand], ELEMENT_BYTES[self.output.element]
        reads = "scale" in self.epilogue or "bias" in self.epilogue
        return Shape(self.m, self.n, self.k, *sizes, a == "n", b == "t", self.batch, reads)

    @property
    def program(self) -> str:
        """Named by the tiles where they are not the usual ones."""
        shape = self.shape
        found, machine = groups_for(shape), machine_for(TARGET)
        if found != usual(shape, machine):
            return f"gemm-{self.variant}-{found.label}"
        copied = f"-copied{found.copied}" if found.copied else ""
        size = "-tall" if is_tall(shape, machine) else "-large" if is_large(shape) else ""
        return f"gemm-{self.variant}{copied}{size}"

    @property
    def operand(self) -> str:
        """Of B; A is of as many bytes."""
        return elements(self.types)[1]

    @property
    def inputs(self) -> tuple[ArraySpec, ...]:
        left, right, _ = elements(self.types)
        a, b = (self.m, self.k), (self.k, self.n)
        sums = "s32" if self.operand == "s8" else "f32"
        return (
            ArraySpec("A", self._several(a[::-1] if self.layout[0] == "t" else a), left),
            ArraySpec("B", self._several(b[::-1] if self.layout[1] == "t" else b), right),
            *(
                ArraySpec(name, (self.n,), kind)
                for name, kind in (("scale", "f32"), ("bias", sums))
                if name in self.epilogue
            ),
        )

    def _several(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (self.batch, *shape) if self.batch > 1 else shape

    @property
    def output(self) -> ArraySpec:
        return ArraySpec("C", self._several((self.m, self.n)), elements(self.types)[2])

    @property
    def multiply_adds(self) -> int:
        return self.batch * self.m * self.n * self.k


BENCHMARK = (
    *(Problem(n, n, n, "f16-f32") for n in (1024, 2048, 4096, 8192)),
    *(Problem(n, n, n, "f16-f16") for n in (1024, 2048, 4096, 8192)),
    Problem(4095, 4097, 4093, "f16-f32"),
    *(Problem(n, n, n, "bf16-bf16") for n in (1024, 2048, 4096, 8192)),
    *(Problem(n, n, n, types) for types in ("bf16-f32", "s8-s32") for n in (1024, 4096)),
    *(Problem(n, n, n, "s8-s32", "nt") for n in (1024, 4096)),
)
# Multiples of a tile, one more and one less in every extent, primes, a single element; and more
# runs of k than a ring of staged tiles has slots.
_SMALL_SIZES = (
    (128, 128, 64),
    (129, 127, 65),
    (127, 129, 31),
    (256, 128, 96),
    (61, 67, 71),
    (1, 1, 1),
)
SMALL = (
    *(Problem(m, n, k, types) for types in USUAL for m, n, k in _SMALL_SIZES),
    Problem(129, 127, 700),
    *(
        Problem(m, n, k, types, layout)
        for types in ("f16-f32", "bf16-f32", "s8-s32")
        for layout in LAYOUTS[1:]
        for m, n, k in ((129, 127, 65), (136, 200, 272))
    ),
    *(Problem(129, 136, 65, "f16-f32", epilogue=e) for e in EPILOGUES if e),
    Problem(136, 127, 72, "f16-f16", "nt", "scale-bias-relu"),
    Problem(65, 72, 40, "s8-s32", "nt", "bias-relu"),
)
