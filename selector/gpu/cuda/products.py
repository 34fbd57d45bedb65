"""Nodes of products and of tensor memory as text of CUDA."""

from __future__ import annotations

from functools import lru_cache

from selector.gpu.cuda.copies import address, pointer
from selector.gpu.cuda.expressions import spell
from selector.gpu.cuda.instructions import PIECES, Form, form, hold_form
from selector.gpu.ir.descriptors import SWIZZLE_CODES, instruction_descriptor
from selector.gpu.ir.expressions import packed
from selector.gpu.ir.products import (
    ADDS,
    BYTE_PAIRS,
    Descriptor,
    Fragment,
    InMemory,
    InRegisters,
    LoadFragment,
    MatrixRows,
    Mma,
    Operand,
    Pin,
    SetTile,
)
from selector.gpu.ir.tensor import LOADS, TensorAlloc, TensorFree, TensorMemory, TensorTile
from selector.ir.nodes import IntImm

ProductNode = Fragment | SetTile | MatrixRows | LoadFragment | Descriptor | Mma | Pin


def product_lines(
    node: ProductNode, fragments: dict[str, Fragment], wrappers: dict[str, str]
) -> list[str]:
    """Of a node: ``fragments`` are those that the kernel has declared so far, ``wrappers`` the
    sources of what it has called.
    """
    match node:
        case Fragment(name, kind, registers):
            fragments[name] = node
            return [f"{kind} {name}{''.join(f'[{n}]' for n in registers)};"]
        case SetTile(to, piece, values):
            texts = (f"{to}[{piece}][{n}] = {spell(e)};" for n, e in enumerate(values))
            return [" ".join(texts)]
        case MatrixRows():
            return [f"const u32 {node.name} = {_rows(node)};"]
        case LoadFragment(how=how) if how in LOADS:
            return [load_line(node, fragments, wrappers)]
        case LoadFragment():
            return _load(node)
        case Descriptor(name):
            return [f"const u64 {name} = {descriptor(node)};"]
        case Mma(record=record) if record.tensor:
            return [product_line(node)]
        case Mma(_, record, to, piece, a, b):
            called, source = form(node)
            wrappers[called] = source
            at = f"{to}[{piece}]" if not record.asynchronous else f"{to} + {piece}" if piece else to
            return [f"{called}({', '.join([at, *_operand(a), *_operand(b)])});"]
        case Pin(name):
            called, source = hold_form(fragments[name])
            wrappers[called] = source
            return [f"{called}({name});"]


def descriptor(node: Descriptor) -> str:
    """Its value."""
    start = address(node.view)
    if not node.swizzle:
        return f"core_descriptor({start}, {node.leading}, {node.stride})"
    code, kind = SWIZZLE_CODES[node.version][node.swizzle], ("matrix", "tensor")[node.version]
    return f"{kind}_descriptor({start}, {node.leading}, {node.stride}, {code})"


def _rows(node: MatrixRows) -> str:
    terms = [spell(node.first)]
    if node.step != IntImm(0):
        terms.append(f"(lane & 7) * ({spell(node.step)})")
    which = ("((lane >> 3) & 1)", "(lane >> 4)")
    terms += [f"{x} * {n}" for x, n in zip(which, node.apart, strict=False)]
    return f"shared_address({pointer(node.view)} + ({' + '.join(terms)}))"


def _load(node: LoadFragment) -> list[str]:
    names = ", ".join(map(str, node.registers))
    match node.how:
        case "word":
            return [f"const u32 {names} = {node.base}[{node.at}];"]
        case how if how in BYTE_PAIRS:
            found = (
                f"{node.how}({node.base} + {node.at})" if node.at else f"{node.how}({node.base})"
            )
            (condition,) = node.elements or (None,)
            value = found if condition is None else f"{spell(condition)} ? {found} : 0u"
            return [f"u32 {names} = {value};"]
        case "byte_word":
            where = f"{node.base} + {node.at - node.at % 4}" if node.at >= 4 else node.base
            return [f"const u32 {names} = byte_word<{node.at % 4}>({where});"]
        case "elements":
            return [f"u32 {names} = {spell(packed(*node.elements))};"]
        case _:
            where = f"{node.base} + {node.at}" if node.at else node.base
            form = node.how.replace("ldmatrix", f"ldmatrix{len(node.registers)}")
            return [f"u32 {names};", f"{form}({where}, {names});"]


def _operand(x: Operand) -> tuple[str, ...]:
    match x:
        case InRegisters(registers):
            return tuple([r.name if r.index is None else str(r) for r in registers])
        case InMemory(name, at):
            return (f"{name} + {at // 16}" if at else name,)


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
    called, source = _tensor_load(fragments[name].kind, places, add=node.how == "tensor_add")
    wrappers[called] = source
    to = f"{name} + {tiles[0]}" if tiles[0] else name
    return f"{called}({to}, {f'{node.base} + {node.at:#x}u' if node.at else node.base});"


@lru_cache(maxsize=64)
def _tensor_load(kind: str, places: tuple[int, ...], *, add: bool) -> Form:
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
