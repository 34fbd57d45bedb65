"""What is wrong with a kernel, seen without running it: so far, how its shared memory lies, what is
copied there, its products (``verify_products``), and what becomes of them (``verify_elements``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from math import gcd, prod

from selector.gpu.ir.expressions import GIVEN, PLACES, address
from selector.gpu.ir.layouts import (
    BYTE,
    CHUNK,
    GROUP_ROWS,
    Composed,
    Layout,
    Swizzle,
    in_bytes,
    is_injective,
    places,
    sizes,
)
from selector.gpu.ir.memory import (
    MOST_APART,
    CopyAsync,
    CopyRun,
    EngineCopy,
    EngineStore,
    LoadShifted,
    Map,
    Point,
)
from selector.gpu.ir.nodes import Kernel, Let, Memory, walk
from selector.gpu.ir.verify_elements import element_faults
from selector.gpu.ir.verify_products import product_faults
from selector.gpu.ir.views import BYTES, View
from selector.ir.affine import Affine, to_affine
from selector.ir.nodes import Binary, BinaryOp, Call, Expr, IntImm, Var
from selector.ir.traverse import map_expr, substitute
from selector.targets import LARGEST_BOX


def memory_faults(kernel: Kernel) -> tuple[str, ...]:
    """Layouts in which two elements share a byte, or one lies past its memory; swizzles that begin
    between their repetitions; boxes of the copy engine that are not those of their map, lie
    otherwise in shared memory, go to or from no memory, or past its end; chunks that do not begin
    where one may; operands of products that lie otherwise than these read them; elements that go
    where none may.
    """
    maps = {node.name: node for node in kernel.declarations if isinstance(node, Map)}
    checked = _Checked(maps)
    found = [f"`{m.name}`: {fault}" for m in maps.values() for fault in _map_faults(m)]
    for node in walk(kernel.body):
        match node:
            case Memory():
                checked.declared[node.name] = node
                found += (f"`{node.name}`: {fault}" for fault in _faults(node))
            case Let(names=names, values=values):
                checked.numbers |= zip(names, values, strict=True)
            case Point(name, kind, of):
                checked.points[name] = kind, of
                found += checked.placed(of)
            case CopyAsync(to=to) | CopyRun(to=to):
                found += checked.chunk(to)
            case LoadShifted():
                found += checked.chunk(address("to"))
            case EngineCopy(to=view, map=name, at=at, bytes=bytes_):
                found += checked.box(view, name, at, bytes_)
            case EngineStore(source=view, map=name, at=at):
                found += checked.box(view, name, at, None)
            case _:
                pass
    return (*found, *product_faults(kernel), *element_faults(kernel))


def _faults(memory: Memory) -> Iterator[str]:
    injective, reach = _seen(memory.layout, memory.extents)
    if not injective:
        yield f"two elements share a byte by {memory.layout}"
    if reach > memory.bytes:
        yield f"an element lies at byte {reach - 1} of {memory.bytes}"
    starts = [memory.offset, memory.apart, memory.bytes if memory.stages > 1 else 0]
    match memory.layout:
        case Composed(Swizzle(row)) if any(x % (GROUP_ROWS * row) for x in starts):
            yield f"{memory.layout} begins at {starts}, no multiples of {GROUP_ROWS * row}"
        case _:
            pass


def _map_faults(m: Map) -> Iterator[str]:
    if not len(m.extents) == len(m.strides) + 1 == len(m.box):
        yield f"{len(m.extents)} extents, {len(m.strides)} strides, a box of {len(m.box)}"
    if not all(1 <= n * m.step(d) <= LARGEST_BOX for d, n in enumerate(m.box)):
        yield f"no box has {m.box} elements"
    if m.steps and (len(m.steps) != len(m.box) or m.steps[0] != 1 or max(m.steps) > MOST_APART):
        yield f"no box has every {m.steps} elements"
    if m.row_bytes % CHUNK:
        yield f"rows of {m.row_bytes} bytes are no chunks of {CHUNK}"


class _Checked:
    """Boxes and chunks, by the ``maps`` of a kernel, the memory that is ``declared`` so far, the
    ``points`` that pointers point to, and the values of ``numbers``.
    """

    def __init__(self, maps: Mapping[str, Map]) -> None:
        self.maps = maps
        self.numbers: dict[str, Expr] = {}
        self.declared: dict[str, Memory] = {}
        self.points: dict[str, tuple[str, View]] = {}

    def chunk(self, to: Expr) -> Iterator[str]:
        """What is wrong with the address of a chunk, as far as it is known what is there."""
        start = self._address(to)
        if start is not None and _factor(start) % CHUNK:
            yield f"a chunk begins at no multiple of {CHUNK}: {to}"

    def placed(self, view: View) -> Iterator[str]:
        """What is wrong with where a pointer into panels points to: not as these lie."""
        memory, index = self.declared.get(view.memory), view.index
        match memory, index:
            case Memory(layout=layout, extents=(_, _)), Call(_, "panel_index", (_, *sizes, _)):
                rows, size, row = (n.value for n in sizes if isinstance(n, IntImm))
                panels = in_bytes((row,), (row // size, size, rows * row))
                if not _alike(layout, Composed(Swizzle(row), panels), memory.extents):
                    yield f"`{view.memory}` lies otherwise: {layout}"
            case Memory(layout=Composed(Swizzle())), _ if index is not None:
                yield f"`{view.memory}` is pointed into as if its rows lay one after the other"
            case _:
                pass

    def _address(self, e: Expr) -> Affine | None:
        """Bytes of shared memory; None of what is not known."""
        match e:
            case Var(name) if name in self.numbers:
                return self._address(self.numbers[name])
            case Binary(BinaryOp.ADD, a, IntImm(bytes_)):
                start = self._address(a)
                return None if start is None else start + bytes_
            case Call(_, "shared_address", (Var(name),)) if name in self.points:
                kind, of = self.points[name]
                return self._element(of.memory, BYTES[kind], of.start, of.index)
            case Call(_, "shared_address", (Var(name), *parts)) if name in self.declared:
                return self._element(name, self.declared[name].element_bytes, *parts)
            case _:
                return None

    def _element(self, name: str, each: int, *parts: Expr | None) -> Affine | None:
        """Where an element of a memory lies, but for what keeps chunks together."""
        if name not in self.declared:
            return None
        index = sum((self._known(part) for part in parts if part is not None), Affine())
        return index * each + self.declared[name].offset

    def _known(self, e: Expr) -> Affine:
        """A number of elements."""
        return to_affine(_unlaid(substitute(substitute(_unlaid(e), self.numbers), self.numbers)))

    def box(self, view: View, name: str, at: tuple[Expr, ...], bytes_: int | None) -> Iterator[str]:
        """What is wrong with a box of that many bytes (None: of a map's) in a memory."""
        memory, m = self.declared.get(view.memory), self.maps.get(name)
        if memory is None or m is None:
            yield f"`{view.memory}` is no memory" if memory is None else f"`{name}` is no map"
            return
        if len(at) != len(m.box):
            yield f"`{name}` has {len(m.box)} dimensions, and a box {len(at)} coordinates"
        if bytes_ not in (None, m.bytes):
            yield f"`{view.memory}`: {bytes_} bytes are awaited of a box of {m.bytes} of `{name}`"
        row = m.row_bytes
        match memory.layout:
            case Composed(Swizzle(wanted)) if wanted == row:
                pass
            case _:
                yield f"`{view.memory}`: {memory.layout} is not how `{name}` has rows of {row}"
        start = self._start(view, memory.element_bytes)
        if any(c % (GROUP_ROWS * row) for _, c in start):
            yield f"`{view.memory}`: a box begins at no multiple of {GROUP_ROWS * row}"
        if start.offset + m.bytes > memory.bytes:
            yield f"`{view.memory}`: a box of {m.bytes} bytes reaches past its {memory.bytes}"

    def _start(self, view: View, each: int) -> Affine:
        """Bytes from a memory's begin."""
        start, at = (Affine() if e is None else self._known(e) for e in (view.start, view.at))
        return start * each + at


def _factor(of: Affine) -> int:
    """A number that divides all values: 0 of nothing but 0."""
    return gcd(*(c * prod(map(_factor_of, m)) for m, c in of))


def _factor_of(e: Expr) -> int:
    match e:
        case Binary(BinaryOp.MOD, a, IntImm(size)):
            return gcd(_factor(to_affine(a)), size)
        case _:
            return 1


def _unlaid(e: Expr) -> Expr:
    """The program's index in what says how it lies."""
    match e:
        case Call(_, name, (*_, index)) if name in PLACES or name == GIVEN:
            return _unlaid(index)
        case _:
            return map_expr(e, _unlaid)


@cache
def _seen(layout: Layout, extents: tuple[int, ...]) -> tuple[bool, int]:
    """Whether elements have bytes of their own, and how far these reach."""
    return is_injective(layout, *extents), sizes(layout, *extents)[BYTE]


@cache
def _alike(layout: Layout, other: Layout, extents: tuple[int, ...]) -> bool:
    """Whether all elements lie at the same bytes."""
    return bool((places(layout, *extents)[BYTE] == places(other, *extents)[BYTE]).all())
