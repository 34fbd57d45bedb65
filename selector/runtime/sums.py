"""A fault of the CUDA compiler, seen in machine code for sm_90a: a warpgroup's product whose sums
go to registers that overlap those of its addend without being the same.

    HGMMA.64x48x16.F32 R36, gdesc[UR20], R24      R36 ... R59 = R24 ... R47 + ...

What of the addend lies in both is overwritten before it is added, and results are wrong without a
word. NVRTC 13.0 did so where products slide over accumulators row by row of which some lanes began
with nothing written; since all begin with zeros (``codegen.placement``), no program is known
to have it. Fields are where ``nvdisasm -hex`` shows them; products of bytes do not slide.
"""

from __future__ import annotations

from collections.abc import Iterator

from selector.dataclass import dataclass

WIDTH = 16  # bytes of an instruction
PRODUCTS = (0x9F0, 0xDF0)  # first 12 bits of HGMMA: the first factor in shared memory, in registers
NONE = 255  # the register that is zero


@dataclass(frozen=True, slots=True)
class Overlap:
    """The first register of the sums and of the addend, and how many each has at most."""

    sums: int
    addend: int
    registers: int


def overlaps(cubin: bytes) -> list[Overlap]:
    """Such products of a cubin."""
    return [found for _, code in text_sections(cubin) for found in _overlaps(code)]


def _overlaps(code: bytes) -> Iterator[Overlap]:
    for at in range(0, len(code) - WIDTH + 1, WIDTH):
        low, high = (int.from_bytes(code[i : i + 8], "little") for i in (at, at + 8))
        if low & 0xFFF not in PRODUCTS:
            continue
        found = Overlap(low >> 16 & 0xFF, high & 0xFF, 4 * ((low >> 53 & 0x1F) + 1))
        if found.addend != NONE and 0 < abs(found.sums - found.addend) < found.registers:
            yield found


def text_sections(cubin: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The names and bytes of a cubin's sections of instructions, one a kernel."""
    table = int.from_bytes(cubin[40:48], "little")
    size, count, names = (int.from_bytes(cubin[i : i + 2], "little") for i in (58, 60, 62))

    def section(i: int) -> tuple[int, int, int]:
        head = table + i * size
        name, start, length = (
            int.from_bytes(cubin[head + a : head + b], "little")
            for a, b in ((0, 4), (24, 32), (32, 40))
        )
        return name, start, length

    strings = section(names)[1]
    for i in range(count):
        name, start, length = section(i)
        text = cubin[strings + name : cubin.index(b"\0", strings + name)]
        if text.startswith(b".text."):
            yield text, cubin[start : start + length]
