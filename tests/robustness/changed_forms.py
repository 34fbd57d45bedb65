"""Wrong versions of the passes in ``selector/operands/``: one spot of a function changed."""

from __future__ import annotations
import __future__

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from selector.operands import (
    computed,
    computed_values,
    decoded,
    exact,
    expand,
    gains,
    movement,
    places,
    prepare,
    scaling,
    slices,
)


@dataclass(frozen=True)
class Changed:
    """``function`` with ``old``, which is in it once, as ``new``; ``by``: the pass that is wrong
    then."""

    by: str
    function: Callable[..., Any]
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.by}: {self.function.__name__}: {self.old} -> {self.new}"

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Whoever has imported the function runs the wrong one."""
        function = inspect.unwrap(self.function)
        text = textwrap.dedent(inspect.getsource(function))
        assert text.count(self.old) == 1, f"{self}: it is there {text.count(self.old)} times"
        text = text.replace(self.old, self.new).split("def ", 1)[1]
        names = dict(function.__globals__)
        flags = __future__.annotations.compiler_flag
        exec(compile(f"def {text}", str(self), "exec", flags, True), names)
        right = function.__code__
        function.__code__ = names[function.__name__].__code__
        _forget()
        try:
            yield
        finally:
            function.__code__ = right
            _forget()


def _forget() -> None:
    decoded._format.cache_clear()  # pyright: ignore[reportPrivateUsage]


CHANGED = [
    Changed("annotate_movement", movement._annotate,
            "LocToLoc(placed[buffer], Location.MEM, load)", "load"),
    Changed("annotate_movement", movement._annotate,
            "placed[buffer], Location.MEM", "Location.MEM, placed[buffer]"),
    Changed("annotate_movement", movement.annotate_movement,
            "value = LocToLoc(Location.MEM, placed[buffer], value)", "pass"),
    Changed("annotate_movement", movement.annotate_movement,
            "_annotate(index, placed)", "LocToLoc(Location.MEM, Location.MEM, index)"),
    Changed("annotate_movement", movement._inline_reads,
            "substitute(body, {name: value})", "body"),
    Changed("prepare", prepare._signed_terms, "not minus)]", "minus)]"),
    Changed("prepare", prepare._as_sum, "literal(-1, value.type)", "literal(1, value.type)"),
    Changed("prepare", prepare._split, "start = [] if own else", "start = [] if True else"),
    Changed("prepare", prepare._as_sum, "value=_scaled(found.value, wide)", "value=found.value"),
    Changed("prepare", prepare._has_all,
            "inside(vector_bounds(value), whole_numbers(by))", "True"),
    Changed("prepare", scaling._scaled_read, "value: Expr = e\n", "return None\n"),
    Changed("expand", expand._terms, "rest = [(t, not minus)", "rest = [(t, minus)"),
    Changed("expand", expand._terms, "m != n)", "m == n)"),
    Changed("expand", expand._bytes, "BinaryOp.MOD, e, by), False", "BinaryOp.MOD, e, by), True"),
    Changed("split_sums", expand._added, "BinaryOp.ADD, total", "BinaryOp.SUB, total"),
    Changed("split_sums", expand._renamed, "buffer=name, value=", "buffer=s.buffer, value="),
    Changed("split_sums", expand._split, "literal(0, s.value.type)", "literal(1, s.value.type)"),
    Changed("split_sums", expand._split,
            "parts[buffer].values())[1:]", "parts[buffer].values())[2:]"),
    Changed("factor_gains", gains._parts, "Gain(own, known)", "Gain(own, ())"),
    Changed("factor_gains", gains._parts, "Gain(own, known)", "Gain((), known)"),
    Changed("factor_gains", gains._parts, "rest[1:]", "rest[2:]"),
    Changed("slice_reductions", slices._parts, "chosen, part)", "chosen, 0)"),
    Changed("slice_reductions", slices._slice_walk, "part // c.before", "part % c.before"),
    Changed("slice_reductions", slices._at, "base + stride", "base - stride"),
    Changed("compute_operands", exact.narrow, "if t.is_float and (", "if ("),
    Changed("compute_operands", exact.narrow,
            "inside(bounds(e, ranges), whole_numbers(t))", "True"),
    Changed("compute_operands", computed._of_both, "in (first, second)", "in (second, first)"),
    Changed("compute_operands", places._over_place, "step // stride", "step"),
    Changed("compute_operands", places._moved, "+ max(lead) + 1", "+ max(lead)"),
    Changed("compute_operands", places._moved,
            "step * (term.extent - 1) + 1)", "step * term.extent + 1)"),
    Changed("put back", computed_values.Computed._coordinates,
            "Ramp(b, s, count)", "Ramp(b, t, count)"),
    Changed("put back", computed_values.Computed.at, "ALONG.name: along", "ALONG.name: row"),
    Changed("put back", computed_values.wide, "over(index)", "Broadcast(index, lanes)"),
    Changed("as_decoded", decoded._format, "next(same, None)", "float8.FORMATS[0]"),
    Changed("as_decoded", decoded.as_decoded,
            "replace(byte, type", 'replace(byte, buffer="A", type'),
    Changed("as_decoded", decoded._format,
            "np.array_equal(found, float8.values(t), equal_nan=True)", "True"),
]  # fmt: skip
