"""``dataclass`` as the standard library has it, with classes made in a twentieth of the time.

The standard one writes the methods of each class as text and has Python compile it: more than half
a millisecond for a class, and a process has made four hundred of them when its first kernel is
there. But the code of two classes' methods is the same up to names, if as many fields are treated
in the same ways. So it is compiled once for each such *shape*, and a class gets a copy that has its
own names. What the classes are and do is the same; ``fields``, ``replace`` and the others of the
standard library know them.

Left out is what nothing here needs: ordering, fields by keyword only, ``InitVar``, and the
signature as a docstring where there is none. Beyond it goes ``unguarded``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, field
from functools import cache
from reprlib import recursive_repr
from types import CodeType, FunctionType, MemberDescriptorType
from typing import Any, TypeVar, cast, dataclass_transform, overload

T = TypeVar("T")

_FIELDS, _PARAMS = "__dataclass_fields__", "__dataclass_params__"


@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Mutable:
    """Documented, or the library asks for its signature."""

    one: int


@dataclasses.dataclass(init=False, repr=False, eq=False, frozen=True)
class _Frozen:
    """Documented, as well."""


# What the library knows classes by: it asks of a base whether it is frozen, and of a field whether
# it is one.
_PARAMS_OF = {frozen: getattr(_Frozen if frozen else _Mutable, _PARAMS) for frozen in (True, False)}
_FIELD = getattr(getattr(_Mutable, _FIELDS)["one"], "_field_type")  # noqa: B009


class _Made:
    """Where a field is made that is not given."""

    def __repr__(self) -> str:
        return "<factory>"


MADE = _Made()


@overload
@dataclass_transform(field_specifiers=(field,))
def dataclass(cls: type[T], /) -> type[T]: ...


@overload
@dataclass_transform(field_specifiers=(field,))
def dataclass(
    *, frozen: bool = False, slots: bool = False, eq: bool = True, weakref_slot: bool = False
) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(field_specifiers=(field,))
def dataclass(
    cls: type[T] | None = None,
    /,
    *,
    frozen: bool = False,
    slots: bool = False,
    eq: bool = True,
    weakref_slot: bool = False,
) -> type[T] | Callable[[type[T]], type[T]]:
    """``dataclasses.dataclass``, for the options that are named here."""

    def made(cls: type[T]) -> type[T]:
        return _made(cls, frozen, slots, eq, weakref_slot)

    return made if cls is None else made(cls)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def unguarded(cls: type[T]) -> type[T]:
    """A frozen class with slots for objects of which a compilation makes thousands: that nobody
    sets their fields is for the type checker to see. A guard at run time would have ``__init__``
    go around it, which takes three times as long.
    """
    return _made(cls, True, True, True, False, guarded=False)


def _made(
    cls: type[T], frozen: bool, slots: bool, eq: bool, weakref_slot: bool, guarded: bool = True
) -> type[T]:
    guarded &= frozen
    fields = _fields(cls, frozen)
    body: dict[str, Any] = {_FIELDS: fields, _PARAMS: _PARAMS_OF[frozen]}
    inner: dict[str, Any] = {"__name__": cls.__module__}
    post_init = hasattr(cls, "__post_init__")
    own: dict[str, Any] = {
        "__init__": _init(cls, tuple(fields.values()), inner, guarded, slots, post_init),
        "__repr__": _repr,
        "__match_args__": tuple(f.name for f in fields.values() if f.init),
    }
    compared = tuple(f.name for f in fields.values() if f.compare)
    if eq:
        own["__eq__"] = _method(cls, _eq_code(len(compared)), compared)
    if guarded:
        body |= {"__setattr__": _no_setattr, "__delattr__": _no_delattr}
    if frozen and slots:
        own |= {"__getstate__": _getstate, "__setstate__": _setstate}
    if eq and cls.__dict__.get("__hash__") is None:
        hashed = (f.name for f in fields.values() if (f.compare if f.hash is None else f.hash))
        names = tuple(hashed)
        body["__hash__"] = _method(cls, _hash_code(len(names)), names) if frozen else None
    body |= {name: made for name, made in own.items() if name not in cls.__dict__}
    if not slots:
        for name, value in body.items():
            setattr(cls, name, value)
        return cls
    cls = _with_slots(cls, body, tuple(fields), weakref_slot)
    if guarded:
        inner |= {f"set{i}": getattr(cls, name).__set__ for i, name in enumerate(fields)}
    return cls


def _fields(cls: type, frozen: bool) -> dict[str, Field[Any]]:
    """Those of the bases, and its own, whose defaults stay in the class; ``TypeError`` for what a
    class cannot be made of.
    """
    found: dict[str, Field[Any]] = {}
    for base in cls.__mro__[-1:0:-1]:
        if _FIELDS in base.__dict__:
            found |= base.__dict__[_FIELDS]
            if base.__dict__[_PARAMS].frozen != frozen:
                raise TypeError(f"of {cls.__name__} and {base.__name__} one is frozen")
    for name, annotation in cls.__annotations__.items():
        kind = str(annotation)
        if kind.startswith(("ClassVar", "typing.ClassVar")):
            continue
        if kind.startswith(("InitVar", "KW_ONLY", "dataclasses.")):
            raise TypeError(f"{cls.__name__}.{name}: {kind} is not done here")
        default: Any = getattr(cls, name, MISSING)
        one = cast("Field[Any]", default) if isinstance(default, Field) else _field(default)
        if one is default and one.default is MISSING:
            delattr(cls, name)
        elif one is default:
            setattr(cls, name, one.default)
        if type(one.default).__hash__ is None:
            raise TypeError(f"{cls.__name__}.{name}: a default that can change; use a factory")
        one.name, one.type, one.kw_only = name, annotation, False
        setattr(one, "_field_type", _FIELD)  # noqa: B010 (a private name of the library's)
        found[name] = one
    return found


def _field(default: Any) -> Field[Any]:
    """Slots of a base are descriptors, not defaults."""
    made: Any = field(default=MISSING if isinstance(default, MemberDescriptorType) else default)
    return made


def _with_slots(cls: type[T], body: Mapping[str, Any], names: Sequence[str], weak: bool) -> type[T]:
    """A class anew: slots cannot be added."""
    if "__slots__" in cls.__dict__:
        raise TypeError(f"{cls.__name__} has slots already")
    there = {slot for base in cls.__mro__[1:-1] for slot in _slots(base)}
    asked = (*names, "__weakref__") if weak else names
    left = {*names, "__dict__", "__weakref__"}
    kept = {name: value for name, value in cls.__dict__.items() if name not in left}
    slots = tuple(name for name in asked if name not in there)
    made = type(cls)(cls.__name__, cls.__bases__, {**kept, **body, "__slots__": slots})
    made.__qualname__ = cls.__qualname__
    return made


def _slots(cls: type) -> Iterable[str]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else slots


def _init(
    cls: type,
    fields: tuple[Field[Any], ...],
    inner: dict[str, Any],
    guarded: bool,
    slots: bool,
    post_init: bool,
) -> FunctionType:
    """``inner``: the function's globals. Defaults are those of the function; what is made, and what
    a field has that is no argument, is found in ``inner``.
    """
    kinds = "".join(_kind(f, slots) for f in fields)
    store = ("slot" if slots else "frozen") if guarded else "attribute"
    asked = tuple(f for f in fields if f.init)
    with_default = [f.default is not MISSING or f.default_factory is not MISSING for f in asked]
    if with_default != sorted(with_default):
        raise TypeError(f"{cls.__name__}: a field without default behind one that has one")
    for i, f in enumerate(fields):
        if f.default_factory is not MISSING:
            inner[f"made{i}"] = f.default_factory
        elif not f.init:
            inner[f"made{i}"] = f.default
    if store == "frozen":
        inner |= {f"name{i}": f.name for i, f in enumerate(fields)}
    inner |= {"MADE": MADE, "keep": object.__setattr__}
    code = _init_code(kinds, store, post_init)
    defaults = (
        MADE if f.default is MISSING else f.default for f in asked[with_default.count(False) :]
    )
    made = _method(cls, code, tuple(f.name for f in fields), inner, tuple(defaults))
    made.__annotations__ = {f.name: f.type for f in asked} | {"return": None}
    return made


def _kind(of: Field[Any], slots: bool) -> str:
    """How ``__init__`` treats a field: as an argument (``a``), one that is made where it is missing
    (``m``), as what is made (``f``) or the default (``d``) in any case; not at all (``-``).
    """
    if of.default_factory is not MISSING:
        return "m" if of.init else "f"
    if of.init:
        return "a"
    return "d" if slots and of.default is not MISSING else "-"


_VALUES = {"a": "field{0}", "m": "made{0}() if field{0} is MADE else field{0}",
           "f": "made{0}()", "d": "made{0}"}  # fmt: skip
_STORES = {"slot": "set{0}(self, {1})", "frozen": "keep(self, name{0}, {1})",
           "attribute": "self.field{0} = {1}"}  # fmt: skip


@cache
def _init_code(kinds: str, store: str, post_init: bool) -> CodeType:
    asked = (f"field{i}" for i, kind in enumerate(kinds) if kind in "am")
    lines = [
        _STORES[store].format(i, _VALUES[kind].format(i))
        for i, kind in enumerate(kinds)
        if kind != "-"
    ]
    lines += ["self.__post_init__()"] if post_init else []
    return _compiled("__init__", ("self", *asked), lines or ["pass"])


@cache
def _eq_code(count: int) -> CodeType:
    own, others = (_all_of(name, count) for name in ("self", "other"))
    lines = (
        f"if other.__class__ is self.__class__: return {own} == {others}",
        "return NotImplemented",
    )
    return _compiled("__eq__", ("self", "other"), lines)


@cache
def _hash_code(count: int) -> CodeType:
    return _compiled("__hash__", ("self",), [f"return hash({_all_of('self', count)})"])


def _all_of(name: str, count: int) -> str:
    return "(" + "".join(f"{name}.field{i}, " for i in range(count)) + ")"


def _compiled(name: str, arguments: Iterable[str], lines: Iterable[str]) -> CodeType:
    text = f"def {name}({', '.join(arguments)}):\n" + "".join(f" {line}\n" for line in lines)
    code = compile(text, "<dataclass>", "exec").co_consts[0]
    assert isinstance(code, CodeType)
    return code


def _method(
    cls: type,
    code: CodeType,
    names: Sequence[str],
    inner: dict[str, Any] | None = None,
    defaults: tuple[Any, ...] = (),
) -> FunctionType:
    """The code with the names of a class's fields."""
    named = {f"field{i}": name for i, name in enumerate(names)}
    code = code.replace(
        co_names=tuple(named.get(n, n) for n in code.co_names),
        co_varnames=tuple(named.get(n, n) for n in code.co_varnames),
    )
    inner = {"__name__": cls.__module__} if inner is None else inner
    made = FunctionType(code, inner, code.co_name, defaults)
    made.__qualname__ = f"{cls.__qualname__}.{code.co_name}"
    return made


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in _all_fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _no_setattr(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_delattr(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in _all_fields(self)]


def _setstate(self: Any, state: Iterable[Any]) -> None:
    for f, value in zip(_all_fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)


def _all_fields(self: Any) -> Iterator[Field[Any]]:
    return iter(getattr(self, _FIELDS).values())
