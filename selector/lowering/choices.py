"""The best of a domain, which one thread looks for, found by many: argmax and the like.

    for y, x: place, value = select(value < a[x, y], (y*w + x, a[x, y]), (place, value))

The rows of the domain are cut into parts, in its own order. A block each finds the best of a part,
beginning with what is known before, and the best of those is looked for in the same way. Of
elements that are alike the first one stays, as it does for one thread: a comparison that does not
hold for equal values is all that chooses.

    for blocks y, one thread, x: place[y], value[y] = ...

Where blocks of one thread look for the best of a row each, they are such blocks. The threads of a
block take turns along what it has, so that neighbours load neighbours. Each notes the number of
what it has found: of those that are alike the lowest one stays. What several threads of a block do
already is left as it is. A kernel before that but stores the numbers that these begin with is
left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial, reduce
from itertools import count, pairwise

from selector.dataclass import dataclass
from selector.ir.contents import without_lets
from selector.ir.module import Module
from selector.ir.nodes import (
    Allocate,
    Binary,
    BinaryOp,
    Block,
    Broadcast,
    Compare,
    CompareOp,
    Expr,
    FloatImm,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    LetStmt,
    Load,
    Memory,
    Select,
    Stmt,
    Store,
    Var,
)
from selector.ir.simplify import add, binary, div, mod, mul, sub
from selector.ir.traverse import free_vars, substitute, walk_expr, walk_stmt
from selector.ir.types import INT32, Type

PART = 1 << 12  # elements of a row that a block looks at
HELD = 8  # elements of a row that a thread loads before it looks at them
MEETING = (128, 8)  # of a block that has a row: that take turns along it, and along their results
NUMBER = ""  # in the place of a buffer: the number of an element
ZERO, ONE, LAST = IntImm(0), IntImm(1), IntImm(2**31 - 1)
_EXTREMA = {BinaryOp.MAX: True, BinaryOp.MIN: False}


@dataclass(frozen=True, slots=True)
class _Choice:
    """``loops`` around it, outermost first, in those over ``blocks``, if these have one each; by
    buffer what is ``found`` and its ``type``, which is kept ``at`` an element; of the buffer ``by``
    the ``larger`` value is better, or the smaller one. ``before``: what is in buffers until then,
    where that is the same number everywhere.
    """

    blocks: tuple[For, ...]
    loops: tuple[For, ...]
    at: Expr
    found: dict[str, Expr]
    types: dict[str, Type]
    by: str
    larger: bool
    before: Mapping[str, Expr] = field(default_factory=dict[str, Expr])


def share_choices(module: Module) -> Module:
    """The module whose choices by one thread are shared by many."""
    body = _shared(module.body, module.body, count())
    return module if body is module.body else replace(module, body=body)


def _shared(s: Stmt, whole: Stmt, numbers: Iterator[int]) -> Stmt:
    match s:
        case Allocate(body=body) | LetStmt(body=body):
            inner = _shared(body, whole, numbers)
            return s if inner is body else replace(s, body=inner)
        case Block(stmts):
            found = tuple(_shared(x, whole, numbers) for x in stmts)
            if all(a is b for a, b in zip(found, stmts, strict=True)):
                return s
            starts = (_is_start(a, b, whole) for a, b in pairwise((*stmts, Block(()))))
            return Block(tuple(x for x, start in zip(found, starts, strict=True) if not start))
        case For(kind=ForKind.GPU_BLOCK):
            choice = _choice_of(s)
            if choice is None:
                return s
            choice = replace(choice, before=_before(choice, s, whole))
            stem = f"{choice.by}.best{next(numbers)}"
            return _by_blocks(choice, stem) if choice.blocks else _by_many(choice, stem)
        case _:
            return s


def _before(choice: _Choice, s: Stmt, whole: Stmt) -> dict[str, Expr]:
    """What is in the buffers of a choice that is looked for in ``s``, where all that is stored in
    them elsewhere is one number.
    """
    own, found = set(map(id, walk_stmt(s))), dict[str, set[Expr]]()
    for x in walk_stmt(whole):
        if isinstance(x, Store) and x.buffer in choice.found and id(x) not in own:
            value = x.value.value if isinstance(x.value, Broadcast) else x.value
            found.setdefault(x.buffer, set()).add(value)
    alike = {b: next(iter(values)) for b, values in found.items() if len(values) == 1}
    return {b: value for b, value in alike.items() if isinstance(value, IntImm | FloatImm)}


def _is_start(s: Stmt, then: Stmt, whole: Stmt) -> bool:
    """Whether a kernel does nothing but store what a choice behind it knows, where the threads of a
    block each look for the best of a row: of all that is asked of its buffers, as what the kernel
    stores tells but for the rest of its last block.
    """
    choice = _choice_of(then)
    match choice, s:
        case _Choice((row,), at=Var(at)), For(block, IntImm(0), rows, ForKind.GPU_BLOCK, For(
            thread, IntImm(0), IntImm(many), ForKind.GPU_THREAD, body
        )) if at == row.name and row.min == ZERO:  # fmt: skip
            index = add(mul(Var(block), IntImm(many)), Var(thread))
            stores = {name: index for name, index, _ in _stores(body, {})}
            whole_rows = rows == div(add(row.extent, IntImm(many - 1)), IntImm(many))
            known = _before(choice, then, whole).keys() == choice.found.keys()
            return whole_rows and known and stores == dict.fromkeys(choice.found, index)
        case _:
            return False


# ------------------------------------------------------------------ recognition


def _choice_of(s: Stmt) -> _Choice | None:
    loops, blocks = list[For](), list[For]()
    while isinstance(s, For):
        if s.kind is ForKind.SERIAL:
            loops.append(s)
        elif loops or (s.extent != ONE and s.kind is not ForKind.GPU_BLOCK):
            return None
        elif s.extent != ONE:
            blocks.append(s)
        s = s.body
    stores = [*_stores(s, {})]
    values = {buffer: value for buffer, _, value in stores}
    places = {index for _, index, _ in stores}
    if not loops or len(values) < 2 or len(places) != 1:
        return None
    (at,) = places
    if free_vars(at) & {x.name for x in loops}:
        return None
    found = {name: _new_of(value, name, values) for name, value in values.items()}
    known = {name: x for name, x in found.items() if x is not None}
    tests = {test for _, test in known.values()}
    if len(known) < len(values) or len(tests) != 1:
        return None
    by, new, larger = next(iter(tests))
    own = any(
        isinstance(x, Load) and x.buffer in values for e, _ in known.values() for x in walk_expr(e)
    )
    loads = (x for v in values.values() for x in walk_expr(v) if isinstance(x, Load))
    other = any(x.buffer in values and x.index != at for x in loads)
    if own or other or known[by][0] != new:
        return None
    names = {x.name for x in loops}
    if any(names & (free_vars(x.min) | free_vars(x.extent)) for x in loops):
        return None
    types = {name: value.type for name, value in values.items()}
    found = {n: e for n, (e, _) in known.items()}
    return _Choice(tuple(blocks), tuple(loops), at, found, types, by, larger)


def _stores(s: Stmt, lets: dict[str, Expr]) -> Iterator[tuple[str, Expr, Expr]]:
    """What is stored where, by buffer; a statement that is none of that has no name."""
    match s:
        case LetStmt(name, value, body):
            yield from _stores(body, {**lets, name: without_lets(substitute(value, lets))})
        case Block(stmts):
            for x in stmts:
                yield from _stores(x, lets)
        case Store(buffer, index, value, None):
            yield (
                buffer,
                without_lets(substitute(index, lets)),
                without_lets(substitute(value, lets)),
            )
        case _:
            yield "", ZERO, ZERO


_Test = tuple[str, Expr, bool]


def _new_of(value: Expr, buffer: str, own: dict[str, Expr]) -> tuple[Expr, _Test] | None:
    """What a buffer is set to, and the buffer and value that decide it; None for other values."""
    match value:
        case Select(Compare(CompareOp.LT, a, b), new, Load(_, known, _, None)) if known == buffer:
            match a, b:
                case Load(_, by, _, None), _ if by in own:
                    return new, (by, b, True)
                case _, Load(_, by, _, None) if by in own:
                    return new, (by, a, False)
                case _:
                    return None
        case Binary(BinaryOp.MAX | BinaryOp.MIN as op, new, Load(_, known, _, None)) | Binary(
            BinaryOp.MAX | BinaryOp.MIN as op, Load(_, known, _, None), new
        ) if known == buffer:
            return new, (buffer, new, _EXTREMA[op])
        case _:
            return None


# ------------------------------------------------------------------ many blocks

Elements = Callable[[Expr], dict[str, Expr]]  # by buffer, of a number in the order of the domain


def _by_many(choice: _Choice, stem: str) -> Stmt:
    """Blocks for parts of the domain, in its order, blocks for parts of those, and one for what is
    left.
    """
    kernels, allocations = list[Stmt](), list[tuple[str, Type, Expr]]()
    outer, inner = _cut(choice.loops)
    rows, length, source = _total(outer), _total(inner), None
    for level in range(3):
        block, name = Var(f"{stem}.{level}.part"), f"{stem}.{level}"
        to = {b: f"{name}.to{k}" for k, b in enumerate(choice.found)}
        last, pieces = level == 2, div(add(length, IntImm(PART - 1)), IntImm(PART))
        first = ZERO if last else mul(mod(block, pieces), IntImm(PART))
        total = length if last else binary(BinaryOp.MIN, IntImm(PART), sub(length, first))
        own = _of_row(choice, div(block, pieces), first) if source is None else source(first)
        ends = {b: (b, choice.at) if last else (to[b], block) for b in to}
        body = _by_threads(_Turns(choice, total, own, None), name, ends)
        parts = ONE if last else mul(rows, pieces)
        kernels.append(For(block.name, ZERO, parts, ForKind.GPU_BLOCK, body))
        if not last:
            allocations += [(to[b], choice.types[b], parts) for b in to]
        source, rows, length = partial(_behind, _of_parts(choice, to)), ONE, parts
    body = Block(tuple(kernels))
    for name, t, parts in allocations:
        body = Allocate(name, t, (parts,), Memory.AUTO, body)
    return body


def _behind(source: Elements, first: Expr) -> Elements:
    return lambda i: source(add(first, i))


def _total(loops: Sequence[For]) -> Expr:
    return reduce(mul, (binary(BinaryOp.MAX, x.extent, ZERO) for x in loops), ONE)


def _places(loops: Sequence[For], i: Expr) -> dict[str, Expr]:
    """Where loops are at an iteration, of all of them in their order."""
    at: dict[str, Expr] = {}
    for loop in loops[:0:-1]:
        at[loop.name], i = add(mod(i, loop.extent), loop.min), div(i, loop.extent)
    return at | {loop.name: add(i, loop.min) for loop in loops[:1]}


def _elements(choice: _Choice) -> Elements:
    return lambda i: _at(choice, _places(choice.loops, i))


def _at(choice: _Choice, at: dict[str, Expr]) -> dict[str, Expr]:
    return {b: substitute(e, at) for b, e in choice.found.items()}


def _of_row(choice: _Choice, row: Expr, first: Expr) -> Elements:
    """Of a part of a row, from its ``first`` element on."""
    outer, inner = _cut(choice.loops)
    there = _places(outer, row)
    return lambda i: _at(choice, {**there, **_places(inner, add(first, i))})


def _cut(loops: Sequence[For]) -> tuple[Sequence[For], Sequence[For]]:
    """Loops over rows, and those along one: more than the innermost where that is short."""
    cut = len(loops) - 1
    while cut and isinstance(n := loops[cut].extent, IntImm) and n.value < MEETING[0]:
        cut -= 1
    return loops[:cut], loops[cut:]


def _of_parts(choice: _Choice, names: dict[str, str]) -> Elements:
    return lambda i: {b: Load(choice.types[b], name, i) for b, name in names.items()}


def _own(choice: _Choice, name: str) -> dict[str, str]:
    """What a thread's own best is called."""
    return {b: f"{name}.own{k}" for k, b in enumerate(choice.found)}


def _known(choice: _Choice, buffer: str) -> Expr:
    """What is there before."""
    return choice.before.get(buffer) or Load(choice.types[buffer], buffer, choice.at)


def _best(buffer: str, t: Type) -> Expr:
    return Load(t, buffer, ZERO)


def _pair(choice: _Choice, own: Expr, new: Expr) -> tuple[Expr, Expr]:
    """What is compared: the first has to be smaller for the new one to be better."""
    return (own, new) if choice.larger else (new, own)


# ------------------------------------------------------------------ the threads of a block


def _by_blocks(choice: _Choice, stem: str) -> Stmt:
    """A block for each row."""
    turns = _Turns(choice, _total(choice.loops), _elements(choice), None)
    body = _by_threads(turns, stem, {b: (b, choice.at) for b in choice.found})
    for loop in choice.blocks[::-1]:
        body = replace(loop, body=body)
    return body


def _by_threads(turns: _Turns, stem: str, ends: dict[str, tuple[str, Expr]]) -> Stmt:
    """Threads of a block that take turns along what it has, and fewer and fewer ones along what
    those have found, which the last one stores.
    """
    choice = turns.choice
    steps, allocations = list[Stmt](), list[tuple[str, Type, int]]()
    for level, many in enumerate(MEETING):
        met = {b: f"{stem}.{level}.{k}" for k, b in enumerate((*choice.found, NUMBER))}
        name = f"{stem}.{level}.turn"
        thread = Var(f"{name}.thread")
        steps.append(_threads(turns, many, name, {b: (met[b], thread) for b in met}))
        types = {**choice.types, NUMBER: INT32}
        allocations += [(met[b], types[b], many) for b in met]
        parts = _of_parts(choice, {b: met[b] for b in choice.found})
        turns = _Turns(choice, IntImm(many), parts, met[NUMBER])
    steps.append(_threads(turns, 1, f"{stem}.{len(MEETING)}.turn", ends))
    body: Stmt = Block(tuple(steps))
    for name, t, many in allocations:
        body = Allocate(name, t, (IntImm(many),), Memory.GPU_SHARED, body)
    return body


@dataclass(frozen=True, slots=True)
class _Turns:
    """What threads take turns along: ``total`` elements of a ``source``, whose own numbers are in
    an array, or are theirs (None).
    """

    choice: _Choice
    total: Expr
    source: Elements
    numbers: str | None

    def number(self, i: Expr) -> Expr:
        return i if self.numbers is None else Load(INT32, self.numbers, i)


def _threads(turns: _Turns, many: int, name: str, ends: dict[str, tuple[str, Expr]]) -> Stmt:
    """So ``many`` threads that find the best of what they take, and store that, and its number if
    that has a place, too.
    """
    choice, own = turns.choice, _own(turns.choice, name)
    thread, turn, value, number = (f"{name}.{x}" for x in ("thread", "turn", "value", "number"))
    mine, held, ahead = (f"{name}.{x}" for x in ("own", "held", "ahead"))  # ``mine``: its number
    times = HELD if turns.numbers is None else 1
    i = add(mul(add(mul(Var(turn), IntImm(times)), Var(ahead)), IntImm(many)), Var(thread))
    new, t = turns.source(i), choice.types[choice.by]
    best, at, there = Var(value, t), Var(number), Compare(CompareOp.LT, i, turns.total)
    known = _best(own[choice.by], t)
    better: Expr = Compare(CompareOp.LT, *_pair(choice, known, best))
    if turns.numbers is not None:
        alike = Compare(CompareOp.EQ, known, best)
        before = Compare(CompareOp.LT, at, Load(INT32, mine, ZERO))
        better = Binary(BinaryOp.OR, better, Binary(BinaryOp.AND, alike, before))
    stores = [Store(own[b], ZERO, best if b == choice.by else new[b]) for b in own]
    take = IfThenElse(better, Block((*stores, Store(mine, ZERO, at))))
    loaded = IfThenElse(there, Store(held, Var(ahead), new[choice.by]))
    own_number = LetStmt(number, turns.number(i), take)
    taken = IfThenElse(there, LetStmt(value, Load(t, held, Var(ahead)), own_number))
    steps = (For(ahead, ZERO, IntImm(times), ForKind.UNROLLED, x) for x in (loaded, taken))
    body: Stmt = Allocate(held, t, (IntImm(times),), Memory.AUTO, Block(tuple(steps)))
    length = div(add(turns.total, IntImm(many * times - 1)), IntImm(many * times))
    first = [Store(own[b], ZERO, _known(choice, b)) for b in own]
    kept = [Store(*ends[b], _best(own[b], choice.types[b])) for b in own]
    if NUMBER in ends:
        kept.append(Store(*ends[NUMBER], Load(INT32, mine, ZERO)))
    body = For(turn, ZERO, length, ForKind.SERIAL, body)
    body = Block((*first, Store(mine, ZERO, LAST), body, *kept))
    for b in own:
        body = Allocate(own[b], choice.types[b], (IntImm(1),), Memory.AUTO, body)
    body = Allocate(mine, INT32, (IntImm(1),), Memory.AUTO, body)
    return For(thread, ZERO, IntImm(many), ForKind.GPU_THREAD, body)
