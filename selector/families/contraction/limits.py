"""Which schedules of a contraction a target takes: registers, shared memory, what instructions and
copies divide. Exact where it says how much shared memory a block has, but for blocks that stay.
"""

from __future__ import annotations

from selector.families import MOST_LANES
from selector.families.contraction.tiling import GROUP_ROWS, LINE, Shape, Tiling
from selector.targets import Target, given_registers

SWIZZLED = (32, 64, LINE)  # bytes of a row that the copy engine swizzles
ALIGNMENT = 1024  # bytes, of swizzled tiles
LANES = 32  # of a warp: neighbours that parts are added of
OTHERS = 32  # registers of a thread beside its accumulators
WARP_OTHERS = 64  # of a thread of a warp, which has its operands in registers as well
BESIDE = 26  # registers that a thread of a group is given beside its accumulators, at least
PLACES, PLACE = 40, 8  # of a thread whose operands' places are kept: of all, and of a product
MOST_TURNED = 32  # accumulators of a thread that turns bytes of A alone
MANY = 88  # that threads of more than two groups are given in any case
BOX = 2048  # bytes of results that a warp has on their way while its block stays
MOST_STAGES = 16
MOST_CLUSTER = 8


def why_not(t: Tiling, shape: Shape, target: Target) -> str:
    """Why a schedule of ``shape`` does not compile for a target, or would spill; empty if it
    does compile.
    """
    if not target.has("wgmma" if t.unit == "group" else "mma"):
        return f"{target.name} has no such instructions"
    asked = _in_parts(t, target) or _asked(t, shape, target)
    return _indivisible(t, shape) or asked or _too_much(t, shape, target)


def _indivisible(t: Tiling, shape: Shape) -> str:
    """What the parts and instructions do not divide."""
    if t.wide and not t.band:
        return "block columns are numbered in bands"
    step = 32 // shape.bytes  # of the sum in an instruction
    if t.n % t.parts_n or t.m % t.parts_m:
        return "the parts do not divide the tile"
    if t.rows % t.instruction_rows or t.columns % 8:
        return f"a part is no multiple of {t.instruction_rows} x 8"
    vector_k = t.vector_k
    if t.k % step or vector_k % step or t.k % vector_k:
        return f"a run is no multiple of {step}"
    if t.part % t.k:
        return "a part is no multiple of a run"
    if max(t.m, t.n) * t.k > MOST_LANES:
        return f"a run has vectors of more than {MOST_LANES} elements"
    return ""


def _in_parts(t: Tiling, target: Target) -> str:
    """Of parts of a sum, and what adds them."""
    if t.part and t.persistent:
        return "parts of a sum have blocks of their own"
    if t.adders > 1 and not t.part:
        return "nothing is added"
    if t.adders * LANES > target.max_threads:
        return f"{t.adders * LANES} threads add"
    return ""


def _asked(t: Tiling, shape: Shape, target: Target) -> str:
    """Directives that do not go together, or with these operands."""
    if not 1 <= t.stages <= MOST_STAGES:
        return f"a ring has 1 to {MOST_STAGES} stages"
    if shape.single and t.unit == "warp" and t.self_fed:
        return "warps copy single floats themselves"
    if t.unit == "warp":
        if t.persistent or t.teams > 1 or t.cluster > 1:
            return "blocks of warps neither stay nor form clusters"
        whole = boxes(t.m, t.n, t.k, t.copied, shape)
        if t.self_fed and (t.stages < 2 or not whole or not target.has("bulk")):
            return "the copy engine does not bring these operands"
        return ""
    if any(x not in t.copied for x in shape.across):
        return "wgmma reads other elements than of two bytes along the sum only"
    if shape.across and shape.batch > 1:
        return "operands of several products are not turned by a copy"
    if t.stages == 1 and (t.persistent or t.cluster > 1 or t.self_fed):
        return "nothing is staged ahead"
    if t.teams > 1 and not t.persistent:
        return "teams take turns in blocks that stay"
    if t.self_fed and (t.cluster > 1 or t.persistent):
        return "blocks that stay or form clusters have a group that feeds"
    if t.cluster > 1 and not _shares(t, shape):
        return "the blocks of a cluster have nothing to share"
    return ""


def boxes(m: int, n: int, k: int, copied: str, shape: Shape) -> bool:
    """Whether rows of both operands for warps are whole swizzled ones, and bytes along the sum."""
    if any(x not in copied for x in shape.across):
        return False
    inner = (k if _lies_along(x, copied, shape) else extent for x, extent in (("A", m), ("B", n)))
    return all(i * shape.bytes in SWIZZLED or i * shape.bytes % LINE == 0 for i in inner)


def _lies_along(name: str, copied: str, shape: Shape) -> bool:
    """Whether an operand lies along the sum where blocks take it from, which may be a copy."""
    return shape.along(name) or (name in copied and name in shape.across)


def _shares(t: Tiling, shape: Shape) -> bool:
    """Whether neighbours can bring each other equal parts of what both read."""
    if t.cluster > MOST_CLUSTER or (t.band and t.band % t.cluster):
        return False
    name, extent = t.shared, t.n if t.shared == "B" else t.m
    rows, inner = (extent, t.k) if _lies_along(name, t.copied, shape) else (t.k, extent)
    panels = -(-inner * shape.bytes // LINE)
    return panels % t.cluster == 0 or rows % (8 * t.cluster) == 0


def _too_much(t: Tiling, shape: Shape, target: Target) -> str:
    """Threads, registers and shared memory."""
    if t.threads > target.max_threads:
        return f"a block has {t.threads} threads"
    registers, room = registers_needed(t), registers_left(t, target)
    if registers > room:
        return f"a thread needs {registers} registers and its block leaves it {room}"
    if registers > (room := registers_left(t, target, t.persistent)):
        return f"a thread needs {registers} registers, which blocks beside its own leave {room}"
    if turns_too_much(t, shape):
        return "warps that turn bytes of A spill beside that many sums"
    shared = shared_bytes(t, shape) + (BOX * 4 * t.parts * t.teams if t.persistent else 0)
    if shared > target.shared_memory:
        return f"a block takes {shared} bytes of shared memory of {target.shared_memory}"
    return ""


def turns_too_much(t: Tiling, shape: Shape) -> bool:
    """Whether warps turn bytes of A beside more sums than the compiler finds registers for."""
    turned = t.unit == "warp" and shape.integers and shape.across == "A"
    return turned and t.accumulators > MOST_TURNED


def registers_needed(t: Tiling) -> int:
    """Of a thread, about: its accumulators and what else it keeps."""
    return t.accumulators + (OTHERS if t.unit == "group" else WARP_OTHERS)


def registers_given(t: Tiling, shape: Shape, run: int, *, stays: bool) -> int:
    """Of a thread, about, as the compiler deals them out, which knows of no second block: beside
    its accumulators, it keeps where the operands of a run's products are. Rings of swapped
    operands that lie along the sum are walked through instead.
    """
    if t.unit == "warp":
        return registers_needed(t)
    least = t.accumulators + BESIDE
    if t.swapped and shape.along_a and shape.along_b:
        return least
    products = run * shape.bytes // 32 * (t.rows // GROUP_ROWS)
    kept = least + PLACE * (products + 1) if stays else PLACES + PLACE * products
    return max(least, kept, MANY if t.threads > 256 else 0)


def registers_left(t: Tiling, target: Target, blocks: int = 1) -> int:
    """Of a thread that multiplies, when so many blocks are on a multiprocessor. A group that feeds
    a block which is alone there gives the others what it does not need.
    """
    assert target.multiprocessor is not None
    threads = max(blocks, 1) * t.threads
    equal = min(target.registers, target.multiprocessor.registers // threads // 8 * 8)
    groups = t.parts * t.teams
    fits = t.columns // 2 + BESIDE <= equal  # an instruction, whatever is given later
    if t.unit == "warp" or blocks > 1 or t.threads == 128 * groups or not fits:
        return equal
    return max(equal, given_registers(equal, groups))


def shared_bytes(t: Tiling, shape: Shape) -> int:
    """Of a block: the ring, its barriers, and what alignment takes; without the results of blocks
    that stay.
    """
    swizzled = t.unit == "group" or t.self_fed
    slots = _operand_bytes(t.m, t.n, t.k, t.copied, shape, swizzled=swizzled)
    first, second = (t.stages * slot for slot in slots)
    if swizzled:
        first = -(-first // ALIGNMENT) * ALIGNMENT
    return first + second + beside_bytes(t.stages, swizzled=swizzled)


def beside_bytes(stages: int, *, swizzled: bool = True) -> int:
    """What a ring takes beside its slots: alignment and barriers."""
    return (ALIGNMENT if swizzled else LINE) + -(-16 * stages // LINE) * LINE


def slot_bytes(m: int, n: int, k: int, copied: str, shape: Shape, *, swizzled: bool) -> int:
    """Both operands of a run."""
    return sum(_operand_bytes(m, n, k, copied, shape, swizzled=swizzled))


def _operand_bytes(
    m: int, n: int, k: int, copied: str, shape: Shape, *, swizzled: bool
) -> tuple[int, int]:
    """Of each operand, for a run. Panels of warpgroups, and of warps that feed themselves, are
    swizzled; what warps copy has 16 bytes more in a row that is longer than that, or twice as many
    in rows of single floats across the sum.
    """

    def size(name: str, extent: int) -> int:
        lies_along = _lies_along(name, copied, shape)
        rows, row = (extent, k) if lies_along else (k, extent)
        row *= shape.bytes
        if not swizzled:
            more = 32 if shape.single and not lies_along else 16
            return rows * (row + more if row > 16 else 16)
        width = LINE if row > 64 else 64 if row > 32 else 32
        return -(-rows // 8) * 8 * (-(-row // width) * width)

    return size("A", m), size("B", n)
