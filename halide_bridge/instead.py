"""Funcs that are read in place of others, from now on: copies and parts of these, which a schedule
may then store and stage; and sums that begin with zero.
"""

from __future__ import annotations

from collections.abc import Sequence

from halide_bridge.memory import caller_location
from halide_bridge.names import plain
from halide_bridge.native import native
from halide_bridge.stock import Func, Named
from selector.diagnostics import ScheduleError


def refused(what: str, why: str = "", hint: str = "") -> ScheduleError:
    """Told where the user asked for it."""
    return ScheduleError(what, why, hint, caller_location())


def clone(func: Func, consumer: Func, along: Named | None = None) -> Func:
    """A Func of its own that ``consumer`` reads in place of ``func``, from now on: with the same
    definition, to be computed where the others are not, or one that reads ``func`` if the loops of
    that have been scheduled. Unlike Halide's ``clone_in`` it may be asked for several consumers,
    one after the other, and for a part of what one reads: that whose place depends on its variable
    ``along``. With ``along`` ``j`` the second factor of ``f[i, j] += A[r, i] * A[r, j]`` is staged
    by itself. ``ScheduleError`` if no read does.
    """
    name = f"{plain(func.name())}_of_{plain(consumer.name())}"
    variable = "" if along is None else along.name()
    copied: Func = native().clone_for(func, consumer, variable, name)
    if not copied.defined():
        raise refused(
            f"`{plain(consumer.name())}` reads no `{plain(func.name())}` along `{variable}`",
            hint="a variable of the consumer in an index of the read that is meant",
        )
    return copied


def operand(sum_: Func, factor: int, order: Sequence[Named] = ()) -> Func:
    """A Func of its own for a factor, 0 or 1, of the products that ``sum_`` adds up, which reads it
    from now on: with ``order`` ``k, i`` the first factor of ``f[i, j] += f32(f16(2 * A[k, i])) *
    ...`` is ``f_a[k, i]``, an f16, and may be staged or stored as any other. Its dimensions stand
    for the variables that the factor depends on, in that order; a reduction variable of one value
    may be left out. Without ``order`` they are those of the place at which the factor reads
    elements: the first one of ``f[x, y] += f32(f16(A[x + r.x, y + r.y] / 255)) * ...`` is
    ``f_a[v0, v1]``, read at ``f_a[x + r.x, y + r.y]``. ``ScheduleError`` if it is no such sum,
    depends on others, or reads at several places.
    """
    name = f"{plain(sum_.name())}_{'ab'[factor]}"
    made: Func = native().operand(sum_, factor, [v.name() for v in order], name)
    if not made.defined():
        raise refused(
            f"`{plain(sum_.name())}` has no factor {factor} "
            + (f"over {[v.name() for v in order]}" if order else "that is computed at one place"),
            why="it adds no products, or the factor depends on other variables",
            hint="a Func with one update, f[...] += a * b, and each variable of the factor once",
        )
    return made


def from_zero(sum_: Func, reader: Func) -> Func:
    """Have a sum begin at zero, as those of tensor units do, and ``reader``, which is all that
    reads it, add what it began with: with ``f[i, j] = bias[i]`` and ``f[i, j] += ...`` what reads
    ``f[i, j]`` reads ``bias[i] + f[i, j]``. Of floats that is rounded in another order. Returns
    ``sum_``; ``ScheduleError`` for a Func that does not read it.
    """
    if not native().from_zero(sum_, reader):
        raise refused(
            f"`{plain(reader.name())}` does not read `{plain(sum_.name())}`",
            why="it is to add what the sum begins with",
            hint="the Func that reads the sum, or `.in_()` of an output",
        )
    return sum_


def divided_last(weight: Func, total: Func, sum_: Func, reader: Func, *between: Func) -> Func:
    """Have a sum of weights that are divided by the total of their row be one of weights that are
    not, and ``reader``, which is all that reads it, divide: with ``p[n, m] = f16(w[n, m] /
    total[m])`` and ``f[d, m] += f32(p[n, m]) * ...`` what reads ``f[d, m]`` reads ``f[d, m] /
    total[m]``, and ``p[n, m]`` is ``f16(w[n, m])``. ``w * (1 / total)`` and ``exp(x -
    log(total))`` are such quotients as well; Funcs ``between`` are written out in ``weight``. That
    rounds in another order, and of weights that are more than one it may be more than their type
    has. Returns ``sum_``; ``ScheduleError`` for a weight that is not divided so.
    """
    if not native().divided_last(weight, total, sum_, reader, [*between]):
        raise refused(
            f"`{plain(weight.name())}` is not divided by `{plain(total.name())}`",
            why=f"`{plain(reader.name())}` is to divide `{plain(sum_.name())}` by it",
            hint="a weight that is a quotient by the total of its row, and is read once by a sum "
            "that begins at zero",
        )
    return sum_


def multiplied_last(sum_: Func, *readers: Func) -> Func:
    """Have a sum that begins at zero add what is not multiplied by what is the same for all terms
    of an element, and ``readers``, which are all that read it, multiply by that: with ``f[i, j] +=
    a * b * s[j] / 8`` they read ``f[i, j] * s[j] / 8`` of ``f[i, j] += a * b``, which a tensor unit
    takes. What is subtracted is added, and they read the negative. Floats are rounded in another
    order. Returns ``sum_``; ``ScheduleError`` for a sum without such a factor.
    """
    if not native().multiplied_last(sum_, [*readers]):
        raise refused(
            f"the terms of `{plain(sum_.name())}` are multiplied by nothing that is the same for "
            "all of an element, or it does not begin at zero",
            why="its readers are to multiply the sum by it",
            hint="f[...] = 0 and f[...] += a * b * c with c a constant, a parameter, or of the row "
            "or column",
        )
    return sum_


def sums_apart(func: Func, *readers: Func, each: bool = False) -> list[Func]:
    """Have ``readers``, which are all that read a Func, read what it is after its updates of others
    that have a sum each: with ``f[i, j] = c[i]``, ``f[i, j] += a * b`` and ``f[i, j] = max(f[i, j],
    0)`` they read ``max(c[i] + f_sum[i, j], 0)`` of ``f_sum[i, j] += a * b``, which begins at zero
    and is for a tensor unit. So do the values of a tuple. Updates of other elements than one's own,
    and those behind them, are updates of what is read. ``each``: of a sum of several products each
    is a sum, ``f[i, j] += a * b - c * d`` has two. Of an output ``.in_()`` is a reader. Floats are
    added in another order. Returns the sums, with what else is combined by updates, and the Func
    that is read for each value. ``ScheduleError`` for a Func without such sums.
    """
    name = plain(func.name())
    made: list[Func] = native().sums_apart(func, [*readers], name, False, each)
    if not made:
        raise refused(
            f"`{name}` has no sum among its updates that can be one by itself",
            why="a Func of its own is to begin at zero and add the same",
            hint="f[...] += ... over a reduction domain, of terms that do not read f",
        )
    return made


def counted_from_zero(sum_: Func) -> Func:
    """Have the variables that a sum goes along begin at 0, as those of tensor units do: with
    ``RDom([(8, 64)])`` ``f[i, j] += a[k, i] * b[j, k]`` is ``a[k + 8, i] * b[j, k + 8]`` over
    ``RDom([(0, 64)])``. Returns ``sum_``; ``ScheduleError`` where they do already.
    """
    if not native().counted_from_zero(sum_):
        raise refused(
            f"`{plain(sum_.name())}` goes along no variable that begins elsewhere than at 0",
            hint="a Func with one update over such a reduction domain",
        )
    return sum_


def as_product(sum_: Func) -> Func:
    """Have a sum add products of two factors, where it adds such as count under a condition or are
    taken in fewer bits. ``f[...] += select(p, a * b, 0)`` is ``select(p, a, 0) * b``: each part of
    ``p`` that ``&`` joins goes to a factor that has all variables of the result which it has; the
    other factor is read where the term does not count, and multiplied by zero. What ``RDom.where``
    says is such a condition, and so is a factor of one or zero. ``f[...] += i32(a * b)`` is
    ``i32(a) * i32(b)`` for integers of which every product has room in their type, as those of u8
    by s8 have in int16. Returns ``sum_``; ``ScheduleError`` for terms that are no such product.
    """
    if not native().as_product(sum_):
        raise refused(
            f"the terms of `{plain(sum_.name())}` are no product of two factors in other words",
            why="a condition of both rows and columns belongs to neither factor, and products that "
            "are rounded or wrap around are none of wider factors",
            hint="f[...] += select(condition, a * b, 0), or i32(i16(a) * i16(b)) of u8 and s8",
        )
    return sum_


def separated(sum_: Func, along: Named) -> Func:
    """A Func of its own for the sums along the other variables of a window, which ``sum_`` adds up
    ``along`` one: with ``f[x, y] += a[x + r.x, y + r.y]`` and ``r.y`` it is ``rows[x, y] += a[x +
    r.x, y]``, and ``f[x, y] += rows[x, y + r.y]``. Factors that depend on that variable alone are
    multiplied there. The largest and the smallest of windows do as well, and so do windows at every
    second, third or fourth element, and such that run backwards. Sums of floats are taken in
    another order. ``ScheduleError`` where the terms of neighbours share nothing so.
    """
    name = f"{plain(sum_.name())}_rows"
    made: Func = native().separated(sum_, along.name(), name)
    if not made.defined():
        raise refused(
            f"neighbours of `{plain(sum_.name())}` share no sums along the others than "
            f"`{along.name()}`",
            why="its terms are not the same at one place of an axis for all results",
            hint="a Func with one update over a window, f[x, y] += a[x + r.x, y + r.y]",
        )
    return made


def narrow_factors(sum_: Func) -> Func:
    """Have the factors of a sum's products in float32 be values of float16, or of bfloat16 where
    elements are cast from that, which tensor units multiply: elements of these types and bytes, and
    the larger or smaller, the negative, the absolute value of such, or one of two. Those are the
    same values. Returns ``sum_``; ``ScheduleError`` for factors that may have others.
    """
    if not native().narrow_factors(sum_):
        raise refused(
            f"the factors of `{plain(sum_.name())}` are not all values of 16 bits",
            why="they are to be computed in these, and to be the same",
            hint="f[...] += f32(a) * max(f32(b), 0) with elements a and b of 16 bits, or of bytes",
        )
    return sum_


def subtracted_last(sum_: Func, *readers: Func) -> list[Func]:
    """Have a sum of products of int32 multiply what is not less by a number of its row or column, a
    zero point, and ``readers``, which are all that read it, subtract what that makes: with
    ``f[i, j] += (a[k, i] - z) * (b[k, j] - w[j])`` they read ``f[i, j] - w[j] * a_sum[i] - z *
    b_sum[j] + K * z * w[j]`` of ``f[i, j] += a * b`` over K terms, bytes that a tensor unit takes.
    Integers wrap around, so that is the same. Returns the sums of operands, Funcs of their own that
    are to be scheduled, ``a``'s first; there is one where only one factor has a zero point.
    ``ScheduleError`` for a sum without.
    """
    name = plain(sum_.name())
    made: list[Func] = native().subtracted_last(sum_, [*readers], name)
    if not made:
        raise refused(
            f"the factors of `{name}` are less by nothing",
            why="its readers are to subtract what comes of that",
            hint="f[...] += (a - z) * b, integers of 32 bits, where z is the same along the sum",
        )
    return made


def narrowed(func: Func, *readers: Func) -> Func:
    """A Func of its own that all ``readers`` read in place of ``func``, from now on: of the type
    that each of them casts what it reads to, so that they read the same values, of fewer bytes
    where it is stored. ``ScheduleError`` if one reads it as it is, or they have several types.
    """
    name = f"{plain(func.name())}_narrow"
    made: Func = native().narrowed(func, [*readers], name)
    if not made.defined():
        raise refused(
            f"`{plain(func.name())}` is not cast by all that read it, each time to one type",
            why="a Func of another type would have other values for them",
            hint=f"readers whose values have `{plain(func.name())}` in a cast only",
        )
    return made


def phased(func: Func, reader: Func, phases: Sequence[tuple[Named, Named, Named, int]]) -> Func:
    """A Func of its own that ``reader`` reads in place of ``func``, from now on, in which every so
    many elements are a phase: with ``(x, xo, xp, 2)`` ``func[c, x]`` is
    ``phased[c, x / 2, x % 2]``, and the loop over ``x`` of ``reader`` is split into ``xo`` and
    ``xp``, over the phases, which stays a loop. What differs from phase to phase, such as the taps
    of a transposed convolution, is the same for all of one. It has a dimension more for each, and
    is to be scheduled.

    ``reader`` is pure and reads ``func``, of one value, at its own variables alone; the pipeline is
    lowered by ``hb.lower`` only, stock Halide does not know of phases. ``ScheduleError`` for other
    readers, a variable that it has not, and fewer than two phases.
    """
    location = caller_location()
    names = [x.name() for x, _, _, _ in phases]
    own = [v.name() for v in reader.args()]
    if not set(names) <= set(own) or min((n for *_, n in phases), default=0) < 2:
        raise ScheduleError(
            f"`{plain(func.name())}` has no such phases in `{plain(reader.name())}`",
            why=f"those of {names} are asked for, of {[n for *_, n in phases]}",
            hint="a variable of the reader each, and at least two phases",
            where=location,
        )
    told = [(x.name(), loop.name(), count) for x, _, loop, count in phases]
    made: Func = native().phased(func, reader, told, f"{plain(func.name())}_phased")
    if not made.defined():
        raise ScheduleError(
            f"`{plain(func.name())}` has no phases in `{plain(reader.name())}`",
            why="it is not read at the reader's own variables alone, or updates others than its "
            "own elements",
            hint="read it in a pure Func at its variables, each once",
            where=location,
        )
    for x, outer, loop, count in phases:
        reader.split(x, outer, loop, count)
    return made


def joined(func: Func, reader: Func, inner: Named, outer: Named) -> tuple[Func, Func, Func]:
    """A Func of its own that ``reader`` reads in place of ``func``, from now on, whose sum goes
    over two of its variables as one, and the factors of its products: with ``r.x``, of which there
    are 3, and ``r.y`` of ``f[c, x] += A[r.x, 2 * x + r.y] * B[r.x, r.y, c]`` these are
    ``joined[c, x] += a[k, x] * b[k, c]``, ``a[k, x] = A[k % 3, 2 * x + k / 3]`` and
    ``b[k, c] = B[k % 3, k / 3, c]``. Beyond the last term the factors have that again. All three
    are to be scheduled.

    The numbers of terms are constants. ``ScheduleError`` if it is no such sum, or ``reader`` does
    not read it.
    """
    name = f"{plain(func.name())}_joined"
    made = native().joined(func, reader, inner.name(), outer.name(), name)
    if not made:
        raise refused(
            f"`{plain(func.name())}` has no sum over `{inner.name()}` and `{outer.name()}` as one "
            f"in `{plain(reader.name())}`",
            why="it adds no products of elements, or the number of their terms is not known, or it "
            "is not read there",
            hint="a Func with one update, f[...] += a * b, and a Func that reads it",
        )
    total, a, b = made
    return total, a, b


def in_parts(
    output: Func,
    sums: tuple[Func, Func, Func],
    weight: Func,
    scores: Func,
    along: Sequence[Sequence[int]],
    keys: int,
    at_once: int,
    query: Func | None = None,
    sharing: tuple[int, int, int] = (1, 0, 0),
) -> tuple[Func, ...]:
    """Have ``output`` join what is found of parts of the keys, ``keys`` of them each: a peak, the
    sum of the powers that go down from it, and that of the ``weight``s of values, ``sums`` in this
    order, all of which are made of ``scores``. That rounds in another order. ``along``: which
    dimensions of the output those of the three sums go along.

    Returns the Func of what each part has found, in its last dimension; its peak and its sums; the
    scores of each of the three, the last with its weight; and what joins: what is read of parts,
    ``at_once`` of them, the largest peak and the sums. All are to be scheduled. ``ScheduleError``
    for powers that do not go down from the peak, alike in both sums.

    ``sharing``: a number of heads, neighbours that have the same keys, and the dimensions of the
    output along the queries and along the heads. What each part has found goes along the queries
    of all of them then, head by head within a query, and along their groups; the last Func of
    those returned is what the scores read in place of the argument ``query``.
    """
    made: list[Func] = native().in_parts(
        output, [*sums], weight, scores, query or scores, [[*dims] for dims in along], keys,
        at_once, sharing,
    )  # fmt: skip
    if not made:
        raise refused(
            f"`{plain(output.name())}` has no sums that parts can be joined of",
            why="their terms are no powers that go down from a largest element, by a number of "
            "times that",
            hint="exp(x - largest), with what is read at the variables of the loop",
        )
    return tuple(made)


def together(sum_: Func, *readers: Func) -> tuple[Func, ...]:
    """A Func of its own that ``readers``, all that read ``sum_``, read in place of it, from now on:
    one product of longer rows for the sum of several, with their factors one after the other. For
    ``f[i, j] += f32(a[k, i]) * f32(b[k, j]) - f32(c[k, i]) * f32(d[k, j])`` over K terms it is
    ``f_together[i, j] += f32(f_together_a[k, i]) * f32(f_together_b[k, j])`` over 2 K, where the
    first factor is ``a`` and then ``-c``, the second ``b`` and then ``d``. Returns the sum and both
    factors, to be scheduled. Of windows whose pixels lie one after the other, from the last one on
    or not, only the taps are put so: ``f[x] += f32(a[x + t]) * f32(b[t]) + f32(a[x + 7 - t]) *
    f32(b[t])`` over 4 taps has a window of 8, also as ``(f32(a[x + t]) + f32(a[x + 7 - t])) *
    f32(b[t])``, and the sum and the taps are returned. Sums of floats are taken in another order.

    ``ScheduleError`` for a sum of other terms, or of one product.
    """
    name = plain(sum_.name())
    made: list[Func] = native().together(sum_, [*readers], f"{name}_together")
    if not made:
        raise refused(
            f"`{name}` is no sum of several products that share their rows and columns",
            why="their factors are to be one after the other along the sum",
            hint="f[...] += f32(a) * f32(b) + f32(c) * f32(d) over one variable",
        )
    return tuple(made)
