"""Index arithmetic as polynomials: comparing, splitting and evaluating flattened indices.

An index such as ``(y + 1)*I.stride.1 + x - 3`` is a sum of integer coefficients times products of
atoms:

    {(I.stride.1, y): 1, (I.stride.1,): 1, (x,): 1, (): -3}

An atom is a variable or an expression that is not a polynomial (a division, a minimum, a load).
Integers are taken not to overflow. Equal polynomials have equal terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache, reduce
from itertools import pairwise

from selector.ir.known import Hashed, node
from selector.ir.nodes import Binary, BinaryOp, Cast, Dim, Expr, IntImm, Let, Var
from selector.ir.printer import print_expr
from selector.ir.simplify import add, div, floor_div, floor_mod, mod, mul, sub
from selector.ir.traverse import free_vars, map_expr, substitute
from selector.ir.types import INT32, IllTyped, Type

Monomial = tuple[Expr, ...]
_SUMS = (BinaryOp.ADD, BinaryOp.SUB)


def _key(atom: Expr) -> tuple[int, str]:
    return (0, atom.name) if isinstance(atom, Var) else (1, _text(atom))


@lru_cache(maxsize=65536)
def _text(atom: Expr) -> str:
    return print_expr(atom, {})


def _term_key(term: tuple[Monomial, int]) -> tuple[int, list[tuple[int, str]]]:
    m = term[0]
    if len(m) == 1:  # most of them
        return -1, [_key(m[0])]
    return -len(m), [_key(a) for a in m]


@node
class Affine(Hashed):
    """A polynomial with integer coefficients; ``terms`` are sorted, products before the
    constant."""

    terms: tuple[tuple[Monomial, int], ...] = ()

    @staticmethod
    def of(value: Expr | int) -> Affine:
        """The polynomial of a scalar integer expression (``to_affine``) or of a number."""
        if isinstance(value, int):
            return Affine((((), value),) if value else ())
        return to_affine(value)

    @staticmethod
    def build(terms: Mapping[Monomial, int]) -> Affine:
        """From coefficients by product; the atoms of a product in any order."""
        total: dict[Monomial, int] = {}
        for atoms, coefficient in terms.items():
            m = tuple(sorted(atoms, key=_key))
            total[m] = total.get(m, 0) + coefficient
        return _build(total)

    def __iter__(self) -> Iterator[tuple[Monomial, int]]:
        return iter(self.terms)

    @property
    def constant(self) -> int | None:
        """The number that this is, or None."""
        match self.terms:
            case ():
                return 0
            case (((), c),):
                return c
            case _:
                return None

    @property
    def offset(self) -> int:
        """The constant term."""
        return self.terms[-1][1] if self.terms and not self.terms[-1][0] else 0

    def coefficient(self, atom: Expr) -> Affine:
        """What ``atom`` is multiplied by, where it occurs once; the atom may occur in the answer
        again."""
        return _build({_without(m, atom): c for m, c in self.terms if atom in m})

    def rest(self, atom: Expr) -> Affine:
        """The terms without ``atom`` as a factor (it may still be inside an opaque atom)."""
        return Affine(tuple((m, c) for m, c in self.terms if atom not in m))

    def parts(self, *variables: Var) -> tuple[Affine, ...] | None:
        """What is left, and what each of some variables is multiplied by; None where one of these
        is in more than that.
        """
        rest = reduce(Affine.rest, variables, self)
        found = (rest, *map(self.coefficient, variables))
        return None if any(p.mentions(v.name) for p in found for v in variables) else found

    def mentions(self, name: str) -> bool:
        """Whether the variable occurs, also inside opaque atoms."""
        return any(name in free_vars(a) for m, _ in self.terms for a in m)

    def __add__(self, other: Affine | Expr | int) -> Affine:
        if isinstance(other, int):
            return self._plus(other)
        terms = _affine(other).terms
        if not terms or not self.terms:
            return self if self.terms else Affine(terms)
        total = dict(self.terms)
        for m, c in terms:
            total[m] = total.get(m, 0) + c
        if len(total) == len(self.terms) or (len(terms) == 1 and not terms[0][0]):
            return Affine(tuple([t for t in total.items() if t[1]]))  # their order, constant last
        return _build(total)

    def _plus(self, number: int) -> Affine:
        offset = self.offset
        rest, c = self.terms[:-1] if offset else self.terms, offset + number
        return Affine((*rest, ((), c)) if c else rest) if number else self

    def __neg__(self) -> Affine:
        return Affine(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: Affine | Expr | int) -> Affine:
        return self + (-other if isinstance(other, int) else -_affine(other))

    def __mul__(self, other: Affine | Expr | int) -> Affine:
        terms = _affine(other).terms
        if not terms or (len(terms) == 1 and not terms[0][0]):
            return self._times(terms[0][1] if terms else 0)
        total: dict[Monomial, int] = {}
        for m, c in self.terms:
            for n, d in terms:
                product = tuple(sorted(m + n, key=_key))
                total[product] = total.get(product, 0) + c * d
        return _build(total)

    def _times(self, factor: int) -> Affine:
        return Affine(tuple([(m, c * factor) for m, c in self.terms]) if factor else ())

    def divided_by(self, divisor: int) -> Affine | None:
        """The exact quotient, or None if some coefficient is not a multiple."""
        if divisor == 0 or any(c % divisor for _, c in self.terms):
            return None
        return Affine(tuple((m, c // divisor) for m, c in self.terms))

    def times(self, other: Affine) -> int | None:
        """How often another's terms are in it, which has no others, both but for constant ones;
        None where that is no number.
        """
        terms = dict(other.terms)
        found = next((divmod(c, terms.get(m, 0) or 2 * c) for m, c in self.terms if m), (0, 1))
        alike = not found[1] and (self - other * found[0]).constant is not None
        return found[0] if alike else None

    def counted_by(self, stride: Affine) -> Affine:
        """How many strides are in it, by the first of their terms: what that is a factor of."""
        lead, factor = stride.terms[0]
        found: dict[Monomial, int] = {}
        for m, c in self.terms:
            if c % factor == 0 and all(m.count(a) >= lead.count(a) for a in lead):
                found[reduce(_without, lead, m)] = c // factor
        return _build(found)

    def to_expr(self, t: Type = INT32) -> Expr:
        """A sum of products, positive terms first; ``t`` is the type of a sum without any."""
        result: Expr | None = None
        t = next((m[0].type for m, _ in self.terms if m), t)
        for m, c in sorted(self.terms, key=_written_key):
            negative = c < 0 and bool(m) and result is not None
            factor = IntImm(-c if negative else c, t)
            product = reduce(mul, m) if m else factor
            if m and factor.value != 1:
                product = mul(product, factor)
            result = product if result is None else (sub if negative else add)(result, product)
        return IntImm(0, t) if result is None else result


def _written_key(term: tuple[Monomial, int]) -> tuple[bool, bool]:
    return not term[0], term[1] < 0


def _build(terms: Mapping[Monomial, int]) -> Affine:
    kept = [t for t in terms.items() if t[1]]
    if len(kept) > 1:
        kept.sort(key=_term_key)
    return Affine(tuple(kept))


def _without(m: Monomial, atom: Expr) -> Monomial:
    i = m.index(atom)
    return m[:i] + m[i + 1 :]


def _affine(value: Affine | Expr | int) -> Affine:
    return value if isinstance(value, Affine) else Affine.of(value)


def to_affine(e: Expr) -> Affine:
    """The polynomial of a scalar integer expression; equal forms for sums and products in any
    order.

    Divisions by a positive constant give up the multiples: ``(8*a + b)/8`` is ``a + b/8``.
    """
    found: Affine | None = getattr(e, "known_affine", None)
    if found is None:
        if e.type.lanes != 1 or not e.type.is_integer:
            raise IllTyped(f"a polynomial is of scalar integers, not {e.type}")
        total: dict[Monomial, int] = {}
        _gather(e, 1, total)
        found = _build(total)
        e.known_affine = found
    return found


def _gather(e: Expr, factor: int, total: dict[Monomial, int]) -> None:
    """Add ``factor * e`` to a sum. Most of what is gathered are variables, numbers and sums."""
    if isinstance(e, Var):
        m = (e,)
        total[m] = total.get(m, 0) + factor
    elif isinstance(e, IntImm):
        total[()] = total.get((), 0) + factor * e.value
    elif isinstance(e, Binary) and e.op in _SUMS:
        _gather(e.a, factor, total)
        _gather(e.b, factor if e.op is BinaryOp.ADD else -factor, total)
    elif isinstance(e, Binary) and e.op is BinaryOp.MUL and isinstance(e.b, IntImm):
        _gather(e.a, factor * e.b.value, total)
    elif isinstance(e, Binary) and e.op is BinaryOp.MUL and isinstance(e.a, IntImm):
        _gather(e.b, factor * e.a.value, total)
    elif isinstance(e, Cast) and e.type == e.value.type:
        _gather(e.value, factor, total)
    else:
        for m, c in _atoms(e):
            total[m] = total.get(m, 0) + factor * c


@lru_cache(maxsize=16384)
def _atoms(e: Expr) -> Affine:
    """The polynomial of what is no sum."""
    match e:
        case Binary(BinaryOp.MUL, a, b):
            return to_affine(a) * to_affine(b)
        case Binary(BinaryOp.DIV | BinaryOp.MOD as op, a, b):
            return _divide(op, to_affine(a), to_affine(b), e.type)
        case Binary(BinaryOp.MIN | BinaryOp.MAX as op, a, b):
            return _extremum(op, to_affine(a), to_affine(b), e.type)
        case Let(name, value, body):
            return to_affine(substitute(body, {name: value}))
        case _:
            return Affine((((map_expr(e, normalize),), 1),))


def normalize(e: Expr) -> Expr:
    """An expression with every scalar integer part written as its polynomial."""
    if e.type.lanes == 1 and e.type.is_integer and not e.type.is_bool:
        return to_affine(e).to_expr(e.type)
    return map_expr(e, normalize)


def settled(e: Expr) -> Expr:
    """An expression whose scalar integers, such as its indices, are normalized."""
    if e.type.is_integer and e.type.lanes == 1:
        return normalize(e)
    return map_expr(e, settled)


def _divide(op: BinaryOp, a: Affine, b: Affine, t: Type) -> Affine:
    x, y = a.constant, b.constant
    quotient = op is BinaryOp.DIV
    if x is not None and y is not None:
        return Affine.of(floor_div(x, y) if quotient else floor_mod(x, y))
    if y is None or y <= 0:
        return _opaque(op, a, b, t)
    whole = _build({m: c // y for m, c in a.terms if c % y == 0 or not m})
    left = a - whole * y
    if not left.terms or left.constant is not None:
        return whole if quotient else left
    inner = _opaque(op, left, b, t)
    return whole + inner if quotient else inner


def _extremum(op: BinaryOp, a: Affine, b: Affine, t: Type) -> Affine:
    difference = (a - b).constant
    if difference is not None:
        return a if (difference < 0) == (op is BinaryOp.MIN) else b
    return _opaque(op, a, b, t)


def _opaque(op: BinaryOp, a: Affine, b: Affine, t: Type) -> Affine:
    x, y = a.to_expr(t), b.to_expr(t)
    if op is BinaryOp.MIN or op is BinaryOp.MAX:
        return Affine((((Binary(op, x, y),), 1),))
    found = div(x, y) if op is BinaryOp.DIV else mod(x, y)
    if isinstance(found, Binary) and found.op is op:
        return Affine((((found,), 1),))
    return to_affine(found)  # a remainder's quotient is 0


def split_by_strides(index: Expr, dims: tuple[Dim, ...]) -> tuple[Expr, ...] | None:
    """The coordinate along each dimension of a flattened scalar index, innermost first.

    ``index == sum(coordinate[d] * dims[d].stride)``. A term goes to the dimension whose symbolic
    stride it is a multiple of; constant strides take the coefficients that they divide, the largest
    first; what is left goes to the dimension of stride 1. None if a term belongs to several
    strides, to none, or hides one in a division, minimum or load. The coordinates count from the
    buffer's first element, not from ``Dim.min``.
    """
    symbols = {d.stride: k for k, d in enumerate(dims) if isinstance(d.stride, Var)}
    numbers = sorted(
        ((d.stride.value, k) for k, d in enumerate(dims) if isinstance(d.stride, IntImm)),
        reverse=True,
    )
    hidden = {s.name for s in symbols}
    parts: list[dict[Monomial, int]] = [{} for _ in dims]
    for m, c in to_affine(index):
        if any(not isinstance(a, Var) and hidden & free_vars(a) for a in m):
            return None
        owners = [a for a in m if a in symbols]
        if len(owners) > 1:
            return None
        if owners:
            parts[symbols[owners[0]]][_without(m, owners[0])] = c
        elif not _share_out(m, c, numbers, parts):
            return None
    return tuple(_build(p).to_expr() for p in parts)


def join_dims(dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Dimensions that run into each other as one: where the next stride is stride * extent, an
    element past the end of one is the first of the next, and an index may walk through both."""
    joined: list[Dim] = []
    for d in dims:
        last = joined[-1] if joined else None
        match last, d.stride:
            case Dim(IntImm(0), IntImm(extent), IntImm(stride)), IntImm(step) if (
                step == stride * extent and d.min == IntImm(0)
            ):
                whole = to_affine(Binary(BinaryOp.MUL, d.extent, IntImm(extent))).to_expr()
                joined[-1] = Dim(d.min, whole, IntImm(stride))
            case _:
                joined.append(d)
    return tuple(joined)


def carries(dims: tuple[Dim, ...]) -> tuple[tuple[int, int, int], ...]:
    """Dimensions whose constant strides let an index run from one into another: (inner, outer,
    ratio of their strides), innermost first.

    ``ramp(ramp(0, 1, 64), 64, 4)`` is one ramp of 256 elements where rows lie 64 elements apart: an
    index does not show where rows end, whatever their extent. Of dimensions with the same stride
    all but the last have a single element.
    """
    last = {d.stride.value: k for k, d in enumerate(dims) if isinstance(d.stride, IntImm)}
    numbers = sorted(last.items())
    return tuple(
        (k, n, outer // inner)
        for (inner, k), (outer, n) in pairwise(numbers)
        if 0 < inner < outer and outer % inner == 0
    )


def overrun(dims: tuple[Dim, ...], extents: tuple[int, ...]) -> tuple[int, int, int] | None:
    """A dimension that has more elements than there are before another one goes on, that one, and
    how many there are: ``carry`` takes those beyond for elements of the other.
    """
    strides = [d.stride.value if isinstance(d.stride, IntImm) else None for d in dims]
    for k, stride in enumerate(strides):
        if stride is not None and extents[k] > 1 and stride in strides[k + 1 :]:
            return k, strides.index(stride, k + 1), 1
    return next((c for c in carries(dims) if extents[c[0]] > c[2]), None)


def carry(coordinates: tuple[Expr, ...], dims: tuple[Dim, ...]) -> tuple[Expr, ...]:
    """The coordinates of the same element with those of ``carries`` in [0, ratio): what is beyond
    counts in the outer dimension."""
    parts = [to_affine(c) for c in coordinates]
    for inner, outer, ratio in carries(dims):
        one, size = parts[inner].to_expr(), IntImm(ratio)
        parts[inner] = to_affine(Binary(BinaryOp.MOD, one, size))
        parts[outer] = parts[outer] + Binary(BinaryOp.DIV, one, size)
    return tuple(p.to_expr() for p in parts)


def _share_out(
    m: Monomial, c: int, strides: list[tuple[int, int]], parts: list[dict[Monomial, int]]
) -> bool:
    for stride, k in strides:
        if stride != 0 and c % stride == 0:
            parts[k][m] = c // stride
            return True
        if stride != 0 and not m and abs(c) >= abs(stride):
            whole = int(c / stride)
            parts[k][m], c = whole, c - whole * stride
    return c == 0
