"""Laws applied to programs as they are written best: what somebody may write instead.

A law is two patterns that are equal. The second is looked for in a program, the first put in its
place; what is not recognised then goes the way of any other pair. Where ``l`` and ``t`` are not
bound, they are the lanes and the element type of ``x``.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from itertools import groupby, islice

from selector.diagnostics import InternalError
from selector.eqsat.decode import Decoder, Term
from selector.ir.types import IllTyped
from selector.workbench.infer.fingerprints import Fingerprints, agree
from selector.workbench.infer.grammar import PLACE, Hole, holes
from selector.workbench.infer.holes import Recogniser, fill
from selector.workbench.infer.patterns import instance, match, read, size, subterms
from selector.workbench.infer.search import Pair

_LAWS = """
(Bop "*" x (Broadcast (FLit t 1.0) l)) <- x
(Bop "+" x (Broadcast (FLit t 0.0) l)) <- x
(Bop "*" x (Broadcast (Int 1) l)) <- x
(Bop "-" x (Broadcast (Int 0) l)) <- x
(Bop "-" (Bop "+" x (Broadcast (Int 3) l)) (Broadcast (Int 3) l)) <- x
(Bop "/" (Bop "*" x (Broadcast (Int 2) l)) (Broadcast (Int 2) l)) <- x
(Bop "/" (Bop "+" (Bop "*" x (Broadcast (Int 2) l)) (Broadcast (Int 1) l)) (Broadcast (Int 2) l))
  <- x
(Bop "-" (Broadcast (Int 0) l) (Bop "-" (Broadcast (Int 0) l) x)) <- x
(Bop "min" x x) <- x
(Bop "min" x (Bop "+" x (Broadcast (Int 1) l))) <- x
(Bop "max" (Bop "-" x (Broadcast (Int 1) l)) x) <- x
(Select (Always l) x x) <- x
(Select (Always l) x (Broadcast (FLit t 0.0) l)) <- x
(Select p x y) <- (Select (Not p) y x)
(Not (Cmp ">=" x y)) <- (Cmp "<" x y)
(Not (Cmp "<=" y x)) <- (Cmp "<" x y)
(Cmp ">" y x) <- (Cmp "<" x y)
(Cmp "<=" (Bop "+" x (Broadcast (Int 1) l)) y) <- (Cmp "<" x y)
(Cmp "<" (Bop "-" x y) (Broadcast (Int 0) l)) <- (Cmp "<" x y)
(Cmp "<" (Bop "*" x (Broadcast (Int 2) l)) (Bop "*" y (Broadcast (Int 2) l))) <- (Cmp "<" x y)
(Cmp "==" (Bop "min" x (Bop "-" y (Broadcast (Int 1) l))) x) <- (Cmp "<" x y)
(Bop "&&" (Cmp "<" x y) (Cmp "<" x y)) <- (Cmp "<" x y)
(Bop "||" (Cmp "<" x y) (Cmp "<" x y)) <- (Cmp "<" x y)
(Not (Bop "||" (Not p) (Not q))) <- (Bop "&&" p q)
(Select p q (Not (Always l))) <- (Bop "&&" p q)
(Bop "&&" p (Always l)) <- p
(Bop "*" y x) <- (Bop "*" x y)
(Bop "-" (Broadcast (Int 0) l) (Bop "*" (Bop "-" (Broadcast (Int 0) l) x) y)) <- (Bop "*" x y)
(Bop "*" (Bop "-" (Broadcast (Int 0) l) x) (Bop "-" (Broadcast (Int 0) l) y)) <- (Bop "*" x y)
(Bop "*" (Cast t p) x) <- (Select p x (Broadcast (FLit t 0.0) l))
(Select p (Broadcast (FLit t 0.0) l) x) <- (Select (Not p) x (Broadcast (FLit t 0.0) l))
(Bop "*" x (Select p y (Broadcast (FLit t 0.0) l)))
  <- (Select p (Bop "*" x y) (Broadcast (FLit t 0.0) l))
(Select p (Select q x (Broadcast (FLit t 0.0) l)) (Broadcast (FLit t 0.0) l))
  <- (Select (Bop "&&" p q) x (Broadcast (FLit t 0.0) l))
(Cast "int32" (Bop "*" (Cast "int16" a) (Cast "int16" b)))
  <- (Bop "*" (Cast "int32" a) (Cast "int32" b))
(Cast "int32" (Cast "int16" a)) <- (Cast "int32" a)
(Cast "float32" (Cast "float64" a)) <- (Cast "float32" a)
(Cast "float32" (Cast "float32" a)) <- (Cast "float32" a)
(Select (Load u b i p) (Load u b i p) y) <- (Load u b i p)
(Select p (Load u b i (Always l)) (Broadcast (FLit u 0.0) l)) <- (Load u b i p)
(Cast "float32" (Select p (Load u b i (Always l)) (Broadcast (FLit u 0.0) l)))
  <- (Cast "float32" (Load u b i p))
(Bop "*" (Load u b i p) (Cast u p)) <- (Load u b i p)
(Reduce "add" (Reduce "add" x n) n) <- (Reduce "add" x n)
(Bop "+" (Reduce "add" x n) (Broadcast (Int 0) n)) <- (Reduce "add" x n)
(Ramp (Ramp x s 2) (Bop "*" s (Int 2)) 3) <- (Ramp x s 6)
(Ramp (Ramp x s 3) (Bop "*" s (Int 3)) 2) <- (Ramp x s 6)
(Bop "+" (Ramp (Broadcast (Int 0) l) s n) (Broadcast x n)) <- (Ramp x s n)
(Bop "-" (Broadcast x n) (Ramp (Broadcast (Int 0) l) (Bop "*" s (Int -1)) n)) <- (Ramp x s n)
(Bop "*" (Ramp x (Int 1) n) (Broadcast (Int 1) n)) <- (Ramp x (Int 1) n)
(Select (Cmp "<" x y) x y) <- (Bop "min" x y)
(Ramp x (Int 0) n) <- (Broadcast x n)
"""


def _laws() -> Iterator[tuple[Term | object, Term | object]]:
    for line in _LAWS.strip().replace("\n  <-", " <-").splitlines():
        variant, best = line.split(" <- ")
        yield tuple(read(f"(Law {side})")[1] for side in (variant, best))  # type: ignore[misc]


def variants(prints: Fingerprints, names: Set[str]) -> Iterator[tuple[Hole, Term, Term]]:
    """A hole, what is there, and the variant of it, smallest first."""
    for hole in (h for n, h in holes().items() if n in names):
        bests = [hole.best, *hole.extra]
        for best in bests:
            found: dict[Term, None] = {}
            for variant, pattern in _laws():
                found |= dict.fromkeys(_applied(variant, pattern, best, prints))
            yield from (
                (hole, best, term) for term in sorted(found, key=lambda t: (size(t), str(t)))
            )


def _applied(variant: object, pattern: object, best: Term, prints: Fingerprints) -> Iterator[Term]:
    whole = prints.value(best)
    for part in dict.fromkeys(subterms(best)):
        bound: dict[str, object] = {}
        if part[0] == "Int" or not match(pattern, part, bound):
            continue
        try:
            e = Decoder().expr(bound.get("x", part))  # type: ignore[arg-type]
            bound = {"l": e.type.lanes, "t": str(e.type.element)} | bound
            term = fill(best, part, instance(variant, bound))  # type: ignore[arg-type]
        except (KeyError, ValueError, IllTyped, InternalError):
            continue
        if term != best and agree(prints.value(term), whole):
            yield term


def from_laws(
    prints: Fingerprints, recogniser: Recogniser, names: Set[str]
) -> Iterator[Pair | None]:
    """The variants in some holes that are refused; None now and then, where time may be over."""
    for hole, several in groupby(variants(prints, names), lambda found: found[0]):
        while batch := list(islice(several, 24)):
            yield None
            answers = recogniser.ask([fill(hole.update, PLACE, term) for _, _, term in batch])
            for (_, best, term), good in zip(batch, answers, strict=True):
                if not good:
                    yield Pair(hole.name, hole.update, term, best)
