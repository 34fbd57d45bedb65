"""CUDA wrappers of the tensor instructions that a kernel has, made from their records.

Instructions of a warp are issued as ``mma.sync`` m16n8 pieces: their register layout is part of the
PTX ISA (section "Matrix Fragments for mma.m16n8k16"), so that operands come by ``ldmatrix`` from
raw memory and results are finished in registers, where the layout of ``wmma`` fragments is
unspecified. The hardware executes the same HMMA or IMMA either way. A block of depth is 16 bytes;
the full form takes two, the short form one.
"""

from __future__ import annotations

from functools import lru_cache

from selector.gpu.ir.products import Fragment, InMemory, InRegisters, Mma, Operand, Record

# By the type of an operand that comes in another one: what rounds it.
_ROUNDED = {"tf32": "cvt.rna.tf32.f32"}

# Of a 16 x 8 accumulator, by its type: C type, constraint of PTX, registers of a lane.
PIECES = {"f16": ("u32", "r", 2), "f32": ("float", "f", 4), "s32": ("int", "r", 4)}

HELD_TOGETHER = 32  # pieces of accumulators in one statement: as many as an instruction has

Form = tuple[str, str]  # the name of a wrapper, and its source


def form(node: Mma) -> Form:
    """The wrapper of an instruction."""
    if not node.record.asynchronous:
        return _warp_form(node.record)
    return _group_form(node.record, _way(node.a), _way(node.b), fresh=node.how == "fresh")


def _way(x: Operand) -> str:
    """Whether an operand comes in registers, or lies in memory along its depth or across."""
    match x:
        case InRegisters():
            return "r"
        case InMemory(across=across):
            return "nt"[across]


def _types(r: Record) -> str:
    return f"{r.a}_{r.b}_{r.c}" if r.a != r.b else f"{r.a}_{r.c}"


@lru_cache(maxsize=256)
def _warp_form(r: Record) -> Form:
    """``mma.sync`` over one or two 16-byte blocks of depth."""
    name = f"mma_m16n8k{r.k}_{_types(r)}"
    ctype, constraint, count = PIECES[r.c]
    blocks = r.k * r.bytes // 16
    a = [f"a{i}" for i in range(2 * blocks)]
    b = [f"b{i}" for i in range(blocks)]
    d = ", ".join(f"%{i}" for i in range(count))
    left = ", ".join(f"%{count + i}" for i in range(len(a)))
    right = ", ".join(f"%{count + len(a) + i}" for i in range(len(b)))
    outputs = ", ".join(f'"+{constraint}"(d[{i}])' for i in range(count))
    inputs = ", ".join(f'"r"({v})' for v in (*a, *b))
    arguments = ", ".join(f"u32 {v}" for v in (*a, *b))
    text = f"m16n8k{r.k}.row.col.{r.c}.{r.a}.{r.b}.{r.c}"
    # Not volatile: what several instructions take is rounded once.
    rounded = "".join(
        f'  asm("{_ROUNDED[kind]} %0, %1;" : "=r"({v}) : "f"(__uint_as_float({v})));\n'
        for kind, registers in ((r.a, a), (r.b, b))
        if kind in _ROUNDED
        for v in registers
    )
    return name, (
        f"__device__ __forceinline__ void {name}({ctype} (&d)[{count}], {arguments}) {{\n"
        f"{rounded}"
        f'  asm volatile("mma.sync.aligned.{text} {{{d}}}, {{{left}}}, {{{right}}}, {{{d}}};"\n'
        f"    : {outputs} : {inputs}); }}\n"
    )


@lru_cache(maxsize=256)
def _group_form(r: Record, left: str, right: str, *, fresh: bool) -> Form:
    """``wgmma``: B in shared memory, named by a descriptor; A, too, or in four registers.
    ``fresh``: the accumulators need no value before.

    An operand's rows m or n may run along memory, not its depth, where elements have two bytes.
    The accumulators are ``n / 8`` pieces in a row (PTX ISA, "wgmma.mma_async").
    """
    ctype, constraint, count = PIECES[r.c]
    shape = f"m{r.m}n{r.n}k{r.k}"
    name = f"wgmma_{shape}_{_types(r)}_{left}{right}{'_fresh' * fresh}"
    total = r.n // 8 * count
    places = [(i // count, i % count) for i in range(total)]
    d = ", ".join(f"%{i}" for i in range(total))
    way = "=" if fresh else "+"
    outputs = ", ".join(f'"{way}{constraint}"(d[{i}][{e}])' for i, e in places)
    # Whether to add to the accumulators; for floats also signs, and which operands lie across.
    sides = [str(int(x == "t")) for x in (left, right) if x != "r" and r.bytes == 2]
    modes = ", ".join([str(int(not fresh)), *(["1", "1", *sides] if "f" in r.c else [])])
    operands, inputs, arguments = _group_operands(total, left == "r")
    return name, (
        f"__device__ __forceinline__ void {name}({ctype} (*d)[{count}], {arguments}) {{\n"
        f'  asm volatile("wgmma.mma_async.sync.aligned.{shape}.{r.c}.{r.a}.{r.b} {{{d}}}, "\n'
        f'    "{operands}, {modes};"\n'
        f"    : {outputs}\n"
        f"    : {inputs}); }}\n"
    )


@lru_cache(maxsize=256)
def hold_form(fragment: Fragment) -> Form:
    """Accumulators of a group are read after this, not before: volatile statements stay in order.

    It does not claim memory, through which the compiler would look once for each of them.
    """
    pieces, count = fragment.registers
    kind, ctype, constraint = next(
        (kind, c, constraint) for kind, (c, constraint, _) in PIECES.items() if c == fragment.kind
    )
    name = f"group_hold_{pieces}_{kind}"
    lines = [f"__device__ __forceinline__ void {name}({ctype} (&d)[{pieces}][{count}]) {{"]
    for first in range(0, pieces, HELD_TOGETHER):
        part = range(first, min(first + HELD_TOGETHER, pieces))
        places = ", ".join(f'"+{constraint}"(d[{i}][{e}])' for i in part for e in range(count))
        lines.append(f'  asm volatile("" : {places});')
    return name, "\n".join([*lines, "}\n"])


def _group_operands(first: int, held: bool) -> tuple[str, str, str]:
    """Operands of wgmma from PTX's number ``first`` on: their places, constraints, parameters."""
    if not held:
        return f"%{first}, %{first + 1}", '"l"(a), "l"(b)', "u64 a, u64 b"
    left = [f"a{i}" for i in range(4)]
    places = ", ".join(f"%{first + i}" for i in range(4))
    return (
        f"{{{places}}}, %{first + 4}",
        ", ".join([*(f'"r"({x})' for x in left), '"l"(b)']),
        ", ".join([*(f"u32 {x}" for x in left), "u64 b"]),
    )
