"""Directives that are applied and written down at once: what a user pastes is what ran.

    f = hb.funcs(output)
    blur = f["blur"]
    x, y = blur.args()
    xo, xi = hl.Var("xo"), hl.Var("xi")
    blur.split(x, xo, xi, 32).gpu_threads(xi)

Funcs, their arguments and reduction variables are named by place, new variables by names that no
Func of the pipeline uses, so that the text means the same for a pipeline that is built anew.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import reduce
from operator import and_
from typing import Any

from halide_bridge import instead, memory
from halide_bridge.checks import output_funcs
from halide_bridge.groups import Taps, grouped
from halide_bridge.names import Names, plain
from halide_bridge.native import native
from halide_bridge.schedules.recognise.program import named
from halide_bridge.stock import is_rvar, is_variable, outermost, rvars, text_of, variables

_NO_WORD = re.compile(r"\W")


def funcs(output: Any) -> dict[str, Any]:
    """Every Func that an output, or several, is computed from, by its name: handles, on which all
    directives take effect.

    ``output``: a Func, a Pipeline or a list of Funcs. Names are those that kernels and reports
    show: without the suffixes that Halide counts, and with one of ours (``sum``, ``sum$1``) where
    several Funcs have the same. Helpers such as the Funcs inside boundary conditions and ``hl.sum``
    are there as well; an output that has an ``.in_()`` for everyone has lent it its name.
    ``ScheduleError`` for what is no output.
    """
    stored, names = named(output_funcs(output, memory.caller_location()))
    return {names(f["name"]): f["handle"] for f in native().inspect(stored)["funcs"]}


class Recorded:
    """A Func or a stage of one, whose directives are written down."""

    def __init__(self, script: Script, text: str, value: Any) -> None:
        self.script, self.text, self.value = script, text, value

    def name(self) -> str:
        """Halide's."""
        return self.value.name()

    def type(self) -> Any:
        """Of its only value's elements."""
        return self.value.types()[0]

    def args(self) -> tuple[Any, ...]:
        return self.script.places(self, self.value.args(), "args()")

    def rvars(self, update: int = 0) -> tuple[Any, ...]:
        return self.script.places(self, self.value.rvars(update), f"rvars({update})")

    def update(self, number: int = 0) -> Recorded:
        return Recorded(self.script, f"{self.text}.update({number})", self.value.update(number))

    def in_(self, *consumers: Recorded) -> Recorded:
        asked = consumers if len(consumers) < 2 else ([*consumers],)
        return self.script.made(self, "in_", f"{self.text}_in", *asked)

    def stored(self) -> Recorded:
        """What holds its elements: the Func that is read in place of it everywhere, if one is."""
        return self.script.known(self, "in_()") or self

    def rfactor(self, reduced: Any, variable: Any) -> Recorded:
        stem = self.text.split(".")[0]
        return self.script.made(self, "rfactor", f"{stem}_parts", reduced, variable)

    def rfactors(self, *preserved: tuple[Any, Any]) -> Recorded:
        """``rfactor`` of several reduction variables."""
        stem = self.text.split(".")[0]
        return self.script.made(self, "rfactor", f"{stem}_parts", list(preserved))

    def __getattr__(self, directive: str) -> Callable[..., Recorded]:
        def call(*arguments: Any) -> Recorded:
            self.script.say(self, directive, arguments)
            return self

        return call


class Script:
    """Directives of one pipeline, in their order."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = {plain(t) for t in taken}
        self._names = Names()
        self._identifiers = {"f", "hb", "hl", "output"}
        self._known: dict[tuple[str, str], Any] = {}
        self._placed: dict[tuple[bool, str], str] = {}  # identifiers of the pipeline's variables
        self._texts: dict[int, str] = {}  # of those and new ones, which ``_known`` keeps alive
        self._new: dict[int, tuple[Any, bool]] = {}  # new ones, and whether they are used
        self._lines: list[tuple[str, str]] = []  # what it is said of, or "=", and the text

    def func(self, label: str, handle: Any) -> Recorded:
        """A Func of the pipeline by its stable name."""
        known = self._known.get(("", label))
        if known is None:
            name = self._identifier(label)
            self._lines.append(("=", f'{name} = f["{label}"]'))
            known = self._known["", label] = Recorded(self, name, handle)
        return known

    def places(self, of: Recorded, values: Iterable[Any], how: str) -> tuple[Any, ...]:
        """Variables of a Func, which get identifiers."""
        found, key = tuple(values), (of.text, how)
        if key not in self._known and found:
            self._known[key] = found
            new = [v for v in found if _key(v) not in self._placed]
            for v in new:
                self._placed[_key(v)] = self._identifier(v.name())
            names = [self._placed[_key(v)] for v in found]
            if new:
                targets = ", ".join(names) + ("," if len(names) == 1 else "")
                self._lines.append(("=", f"{targets} = {of.text}.{how}"))
            self._texts.update({id(v): n for v, n in zip(found, names, strict=True)})
        return self._known.get(key, found)

    def variables(self, *names: str) -> tuple[Any, ...]:
        """New ``hl.Var``s; the same ones for the same names."""
        return tuple(self._fresh(name, variables, "Var") for name in names)

    def rvars(self, *names: str) -> tuple[Any, ...]:
        """New ``hl.RVar``s."""
        return tuple(self._fresh(name, rvars, "RVar") for name in names)

    def outermost(self) -> Any:
        """The variable around all loops."""
        key = ("Var", "")
        if key not in self._known:
            self._known[key] = outermost()
            self._texts[id(self._known[key])] = "hl.Var.outermost()"
        return self._known[key]

    def _fresh(self, name: str, make: Callable[[str], tuple[Any, ...]], kind: str) -> Any:
        key = (kind, name)
        if key not in self._known:
            free = name
            while free in self._taken:
                free += "_"
            self._taken.add(free)
            (found,) = make(free)
            self._known[key] = found
            self._texts[id(found)] = self._identifier(free)
            self._new[id(found)] = (found, False)
        return self._known[key]

    def known(self, of: Recorded, how: str) -> Recorded | None:
        """A Func that a directive has made already."""
        return self._known.get((of.text, how))

    def made(self, of: Recorded, directive: str, name: str, *arguments: Any) -> Recorded:
        """A Func that a directive makes, once for the same arguments."""
        said = ", ".join(self._text(a) for a in arguments)
        key = (of.text, f"{directive}({said})")
        if key not in self._known:
            value = getattr(of.value, directive)(*map(self._value, arguments))
            identifier = self._identifier(name)
            self._lines.append(("=", f"{identifier} = {of.text}.{directive}({said})"))
            self._known[key] = Recorded(self, identifier, value)
        return self._known[key]

    def named(self, names: Set[str]) -> list[Recorded]:
        """The Funcs with these names that directives have been said of."""
        known = [f for f in self._known.values() if isinstance(f, Recorded)]
        funcs_of = (f for f in known if hasattr(f.value, "compute_root"))  # and no stage of one
        return [f for f in funcs_of if plain(f.value.name()) in names]

    def where_extents(self, of: Recorded, extents: Mapping[int, int]) -> Recorded:
        """The way of an output for calls where some of its dimensions are so long."""
        buffer, found = of.value.output_buffer(), self._identifier(f"{of.text}_where")
        tests = [buffer.dim(d).extent() == n for d, n in extents.items()]
        said = [f"({of.text}.output_buffer().dim({d}).extent() == {n})" for d, n in extents.items()]
        value = of.value.specialize(reduce(and_, tests))
        self._lines.append(("=", f"{found} = {of.text}.specialize({' & '.join(said)})"))
        return Recorded(self, found, value)

    def instead(
        self, directive: Callable[..., Any], stems: Sequence[str], *arguments: Any
    ) -> tuple[Recorded, ...]:
        """The Funcs that a directive of ours makes; without ``stems`` by the names they have."""
        made = directive(*map(self._value, arguments))
        values = made if isinstance(made, tuple) else (made,)
        stems = stems or [value.name().split("$")[0] for value in values]
        names = [self._identifier(stem) for stem in stems]
        said = ", ".join(map(self._text, arguments))
        self._lines.append(("=", f"{', '.join(names)} = hb.{directive.__name__}({said})"))
        return tuple(Recorded(self, n, v) for n, v in zip(names, values, strict=True))

    def cloned(self, of: Recorded, consumer: Recorded, along: Any = None) -> Recorded:
        """A Func of its own for a consumer, or for what that reads along one of its variables."""
        said = (of, consumer) if along is None else (of, consumer, along)
        return self.instead(instead.clone, [f"{of.text}_of_{consumer.text}"], *said)[0]

    def operand(self, of: Recorded, factor: int, order: Sequence[Any]) -> Recorded:
        """A Func of its own for a factor of a sum's products, over variables of the sum."""
        name = f"{of.text}_{'ab'[factor]}"
        return self.instead(instead.operand, [name], of, factor, [*order])[0]

    def narrowed(self, of: Recorded, reader: Recorded) -> Recorded:
        """What a reader casts a Func to, as a Func of its own."""
        return self.instead(instead.narrowed, [f"{of.text}_narrow"], of, reader)[0]

    def grouped(
        self, outputs: Sequence[Any], of: Recorded, consumer: Recorded, taps: Taps
    ) -> tuple[Recorded, ...]:
        """Sums of neighbours that begin together, and what they are made of."""
        values = grouped(list(outputs), of.value, consumer.value, taps)
        parts = "tile", "grouped", "pixels", "band", "starts", "table"
        names = [self._identifier(f"{of.text}_{part}") for part in parts]
        fields = taps.along, self._of(taps.source), self._of(taps.weights), taps.group, taps.run
        said = ", ".join(map(str, fields))
        made = f"hb.grouped(output, {of.text}, {consumer.text}, hb.Taps({said}))"
        self._lines.append(("=", f"{', '.join(names)} = {made}"))
        return tuple(Recorded(self, n, v) for n, v in zip(names, values, strict=True))

    def _of(self, name: str) -> str:
        """The name of a Func that is known, as Python."""
        for found in self._known.values():
            if isinstance(found, Recorded) and found.value.name() == name:
                return f"{found.text}.name()"
        raise KeyError(name)

    def phased(
        self, of: Recorded, reader: Recorded, phases: Sequence[tuple[Any, Any, Any, int]]
    ) -> Recorded:
        """A Func of its own for a reader, with a dimension for the phases of some of its own."""
        return self.instead(instead.phased, [f"{of.text}_phased"], of, reader, [*phases])[0]

    def joined(
        self, of: Recorded, reader: Recorded, inner: Any, outer: Any
    ) -> tuple[Recorded, ...]:
        """A sum for a reader over two of its variables as one, and the factors of its products."""
        stem = f"{of.text}_joined"
        names = stem, f"{stem}_a", f"{stem}_b"
        return self.instead(instead.joined, names, of, reader, inner, outer)

    def say(self, of: Recorded, directive: str, arguments: tuple[Any, ...]) -> None:
        """A directive of Halide's."""
        getattr(of.value, directive)(*map(self._value, arguments))
        said = ", ".join(self._text(a) for a in arguments)
        self._lines.append((of.text, f".{directive}({said})"))

    def ask(
        self, directive: Callable[..., Any], func: Recorded, arguments: tuple[Any, ...]
    ) -> None:
        """A directive of ours."""
        directive(func.value, *map(self._value, arguments))
        said = ", ".join((func.text, *map(self._text, arguments)))
        self._lines.append(("hb", f"hb.{directive.__name__}({said})"))

    @property
    def source(self) -> str:
        """Python, for an ``output`` that is the same pipeline's."""
        lines = [*self._variables("Var"), *self._variables("RVar"), "f = hb.funcs(output)"]
        last = ""
        for of, text in self._lines:
            if of in ("=", "hb"):
                lines.append(text)
            elif of == last and len(lines[-1]) + len(text) <= 96:
                lines[-1] += text
            else:
                lines.append(of + text)
            last = of
        return "\n".join(lines) + "\n"

    def _variables(self, kind: str) -> list[str]:
        """The new ones of a kind that are used, in lines."""
        rvar = kind == "RVar"
        used = [v for v, said in self._new.values() if said and is_rvar(v) == rvar]
        groups = [used[i : i + 6] for i in range(0, len(used), 6)]
        return [
            f"{', '.join(self._texts[id(v)] for v in group)} = "
            + ", ".join(f'hl.{kind}("{v.name()}")' for v in group)
            for group in groups
        ]

    def _value(self, argument: Any) -> Any:
        if isinstance(argument, list | tuple):
            return type(argument)(map(self._value, argument))
        return argument.value if isinstance(argument, Recorded) else self._own(argument)

    def _text(self, argument: Any) -> str:
        if isinstance(argument, list | tuple):
            inside = ", ".join(map(self._text, argument))
            return f"[{inside}]" if isinstance(argument, list) else f"({inside})"
        if isinstance(argument, Recorded):
            return argument.text
        own = self._own(argument)
        if id(own) in self._new:
            self._new[id(own)] = (own, True)
        return self._texts[id(own)] if _named(own) else text_of(own)

    def _own(self, argument: Any) -> Any:
        """For a variable that someone made by name a new one of this pipeline."""
        if not _named(argument) or id(argument) in self._texts:
            return argument
        (own,) = (self.rvars if is_rvar(argument) else self.variables)(argument.name())
        return own

    def _identifier(self, name: str) -> str:
        stem = _NO_WORD.sub("_", self._names(f"v.{name}")[2:]).strip("_") or "v"
        if stem[0].isdigit() or keyword.iskeyword(stem):
            stem = f"v{stem}"
        found, count = stem, 1
        while found in self._identifiers:
            count += 1
            found = f"{stem}{count}"
        self._identifiers.add(found)
        return found


def _named(value: Any) -> bool:
    return is_variable(value) or is_rvar(value)


def _key(variable: Any) -> tuple[bool, str]:
    return is_rvar(variable), variable.name()
