"""Gradients of sums of products, written as pipelines of their own: ``adjoint``.

For ``out[i] = sum over r of A[..] * B[..]``, with indices of A that are a loop variable each or the
sum of an output's and a domain's (a window), the gradient of A gathers: it is again a sum of
products, of the output's gradient and B, and scheduled like any other. Whatever is not of that form
is refused with its reason; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import halide

from halide_bridge import memory
from halide_bridge.checks import output_funcs
from halide_bridge.names import plain
from halide_bridge.records import ELEMENT
from halide_bridge.schedules.recognise.program import Member, Program, Reduced, read_program
from halide_bridge.schedules.sizes import is_argument
from selector.dataclass import dataclass
from selector.diagnostics import ScheduleError
from selector.ir.affine import Affine
from selector.ir.nodes import Binary, BinaryOp, Call, Cast, Expr, FloatImm, IntImm, Var
from selector.ir.types import Kind, Type

hl: Any = halide


class _NoGradientError(Exception):
    """Why there is none."""


@dataclass(frozen=True, slots=True)
class _Factor:
    """An argument, as it is read: per dimension the variables that are added up, and an offset."""

    name: str
    type: Type
    indices: tuple[tuple[tuple[str, ...], int], ...]


@dataclass(frozen=True, slots=True)
class _Sum:
    """``out[args] = sum over the domain of factors``; ``args`` in the order of its dimensions."""

    out: str
    type: Type
    args: tuple[str, ...]
    domain: Mapping[str, Reduced]
    factors: tuple[_Factor, _Factor]


def adjoint(output: Any) -> list[Any]:
    """Pipelines of the gradients of a sum of products, a Func for each factor: ``grad_A`` and
    ``grad_B`` from ``grad_OUTPUT`` and the other factor, as ``torch_op(..., backward=)`` reads
    them.

    ``output``: a Func that is such a sum, or a cast of one, of two arguments: matrix products with
    or without batches, windows without a boundary condition. Products are taken and added in
    float32, and the results have the factors' types. ``ScheduleError`` for any other.
    """
    location = memory.caller_location()
    outputs = output_funcs(output, location)
    try:
        if len(outputs) != 1:
            raise _NoGradientError("it has several outputs")
        found = _sum_of(read_program(outputs))
        grads = hl.ImageParam(_type(found.type), len(found.args), f"grad_{found.out}")
        params = {
            f.name: hl.ImageParam(_type(f.type), len(f.indices), f.name) for f in found.factors
        }
        first, second = found.factors
        return [
            _Gradient(found, own, other, grads, params).func()
            for own, other in ((first, second), (second, first))
        ]
    except _NoGradientError as error:
        raise ScheduleError(
            f"there is no gradient of `{plain(outputs[0].name())}` that could be written by itself",
            why=str(error),
            hint="write it as a pipeline: torch_op(..., backward=pipeline)",
            where=location,
        ) from None


def _sum_of(program: Program) -> _Sum:
    out = program.members[program.outputs[0]]
    member, order = out, out.args
    if out.pure:
        read = _uncast(out.stages[0].values[0])
        if not isinstance(read, Call) or ELEMENT not in read.name:
            raise _NoGradientError("it is no sum of products, nor a cast of one")
        name = read.name.rpartition(ELEMENT)[0]
        if name not in program.members:
            raise _NoGradientError("it is no sum of products, nor a cast of one")
        member = program.members[name]
        places = {
            i.name: arg for i, arg in zip(read.args, member.args, strict=True) if isinstance(i, Var)
        }
        if sorted(places) != sorted(out.args):
            raise _NoGradientError("it reads the sum elsewhere than at its own place")
        order = tuple(places[arg] for arg in out.args)
    if len(out.types) != 1 or out.types[0].kind not in (Kind.FLOAT, Kind.BFLOAT):
        raise _NoGradientError("its elements are no floats")
    return _Sum(out.label, out.types[0], order, *_terms(member, program))


def _terms(
    member: Member, program: Program
) -> tuple[Mapping[str, Reduced], tuple[_Factor, _Factor]]:
    if len(member.stages) != 2 or member.stages[1].predicate is not None:
        raise _NoGradientError(f"`{member.label}` is no plain sum")
    init, update = (s.values[0] for s in member.stages)
    own = tuple(map(Var, member.args))
    match update:
        case Binary(BinaryOp.ADD, Call() as again, Binary(BinaryOp.MUL, a, b)) | Binary(
            BinaryOp.ADD, Binary(BinaryOp.MUL, a, b), Call() as again
        ) if again.name.rpartition(ELEMENT)[0] == member.name and again.args == own:
            pass
        case _:
            raise _NoGradientError(f"`{member.label}` does not add products of two arguments")
    if not isinstance(init, FloatImm) or member.stages[1].indices != own:
        raise _NoGradientError(f"`{member.label}` is no plain sum")
    factors = (_factor(a, program), _factor(b, program))
    if factors[0].name == factors[1].name:
        raise _NoGradientError(f"`{factors[0].name}` is multiplied by itself")
    return {r.name: r for r in member.stages[1].reduced}, factors


def _factor(e: Expr, program: Program) -> _Factor:
    read = _uncast(e)
    if not isinstance(read, Call) or ELEMENT not in read.name:
        raise _NoGradientError("a factor is computed, and no argument")
    member = program.members.get(read.name.rpartition(ELEMENT)[0])
    if member is None or not is_argument(member, program):
        label = read.name.rpartition(ELEMENT)[0] if member is None else member.label
        raise _NoGradientError(f"the factor `{plain(label)}` is computed, and no argument")
    if member.types[0].kind not in (Kind.FLOAT, Kind.BFLOAT):
        raise _NoGradientError(f"the elements of `{member.label}` are no floats")
    if any(part.type.bits < member.types[0].bits for part in _casts(e)):
        raise _NoGradientError(f"`{member.label}` is rounded before it is multiplied")
    name = member.label.removesuffix("_im")
    return _Factor(name, member.types[0], tuple(_index(i, name) for i in read.args))


def _index(e: Expr, name: str) -> tuple[tuple[str, ...], int]:
    names: list[str] = []
    index = Affine.of(e)
    for atoms, factor in index:
        match atoms:
            case ():
                continue
            case (Var(variable),) if factor == 1:
                names.append(variable)
            case _:
                raise _NoGradientError(f"`{name}` is read at multiples or products of variables")
    return tuple(names), index.offset


class _Gradient:
    """That of the factor ``own``."""

    def __init__(
        self, found: _Sum, own: _Factor, other: _Factor, grads: Any, params: Mapping[str, Any]
    ) -> None:
        self.found, self.own, self.other = found, own, other
        self.grads, self.other_param = grads, params[other.name]
        self.at: dict[str, Any] = {}  # what a variable is, in the gradient's own
        self.moved: set[str] = set()  # outputs that lie beside the gradient's
        self.guards: list[Any] = []
        self.us = [hl.Var(f"u{d}") for d in range(len(own.indices))]

    def func(self) -> Any:
        windows = self._solve()
        follows = {*self.at, *(arg for arg, _ in windows.values())}
        left = [v for v in (*self.found.domain, *self.found.args) if v not in follows]
        found, us = hl.Func(f"grad_{self.own.name}"), tuple(self.us)
        over = any(len(names) > 1 for names, _ in self.other.indices)  # a window's taps
        lines = [v for v in left if v in self.found.args][1:] if over else []
        added = [v for v in left if v not in lines]
        apart = tuple(hl.Var(f"v{i}") for i in range(len(lines)))
        self.at |= dict(zip(lines, apart, strict=True))
        if added:
            self._bind(added, "r")
        self._turn(windows)
        value = hl.f32(self._gradient()) * hl.f32(self._other())
        sums: Any = hl.Func("lines" if lines else "sums")
        if added:
            sums[us + apart] += value
            value = sums[us + apart]
        if lines:  # sums over whole images: those of their lines first, so that threads share them
            total = hl.Func("sums")
            self._bind(lines, "s")
            total[us] += sums[us + tuple(self.at[v] for v in lines)]
            value = total[us]
        for guard in self.guards:
            value = hl.select(guard, value, hl.f32(0))
        found[us] = hl.cast(_type(self.own.type), value)
        return found

    def _bind(self, names: list[str], domain: str) -> None:
        """Add up over these variables."""
        r = hl.RDom([self._range(v) for v in names], domain)
        self.at |= {v: r[i] for i, v in enumerate(names)}

    def _solve(self) -> dict[str, tuple[str, int]]:
        """Variables that the gradient's own follow from; those of windows with the output's
        variable that each goes with, and the dimension.
        """
        windows: dict[str, tuple[str, int]] = {}
        seen: list[str] = []
        for d, (names, offset) in enumerate(self.own.indices):
            seen += names
            args = [n for n in names if n in self.found.args]
            match names:
                case (name,):
                    self.at[name] = self.us[d] - offset if offset else self.us[d]
                    if offset and name in self.found.args:
                        self.moved.add(name)
                    self._guard(name, d, offset)
                case (_, _) if len(args) == 1:
                    (inner,) = (n for n in names if n != args[0])
                    windows[inner] = (args[0], d)
                case _:
                    raise _NoGradientError(
                        f"an index of `{self.own.name}` is neither a variable nor a window"
                    )
        if len(set(seen)) < len(seen):
            raise _NoGradientError(f"`{self.own.name}` is read along a diagonal")
        return windows

    def _guard(self, name: str, d: int, offset: int) -> None:
        """Elements that the sum does not reach have no gradient."""
        if name not in self.found.domain:
            return
        r = self.found.domain[name]
        whole = r.extent == Var(f"{self.own.name}.extent.{d}")
        if offset == 0 and r.minimum == IntImm(0) and whole:
            return
        low = self._size(r.minimum)
        place = self.at[name]
        self.guards.append((place >= low) & (place < low + self._size(r.extent)))

    def _turn(self, windows: Mapping[str, tuple[str, int]]) -> None:
        """Outputs along a window: backwards, where the number of its taps is known."""
        for inner, (arg, d) in windows.items():
            r, offset = self.found.domain[inner], self.own.indices[d][1]
            if isinstance(r.extent, IntImm) and isinstance(r.minimum, IntImm):
                last = 2 * r.minimum.value + r.extent.value - 1
                self.at[arg] = self.us[d] + self.at[inner] - (last + offset)
                self.at[inner] = last - self.at[inner]
            else:
                self.at[arg] = self.us[d] - self.at[inner] - offset
            self.moved.add(arg)

    def _range(self, name: str) -> tuple[Any, Any]:
        if name in self.found.domain:
            r = self.found.domain[name]
            return self._size(r.minimum), self._size(r.extent)
        return 0, self.grads.dim(self.found.args.index(name)).extent()

    def _size(self, e: Expr) -> Any:
        """A size of the user's pipeline, in the gradient's."""
        match e:
            case IntImm(value):
                return value
            case Var(name) if name.startswith(f"{self.other.name}.extent."):
                return self.other_param.dim(int(name.rpartition(".")[2])).extent()
            case Binary(BinaryOp.ADD, a, b):
                return self._size(a) + self._size(b)
            case Binary(BinaryOp.SUB, a, b):
                return self._size(a) - self._size(b)
            case _:
                raise _NoGradientError(
                    f"how long the sum is follows from more than `{self.other.name}`"
                )

    def _gradient(self) -> Any:
        at = tuple(self.at[a] for a in self.found.args)
        if not self.moved:
            return self.grads[at]
        area = [(0, self.grads.dim(d).extent()) for d in range(len(at))]
        return hl.BoundaryConditions.constant_exterior(self.grads, 0, area)[at]

    def _other(self) -> Any:
        at: list[Any] = []
        for names, offset in self.other.indices:
            if self.moved & set(names):
                raise _NoGradientError(
                    f"`{self.other.name}` is read along the windows of `{self.own.name}` as well"
                )
            parts = [self.at[name] for name in names] + ([offset] if offset else [])
            at.append(sum(parts[1:], parts[0]) if parts else 0)
        return self.other_param[tuple(at)]


def _uncast(e: Expr) -> Expr:
    while isinstance(e, Cast) and e.type.kind in (Kind.FLOAT, Kind.BFLOAT):
        e = e.value
    return e


def _casts(e: Expr) -> list[Cast]:
    found: list[Cast] = []
    while isinstance(e, Cast):
        found.append(e)
        e = e.value
    return found


def _type(t: Type) -> Any:
    return hl.BFloat(16) if t.kind is Kind.BFLOAT else hl.Float(t.bits)
