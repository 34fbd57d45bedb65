"""Nodes of tensor memory as text of CUDA."""

from __future__ import annotations

from functools import lru_cache

from selector.gpu.cuda.expressions import spell
from selector.gpu.cuda.instructions import PIECES, Form
from selector.gpu.ir.descriptors import instruction_descriptor
from selector.gpu.ir.products import ADDS, Fragment, InMemory, LoadFragment, Mma
from selector.gpu.ir.tensor import TensorAlloc, TensorFree, TensorMemory, TensorTile


def tensor_line(node: TensorAlloc | TensorMemory | TensorTile | TensorFree) -> str:
    """Of a node."""
    match node:
        case TensorAlloc(at, columns):
            return f"tensor_alloc<{columns}>(shared_address(smem + {at}));"
        case TensorMemory(name, at):
            return f"const u32 {name} = *(const volatile u32*)(smem + {at});"
        case TensorTile(name, of, start):
            return f"const u32 {name} = {of} + {spell(start)};"
        case TensorFree(memory, columns):
            return f"tensor_free<{columns}>({memory});"


def product_line(node: Mma) -> str:
    """A product in tensor memory."""
    a, b, r = node.a, node.b, node.record
    assert isinstance(a, InMemory)
    assert isinstance(b, InMemory)
    shape = instruction_descriptor(r, a_across=a.across, b_across=b.across)
    to = f"{node.to} + {8 * node.piece}" if node.piece else node.to
    left, right = (f"{x.descriptor} + {x.at // 16}" if x.at else x.descriptor for x in (a, b))
    add = ADDS.get(node.how, node.how)
    return (
        f"tensor_mma_{'f16' if r.bytes == 2 else 'i8'}({to}, {left}, {right}, {shape:#x}u, {add});"
    )


def load_line(node: LoadFragment, fragments: dict[str, Fragment], wrappers: dict[str, str]) -> str:
    """A load of tiles into the registers of a fragment."""
    name = node.registers[0].name
    tiles = tuple(r.index or 0 for r in node.registers)
    places = tuple(tile - tiles[0] for tile in tiles)
    called, source = _load(fragments[name].kind, places, add=node.how == "tensor_add")
    wrappers[called] = source
    to = f"{name} + {tiles[0]}" if tiles[0] else name
    return f"{called}({to}, {f'{node.base} + {node.at:#x}u' if node.at else node.base});"


@lru_cache(maxsize=64)
def _load(kind: str, places: tuple[int, ...], *, add: bool) -> Form:
    """16 lanes of tensor memory by so many times eight columns, as an m16n8 accumulator lies in a
    warp (PTX ISA, "tcgen05.ld", shape .16x256b), to tiles at these places; to ``add``, they are
    waited for.
    """
    constraint = next(c for ctype, c, count in PIECES.values() if ctype == kind and count == 4)
    count = len(places)
    run = next((i for i, x in enumerate(places) if x != i), count)
    dealt = "" if run == count else f"_{run}of{places[run]}"
    name = f"tensor_{'add' if add else 'load'}{count}{dealt}_{kind}"
    registers = ", ".join(f"%{i}" for i in range(4 * count))
    targets = [f"x[{i}]" for i in range(count)] if add else [f"d[{place}]" for place in places]
    outputs = ", ".join(f'"={constraint}"({x}[{e}])' for x in targets for e in range(4))
    wait, clobber = (' tcgen05.wait::ld.sync.aligned;"', ' : "memory"') if add else ('"', "")
    lines = [
        f"__device__ __forceinline__ void {name}({kind} (*d)[4], u32 from) {{",
        *([f"  {kind} x[{count}][4];"] if add else []),
        f'  asm volatile("tcgen05.ld.sync.aligned.16x256b.x{count}.b32 {{{registers}}}, "',
        f'    "[%{4 * count}];{wait}',
        f"    : {outputs}",
        f'    : "r"(from){clobber});',
    ]
    for i, place in enumerate(places) if add else ():
        lines.append("  " + " ".join(f"d[{place}][{e}] += x[{i}][{e}];" for e in range(4)))
    return name, "\n".join([*lines, "}\n"])
