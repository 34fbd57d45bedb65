"""Nodes of products as text of CUDA."""

from __future__ import annotations

from selector.gpu.cuda.expressions import spell
from selector.gpu.cuda.instructions import form, hold_form
from selector.gpu.cuda.tensor import load_line, product_line
from selector.gpu.cuda.views import address, pointer
from selector.gpu.ir.descriptors import SWIZZLE_CODES
from selector.gpu.ir.expressions import packed
from selector.gpu.ir.products import (
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
from selector.gpu.ir.tensor import LOADS
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
            return tuple(map(str, registers))
        case InMemory(name, at):
            return (f"{name} + {at // 16}" if at else name,)
