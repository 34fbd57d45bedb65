"""What must hold of a module between any two stages; InternalError names the node that breaks it.

Nodes check their own types when they are built; this checks what depends on the surroundings, and
the types again:

* every variable is a loop, a let, a scalar parameter or a dimension of a buffer, with one type;
* every buffer is a parameter or an allocation around its use, loads and stores have its element
  type;
* indices are int32, predicates uint1, both with the lanes of the value;
* names of allocations are not reused inside their scope; extents are positive scalars;
* gpu_block loops are outside gpu_thread loops, those outside gpu_lane loops;
* parameters have unique names, requirements name dimensions that exist, inputs are not stored to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NoReturn, assert_never

from selector.dataclass import dataclass
from selector.diagnostics import InternalError, ParseError
from selector.ir.checks import type_error
from selector.ir.module import Module
from selector.ir.naming import strange_name
from selector.ir.nodes import (
    Allocate,
    Atomic,
    Block,
    BufferParam,
    Evaluate,
    Expr,
    For,
    ForKind,
    IfThenElse,
    IntImm,
    Let,
    LetStmt,
    Load,
    Role,
    Stmt,
    Store,
    Var,
)
from selector.ir.printer import print_expr, print_stmt
from selector.ir.traverse import expr_children, walk_expr
from selector.ir.types import BOOL, BYTES, INT32, Type

_DEPTH = {ForKind.GPU_BLOCK: 1, ForKind.GPU_THREAD: 2, ForKind.GPU_LANE: 3}
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class _Scope:
    variables: Mapping[str, Type]
    buffers: Mapping[str, Type]
    allocated: frozenset[str] = frozenset()
    inputs: frozenset[str] = frozenset()
    depth: int = 0

    def with_variable(self, name: str, t: Type) -> _Scope:
        return replace(self, variables={**self.variables, name: t})


def verify_given(module: Module) -> None:
    """ParseError if a module that came from outside, as text or data, is not well formed, or has
    names that are no names."""
    strange = strange_name(module)
    if strange is not None:
        raise ParseError(
            f"{strange[:60]!r} is no name",
            "names have letters, digits, blanks and . _ $ @ : < > [ ] * + ~ -, up to 200",
        )
    try:
        verify(module)
    except InternalError as error:
        raise ParseError(f"`{module.name}` is not a valid program", str(error)) from None


def verify(module: Module) -> None:
    """InternalError with the node and the reason if ``module`` is not well formed."""
    _check_unique(module)
    variables = {s.name: s.type for s in module.scalars}
    for b in module.buffers:
        variables.update(_dimension_variables(b))
    scope = _Scope(
        variables,
        {b.name: b.type for b in module.buffers},
        inputs=frozenset(b.name for b in module.buffers if b.role is Role.INPUT),
    )
    for b in module.buffers:
        for d in b.dims:
            for e in (d.min, d.extent, d.stride):
                _scalar_int(e, scope, f"a dimension of `{b.name}`")
    _check_requirements(module, scope)
    _check_promises(module, scope)
    _stmt(module.body, scope)


def _dimension_variables(b: BufferParam) -> dict[str, Type]:
    names = {
        f"{b.name}.{f}.{k}": INT32 for k in range(len(b.dims)) for f in ("min", "extent", "stride")
    }
    for d in b.dims:
        names.update({e.name: e.type for e in (d.min, d.extent, d.stride) if isinstance(e, Var)})
    return names


def _check_unique(module: Module) -> None:
    names = [b.name for b in module.buffers] + [s.name for s in module.scalars]
    for name in names:
        if names.count(name) > 1:
            raise InternalError(f"`{module.name}` has two parameters named `{name}`")
    for p in (*module.buffers, *module.scalars):
        if p.type.lanes != 1:
            raise InternalError(f"the parameter `{p.name}` is a vector, {p.type}")
        if p.type.kind in BYTES:
            raise InternalError(f"the parameter `{p.name}` is {p.type}, which memory has as bytes")


def _check_requirements(module: Module, scope: _Scope) -> None:
    for r in module.requirements:
        b = module.buffer(r.buffer)
        if b is None or not 0 <= r.dim < len(b.dims):
            raise InternalError(
                f"a requirement on dimension {r.dim} of `{r.buffer}`, which has none"
            )
        for e in (r.minimum, r.maximum):
            _scalar_int(e, scope, f"a requirement on `{r.buffer}`")


def _check_promises(module: Module, scope: _Scope) -> None:
    for p in module.promises:
        _condition(p.condition, scope)
        if p.exactly is not None:
            inside = scope
            for name, low, extent in p.exactly.loops:
                for e in (low, extent):
                    _scalar_int(e, inside, f"a loop of the promise `{p.message}`")
                inside = inside.with_variable(name, INT32)
            _condition(p.exactly.condition, inside)


def _condition(e: Expr, scope: _Scope) -> None:
    """One on parameters and what else is in scope."""
    _expr(e, scope)
    if e.type != BOOL or any(isinstance(x, Load) for x in walk_expr(e)):
        raise InternalError(f"not a condition on parameters: {print_expr(e)}")


def _fail(node: Expr | Stmt, why: str) -> NoReturn:
    text = print_expr(node) if isinstance(node, Expr) else print_stmt(node).partition("\n")[0]
    raise InternalError(f"{why}\n  in {type(node).__name__}: {text[:_SHOWN]}")


def _scalar_int(e: Expr, scope: _Scope, where: str) -> None:
    _expr(e, scope)
    if e.type != INT32:
        _fail(e, f"{where} is {e.type}, not int32")


def _stmt(s: Stmt, scope: _Scope) -> None:
    match s:
        case Store():
            _check_store(s, scope)
        case Evaluate(value):
            _expr(value, scope)
        case For():
            _check_loop(s, scope)
        case Allocate():
            _check_allocation(s, scope)
        case IfThenElse(condition, then, otherwise):
            _expr(condition, scope)
            if condition.type != BOOL:
                _fail(s, f"a condition of type {condition.type}")
            _stmt(then, scope)
            if otherwise is not None:
                _stmt(otherwise, scope)
        case LetStmt(name, value, body):
            _expr(value, scope)
            _stmt(body, scope.with_variable(name, value.type))
        case Block(stmts):
            for child in stmts:
                _stmt(child, scope)
        case Atomic(_, body):
            _stmt(body, scope)
        case _:
            assert_never(s)


def _check_store(s: Store, scope: _Scope) -> None:
    element = scope.buffers.get(s.buffer)
    if element is None:
        _fail(s, f"a store to the unknown buffer `{s.buffer}`")
    if s.buffer in scope.inputs and s.buffer not in scope.allocated:
        _fail(s, f"a store to the input `{s.buffer}`")
    for e in (s.index, s.value):
        _expr(e, scope)
    if s.value.type.element != element:
        _fail(s, f"`{s.buffer}` holds {element}, the value is {s.value.type}")
    _check_index(s, s.index, s.predicate, s.value.type.lanes, scope)


def _check_index(
    node: Expr | Stmt, index: Expr, predicate: Expr | None, lanes: int, scope: _Scope
) -> None:
    if index.type != INT32.with_lanes(lanes):
        _fail(node, f"an index of type {index.type} for {lanes} lanes")
    if predicate is not None:
        _expr(predicate, scope)
        if predicate.type != BOOL.with_lanes(lanes):
            _fail(node, f"a predicate of type {predicate.type} for {lanes} lanes")


def _check_loop(s: For, scope: _Scope) -> None:
    _scalar_int(s.min, scope, f"the minimum of `{s.name}`")
    _scalar_int(s.extent, scope, f"the extent of `{s.name}`")
    depth = _DEPTH.get(s.kind, scope.depth)
    if depth < scope.depth:
        inner = next(k.value for k, d in _DEPTH.items() if d == scope.depth)
        _fail(s, f"a {s.kind.value} loop inside a {inner} loop")
    inside = replace(scope, depth=depth).with_variable(s.name, INT32)
    _stmt(s.body, inside)


def _check_allocation(s: Allocate, scope: _Scope) -> None:
    if s.type.lanes != 1:
        _fail(s, f"an allocation of vectors, {s.type}")
    if s.type.kind in BYTES:
        _fail(s, f"an allocation of {s.type}, which memory has as bytes")
    if s.stages < 1:
        _fail(s, f"an allocation with {s.stages} stages")
    if s.name in scope.buffers:
        _fail(s, f"`{s.name}` is allocated where that name is taken")
    for e in s.extents:
        _scalar_int(e, scope, f"an extent of `{s.name}`")
        if isinstance(e, IntImm) and e.value < 1:
            _fail(s, f"`{s.name}` has an extent of {e.value}")
    inside = replace(
        scope, buffers={**scope.buffers, s.name: s.type}, allocated=scope.allocated | {s.name}
    )
    _stmt(s.body, inside)


def _expr(e: Expr, scope: _Scope) -> None:
    if e.type.kind in BYTES:
        _fail(e, f"programs have {e.type.element} as bytes")
    match e:
        case Var(name, t):
            known = scope.variables.get(name)
            if known is None:
                _fail(e, f"the unknown variable `{name}`")
            if known != t:
                _fail(e, f"`{name}` is {known}, used as {t}")
        case Load():
            _check_load(e, scope)
            return
        case Let(name, value, body):
            _expr(value, scope)
            _expr(body, scope.with_variable(name, value.type))
            return
        case _:
            why = type_error(e)
            if why is not None:
                _fail(e, why)
    for child in expr_children(e):
        _expr(child, scope)


def _check_load(e: Load, scope: _Scope) -> None:
    element = scope.buffers.get(e.buffer)
    if element is None:
        _fail(e, f"a load from the unknown buffer `{e.buffer}`")
    if e.type.element != element:
        _fail(e, f"`{e.buffer}` holds {element}, the load is {e.type}")
    _expr(e.index, scope)
    _check_index(e, e.index, e.predicate, e.type.lanes, scope)
