"""Steps that the threads of a block share: each reads what steps before have stored.

    for t: for x (threads): f[x, t] = g(f[x - 1, t - 1], f[x + 1, t - 1])

What is read lies in a row of another step, whatever the place in it, or where it is stored itself.
So the threads wait for each other once a step (``codegen.units``), and what else a step goes along
is a loop of each thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from selector.dataclass import dataclass
from selector.ir.affine import Affine
from selector.ir.nodes import Block, For, ForKind, IfThenElse, Load, Stmt, Store, Var
from selector.ir.recurrences import along_domain
from selector.ir.traverse import walk_all_exprs, walk_expr, walk_stmt


@dataclass(frozen=True, slots=True)
class Turns:
    """``around`` the threads of a block: its loop over blocks and the one over steps; ``threads``,
    the loops ``within`` a step and its ``tests``; what is done for an element (``last``).
    """

    around: tuple[For, ...]
    threads: tuple[For, ...]
    within: tuple[For, ...]
    tests: tuple[IfThenElse, ...]
    last: Stmt

    def shared(self) -> For:
        """The loops of a step inside those over threads."""
        nest: Stmt = self.last
        for x in reversed((*self.around, *self.threads, *self.within, *self.tests)):
            nest = replace(x, then=nest) if isinstance(x, IfThenElse) else replace(x, body=nest)
        assert isinstance(nest, For)
        return nest


def turns_of(kernel: Stmt) -> Turns | None:
    """None where threads share no steps."""
    nest = list(nested(kernel))
    last, loops = nest.pop(), [x for x in nest if isinstance(x, For)]
    tests = tuple(x for x in nest if isinstance(x, IfThenElse))
    threads = tuple(x for x in loops if x.kind is ForKind.GPU_THREAD)
    if not any(along_domain(x.name) for x in threads) or not all(
        isinstance(s, Store | Block) for s in walk_stmt(last)
    ):
        return None
    first = loops.index(threads[0])
    steps = next((n for n, x in enumerate(loops[:first]) if x.kind is ForKind.SERIAL), first)
    if steps == first or not _is_of_others(last, tests, loops, steps):
        return None
    around = tuple(loops[: steps + 1])
    within = tuple(x for x in loops[steps + 1 :] if x not in threads)
    alike = all(x.kind is ForKind.SERIAL for x in within)
    return Turns(around, threads, within, tests, last) if alike else None


def nested(s: Stmt) -> Iterator[Stmt]:
    """Statements inside each other, as long as each has one inside."""
    yield s
    match s:
        case For(body=body) | IfThenElse(_, body, None):
            yield from nested(body)
        case _:
            pass


def _is_of_others(last: Stmt, tests: Sequence[IfThenElse], loops: Sequence[For], n: int) -> bool:
    """Whether all that is read of what is stored is of another step, of a loop by its number, or
    lies where it is stored, not all of it; and each thread stores elements of its own.
    """
    stores = [s for s in walk_stmt(last) if isinstance(s, Store)]
    read = [e for e in walk_all_exprs(last) if isinstance(e, Load)]
    read += [e for t in tests for e in walk_expr(t.condition) if isinstance(e, Load)]
    further = False
    for store in stores:
        if store.index.type.lanes > 1 or not _is_walked(store, loops[n:]):
            return False
        index = Affine.of(store.index)
        back = [index - Affine.of(e.index) for e in read if e.buffer == store.buffer]
        if not all(not b.terms or _rows_between(index, b, loops[n], loops) for b in back):
            return False
        further |= any(b.terms for b in back)
    return further


def _is_walked(store: Store, loops: Sequence[For]) -> bool:
    """Whether what is stored moves with all threads, by steps that stay the same."""
    index, names = Affine.of(store.index), {x.name for x in loops}
    for x in loops:
        step, rest = index.coefficient(Var(x.name)), index.rest(Var(x.name))
        moves = bool(step.terms) or x.kind is not ForKind.GPU_THREAD
        if not moves or rest.mentions(x.name) or any(step.mentions(name) for name in names):
            return False
    return True


def _rows_between(index: Affine, back: Affine, steps: For, loops: Sequence[For]) -> bool:
    """Whether ``back`` leads to what another step stores."""
    row = index.coefficient(Var(steps.name))
    if row.constant is None:
        return bool(back.counted_by(row).constant)
    others = [index.coefficient(Var(x.name)) for x in loops if x is not steps]
    others = [e for e in others if e.terms]
    sizes = {atom for e in others for atoms, _ in e for atom in atoms}
    left = Affine(tuple((m, c) for m, c in back if sizes.isdisjoint(m)))
    return all(e.constant is None for e in others) and bool(row.terms and left.constant)
