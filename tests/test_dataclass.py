"""Classes by ``selector.dataclass`` are those that the standard library makes, and made sooner."""

from __future__ import annotations

import copy
import dataclasses
import dis
import inspect
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import selector.dataclass as quick
from selector.ir.types import FLOAT16, Kind, Type

ROOT = Path(__file__).resolve().parent.parent

SOURCE = """
from __future__ import annotations
from dataclasses import field
from typing import ClassVar, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Empty:
    pass


@dataclass(frozen=True, slots=True)
class One:
    x: int


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: str = "here"
    COUNT: ClassVar[int] = 3
    many: list[int] = field(default_factory=list)

    def shown(self) -> str:
        return f"{self.x}, {self.y}"


@dataclass(frozen=True, slots=True)
class Further(Point):
    z: float = 0.5
    x: int = 4


@dataclass(frozen=True, slots=True)
class Partly:
    shown: int
    hidden: int = field(default=2, repr=False)
    other: int = field(default=3, compare=False)
    hashed: int = field(default=4, hash=False)
    fixed: int = field(init=False, default=5)
    fresh: dict[str, int] = field(init=False, default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Worked:
    a: int
    twice: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", 2 * self.a)


@dataclass(frozen=True)
class Open:
    a: int
    b: tuple[int, ...] = ()


@dataclass
class Plain:
    a: int
    b: list[int] = field(default_factory=list)
    c: int = field(init=False, default=7)


@dataclass(slots=True)
class Slotted:
    a: int
    b: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Itself:
    a: int


@dataclass(slots=True, weakref_slot=True)
class Watched:
    a: int


@dataclass(frozen=True, slots=True)
class Own:
    a: int
    b: int = 1

    def __hash__(self) -> int:
        return 12

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    def __repr__(self) -> str:
        return "own"


@dataclass(frozen=True, slots=True)
class Of(Generic[T]):
    value: T
"""
CASES: tuple[tuple[str, tuple[Any, ...], tuple[Any, ...]], ...] = (
    ("Empty", (), ()), ("One", (1,), (2,)), ("Point", (1,), (1, "there")),
    ("Further", (1, "a", [], 2.0), (1, "a", [], 3.0)), ("Partly", (1,), (1, 2, 9)),
    ("Worked", (3,), (4,)), ("Open", (1, (2,)), (1,)), ("Plain", (1,), (1, [2])),
    ("Slotted", (1,), (1, 2)), ("Itself", (1,), (1,)), ("Watched", (1,), (1,)),
    ("Own", (1,), (2,)), ("Of", (1,), ("a",)),
)  # fmt: skip
"""Classes with arguments of two objects."""


def module(name: str, dataclass: Callable[..., Any]) -> ModuleType:
    made = ModuleType(name)
    sys.modules[name] = made
    made.__dict__["dataclass"] = dataclass
    exec(SOURCE, made.__dict__)
    return made


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[ModuleType, ModuleType]]:
    names = ("dataclasses_here", "dataclasses_there")
    yield module(names[0], quick.dataclass), module(names[1], dataclasses.dataclass)
    for name in names:
        del sys.modules[name]


def told(call: Callable[[], object]) -> object:
    """What comes out, or the kind of error."""
    try:
        return call()
    except Exception as error:
        return type(error)


def answers(cls: type, first: tuple[Any, ...], second: tuple[Any, ...]) -> list[object]:
    """What a class and two objects of it say to all that is asked of dataclasses."""
    a, b = cls(*first), cls(*second)
    names = [f.name for f in dataclasses.fields(cls)]
    asked = [f.name for f in dataclasses.fields(cls) if f.init]

    def assign(name: str) -> object:
        setattr(copy.copy(a), name, 1)
        return True

    def delete(name: str) -> object:
        delattr(copy.copy(a), name)
        return True

    return [
        str(inspect.signature(cls)), cls.__match_args__, getattr(cls, "__slots__", None),
        [str(f) for f in dataclasses.fields(cls)], [getattr(a, n) for n in names], repr(a), repr(b),
        a == b, a == cls(*first), a == 1, a != b,
        *(told(lambda o=o: hash(o) if cls.__hash__ is not object.__hash__ else "its own")
          for o in (a, b)),
        *(dataclasses.asdict(o) for o in (a, b)),
        *(repr(pickle.loads(pickle.dumps(o))) for o in (a, b)),
        repr(copy.deepcopy(a)), [told(lambda n=n: assign(n)) for n in names],
        [told(lambda n=n: delete(n)) for n in names], hasattr(cls, "__dict__"),
        [told(lambda n=n: repr(dataclasses.replace(a, **{n: 8}))) for n in (*names, "new")],
        [getattr(cls, n, "none") for n in asked if not hasattr(cls, "__slots__")],
        *(told(lambda args=args: repr(cls(*args))) for args in ((), (1, 2, 3, 4, 5, 6, 7))),
        told(lambda: repr(cls(**{n: getattr(b, n) for n in asked}))), cls.__init__.__annotations__,
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "first", "second"), CASES, ids=[c[0] for c in CASES])
def test_classes_are_as_the_standard_library_makes_them(
    name: str, first: tuple[Any, ...], second: tuple[Any, ...],
    both: tuple[ModuleType, ModuleType],
) -> None:  # fmt: skip
    here, there = (answers(getattr(m, name), first, second) for m in both)
    for one, other in zip(here, there, strict=True):
        assert str(one).replace("_here", "_there") == str(other)


def test_factories_make_an_object_each() -> None:
    @quick.dataclass(slots=True)
    class Holder:
        items: list[int] = field(default_factory=list[int])

    one, other = Holder(), Holder()
    one.items.append(1)
    assert (one.items, other.items) == ([1], [])


def test_subclasses_and_patterns_know_them(both: tuple[ModuleType, ModuleType]) -> None:
    here, _ = both
    match here.Further(1, "a", [], 2.0):
        case here.Further(1, "a", _, z):
            assert z == 2.0

    @dataclasses.dataclass(frozen=True)
    class Below(here.Point):
        more: int = 1

    assert [f.name for f in dataclasses.fields(Below)] == ["x", "y", "many", "more"]
    with pytest.raises(FrozenInstanceError):
        Below(1).x = 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: int = 1\n    b: int", "without default"),
        ("a: list[int] = []", "a default that can change"),
        ("a: InitVar[int]", "not done here"),
        ("__slots__ = ('a',)\n    a: int", "slots already"),
    ],
)
def test_what_a_class_cannot_be_made_of_is_an_error(text: str, said: str) -> None:
    source = "from __future__ import annotations\n"
    source += f"@dataclass(frozen=True, slots=True)\nclass Wrong:\n    {text}\n"
    with pytest.raises(TypeError, match=said):
        exec(source, {"dataclass": quick.dataclass, "__name__": __name__})


def test_frozen_and_others_are_not_mixed(both: tuple[ModuleType, ModuleType]) -> None:
    with pytest.raises(TypeError, match="one is frozen"):
        quick.dataclass(slots=True)(type("Mixed", (both[0].Point,), {}))


def test_classes_are_made_sooner_than_by_the_standard_library() -> None:
    """What it is for: a class that is like one before takes a fifth of the time, at most."""

    def seconds(dataclass: Callable[..., Any]) -> float:
        start = time.process_time()
        for _ in range(100):
            body = {"__annotations__": {"a": "int", "b": "str", "c": "tuple[int, ...]"}, "c": ()}
            dataclass(frozen=True, slots=True)(type("Some", (), body))
        return time.process_time() - start

    here = min(seconds(quick.dataclass) for _ in range(5))
    assert 5 * here < min(seconds(dataclasses.dataclass) for _ in range(3))


@quick.dataclass(frozen=True, slots=True)
class Guarded:
    a: int
    b: str
    c: tuple[int, ...] = ()
    d: int = 4


@quick.unguarded
class Free:
    a: int
    b: str
    c: tuple[int, ...] = ()
    d: int = 4


def test_what_is_unguarded_is_frozen_but_for_the_guard() -> None:
    """It is made as soon as what may be set, not later for going around a guard."""
    first, second = (1, "a", (2,)), (1, "a", (3,))
    said: list[str] = []
    for cls, changed in ((Guarded, FrozenInstanceError), (Free, True)):
        told_of = answers(cls, first, second)
        assert told_of.count([changed] * 4) == 2  # what is assigned, and deleted
        said.append(str([x for x in told_of if x != [changed] * 4]))
    assert said[0].replace("Guarded", "Free") == said[1]

    assert (_calls(Guarded), _calls(Free)) == (4, 0)


def _calls(cls: type) -> int:
    """How many calls setting all fields takes: one for each that goes around a guard."""
    return sum(one.opname == "CALL" for one in dis.get_instructions(vars(cls)["__init__"]))


def test_there_is_one_object_of_each_type() -> None:
    made = Type(Kind.FLOAT, 16, 4)
    others = [
        Type.parse("float16x4"), FLOAT16.with_lanes(4), pickle.loads(pickle.dumps(made)),
        copy.deepcopy(made), dataclasses.replace(FLOAT16, lanes=4),
    ]  # fmt: skip
    assert all(other is made for other in others)
    assert made != FLOAT16
