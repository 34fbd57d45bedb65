"""Products of matrices in tile registers: which sums are some, and their directives.

``selector.families.tiles`` says what the loops are. An operand that does not go along its rows
where the registers read rows is copied before, turned.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from halide_bridge.memory import MemoryType
from halide_bridge.schedules.asked import pipeline_stages, store_in
from halide_bridge.schedules.candidates import EMPTY, fills
from halide_bridge.schedules.contraction import Contraction, Operand
from halide_bridge.schedules.recognise.products import Product, factors, product_of, source_type
from halide_bridge.schedules.recognise.program import Member, Program
from halide_bridge.schedules.sizes import Guess
from halide_bridge.stock import rvars, variables
from selector.families import tiles
from selector.intrinsics import TensorInstruction
from selector.ir.types import Type
from selector.machine import Host

Kinds = frozenset[tuple[Type, Type]]
TURNED = 16, 32  # elements across and along the sum that are turned together


def kinds_of(legal: Sequence[TensorInstruction]) -> Kinds:
    """The types of operands that are multiplied."""
    return frozenset((i.a_type, i.b_type) for i in legal)


def product_for(member: Member, program: Program, known: Guess, kinds: Kinds) -> Product | str:
    """The product that tile registers are to have of a sum; else why they cannot, or should not,
    empty where it is no sum of products at all.
    """
    pair, legal = factors(member), {kind for both in kinds for kind in both}
    if pair is None:
        read = {m.types[0] for a in member.accesses() if (m := program.members.get(a.func))}
        words = not member.pure and read - {*member.types} <= legal  # for a product, in others
        return product_of(member, program) if words and kinds else ""
    types = tuple(map(source_type, pair))
    if types not in kinds:
        each, multiplied = (", ".join(sorted(map(str, {*these}))) for these in (types, legal))
        return (
            f"its factors are of {each}, and tile registers multiply {multiplied}" if kinds else ""
        )
    found = product_of(member, program) if kinds else ""
    if isinstance(found, str):
        return found
    shape = shape_of(found, program, known)
    return found if fills(shape.n, shape.m, shape.k) else EMPTY


def shape_of(product: Product, program: Program, known: Guess) -> tiles.Shape:
    member = program.members[product.func]
    k = prod(known.value(r.extent) for r in member.stages[1].reduced)
    others = (d for d in range(1, len(member.args)) if d != product.m)
    batch = prod(known.extent(member, d) for d in others)
    m, n = known.extent(member, product.m), known.extent(member, 0)
    return tiles.Shape(m, n, max(1, k), product.a.type.bytes, max(1, batch))


def candidates(product: Product, program: Program, known: Guess, host: Host) -> list[tiles.Tiling]:
    """The best schedule, and that with nothing loaded ahead, which some operands do not allow."""
    ((_, best), *_) = tiles.ranked(shape_of(product, program, known), host)
    return [best, tiles.Tiling(best.m, best.n, best.k, best.rows, best.columns, stages=1)]


def multiply(c: Contraction, tiling: tiles.Tiling) -> None:
    """Schedule a product so; ``c.output`` is stored."""
    no, mo, ni, mi, nu, nb, mb = variables("no", "mo", "ni", "mi", "nu", "nb", "mb")
    c.output.reorder(c.n, c.m, *c.batch)
    c.output.tile(c.n, c.m, no, mo, ni, mi, tiling.n, tiling.m)
    c.output.split(ni, nu, ni, tiling.vector_n)
    c.output.split(no, nb, no, tiling.columns // tiling.n)
    c.output.split(mo, mb, mo, tiling.rows // tiling.m)
    c.output.reorder(ni, mi, nu, mo, no, nb, mb, *c.batch)
    c.output.vectorize(ni).vectorize(mi).unroll(nu)
    for loop in (nb, mb, *c.batch):
        c.output.parallel(loop)
    _sums(c, mo, tiling)
    if not c.a.along:
        _turned(c.a, c)


def _sums(c: Contraction, at: Any, tiling: tiles.Tiling) -> None:
    """What stays in registers: one instruction's depth a step."""
    product = c.product
    product.bound_extent(c.n, tiling.n).bound_extent(c.m, tiling.m).compute_at(c.output, at)
    store_in(product, MemoryType.AMXTile)
    pipeline_stages(product, tiling.stages)
    for other in c.batch:
        product.bound_extent(other, 1)
    nu, nv = variables("nu", "nv")
    ko, ki = rvars("ko", "ki")
    product.split(c.n, nu, nv, tiling.vector_n).reorder(nv, c.m, nu, *c.batch)
    product.vectorize(nv).vectorize(c.m).unroll(nu)
    update = product.update().atomic()
    update.split(c.n, nu, nv, tiling.vector_n).split(c.k, ko, ki, tiling.k)
    update.reorder(ki, nv, c.m, nu, ko, *c.turns, *c.batch)
    update.vectorize(ki).vectorize(nv).vectorize(c.m).unroll(nu)


def _turned(operand: Operand, c: Contraction) -> None:
    """A copy whose rows go along the sum."""
    copy = operand.source.in_(c.product)
    across, *others = copy.args()
    along = others.pop(operand.outer - 1)
    ao, ai, so, si = variables("ao", "ai", "so", "si")
    copy.compute_root().reorder_storage(along, across)
    copy.tile(across, along, ao, so, ai, si, *TURNED)
    copy.reorder(si, ai, so, ao, *others).vectorize(si).parallel(ao)
