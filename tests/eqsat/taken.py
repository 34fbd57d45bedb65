"""What ``rules infer`` and its first trial found that users reach from Halide, and what takes it
today: the table in ``docs/results/inferred.md``, which ``test_taken.py`` compares.

    python tests/eqsat/taken.py      rewrites it
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import halide as hl

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

import halide_bridge as hb  # noqa: E402
from selector.eqsat.facts import instruction_facts, legal_instructions  # noqa: E402
from selector.eqsat.saturate import Engine  # noqa: E402
from selector.eqsat.select import Selection, select  # noqa: E402
from selector.ir.contents import holds  # noqa: E402
from selector.ir.nodes import Expr, Load  # noqa: E402
from selector.operands.prepare import prepare  # noqa: E402
from selector.targets import find_target  # noqa: E402

PAGE = ROOT / "docs" / "results" / "inferred.md"
BEGIN, END = "<!-- taken: begin -->\n", "<!-- taken: end -->\n"
TARGET = "sm_80"
F16, F32, U8, I8, I32 = hl.Float(16), hl.Float(32), hl.UInt(8), hl.Int(8), hl.Int(32)
HALVES, BYTES, SIGNED = (F16, F16, F32), (U8, I8, I32), (I8, I8, I32)
x, y, xo, xi, yo, yi = (hl.Var(n) for n in ("x", "y", "xo", "xi", "yo", "yi"))
TAPS, DEPTH = 16, 64


def shown(by: str | tuple[str, ...]) -> str:
    """Of what takes a program."""
    return f"`{by}`" if isinstance(by, str) else " or ".join(map(shown, by))


@dataclass(frozen=True)
class Taken:
    """``number`` on the list; ``term``: what a product (``a``, ``b``, ``k``) or a filter of rows
    (``i``, ``k``, ``t``) adds, in Python; ``by``: rules, or passes of ``selector.operands``,
    without which it is refused (of several in a tuple, one is enough), none for what needs no more
    than the rest.
    """

    number: int
    what: str
    term: str
    by: tuple[str | tuple[str, ...], ...]
    kinds: tuple[hl.Type, hl.Type, hl.Type] = HALVES

    @property
    def filters(self) -> bool:
        return "i[" in self.term

    def pipeline(self) -> tuple[hl.Func, hl.Func, list[hl.ImageParam]]:
        """The sum, what stores it, and the arguments; without a schedule."""
        names = ("i", "k") if self.filters else ("a", "b")
        given = [
            hl.ImageParam(kind, 1 if name == "k" else 2, name)
            for name, kind in zip(names, self.kinds, strict=False)
        ]
        r = hl.RDom([(0, TAPS if self.filters else DEPTH)], "r")
        known = dict(zip(names, given, strict=True)) | {"t" if self.filters else "k": r}
        words = {"f32": hl.f32, "i32": hl.i32, "i16": hl.i16, "hl": hl, "x": x, "y": y}
        total, out = hl.Func("total"), hl.Func("out")
        total[x, y] = hl.cast(self.kinds[2], 0)
        total[x, y] += eval(self.term, words | known | {"half": hl.cast(F16, 2.0), "s": SCALE})
        out[x, y] = total[x, y]
        return total, out, given

    def scheduled(self) -> hl.Func:
        total, out, _ = self.pipeline()
        if self.filters:
            out.split(x, xo, xi, 256).vectorize(xi).gpu_blocks(xo, y)
            total.compute_at(out, xo).bound_extent(x, 256).vectorize(x)
            (r,) = total.rvars(0)
            total.update().reorder(r, x).atomic().vectorize(r).vectorize(x)
        else:
            out.split(x, xo, xi, 16).split(y, yo, yi, 16).reorder(xi, yi, xo, yo)
            out.vectorize(xi).vectorize(yi).gpu_blocks(xo, yo)
            total.compute_at(out, xo).bound_extent(x, 16).bound_extent(y, 16)
            total.vectorize(x).vectorize(y)
            (r,), ro, ri = total.rvars(0), hl.RVar("ro"), hl.RVar("ri")
            total.update().split(r, ro, ri, 16).reorder(ri, x, y, ro).atomic()
            total.update().vectorize(ri).vectorize(x).vectorize(y)
        hb.store_in(total, hb.MemoryType.WMMAAccumulator)
        return out

    def row(self) -> str:
        by = ", ".join(map(shown, self.by)) or "what others need, too"
        term = self.term.replace("|", "\\|")
        return f"| {self.number} | {self.what} | `{term}` | {by} |"


SCALE = hl.Param(F32, "s")
PRODUCT, FILTER = "f32(a[k, y]) * f32(b[x, k])", "f32(i[x + t, y]) * f32(k[t])"
TAKEN = (
    Taken(1, "an operand that is read twice", "(f32(a[k, y]) + f32(a[k, y])) * f32(b[x, k])",
          ("prepare (lets)",)),
    Taken(1, "", "f32(hl.max(a[k, y], a[k, y] * 2)) * f32(b[x, k])", ("compute_operands",)),
    Taken(1, "", f"{PRODUCT} + {PRODUCT}", ("prepare (lets)",)),
    Taken(2, "one product in two types", "i32(i16(a[k, y]) * i16(b[x, k]))",
          ("compute_operands",), BYTES),
    Taken(3, "copies in the image", "f32(i[x / 2 + t, y]) * f32(k[t])", ("compute_operands",)),
    Taken(4, "filters that are folded", "(f32(i[x + t, y]) + f32(i[x + 31 - t, y])) * f32(k[t])",
          ("expand",)),
    Taken(5, "taps of any index", "f32(i[x + t, y]) * f32(k[hl.min(t, 5)])",
          ("compute_operands",)),
    Taken(5, "", "f32(i[x + t, y]) * f32(k[(t + 3) % 8])", ("compute_operands",)),
    Taken(6, "predicates over `%`, min and max", f"hl.select(k % 2 == 0, {PRODUCT}, 0.0)",
          ("compute_operands",)),
    Taken(6, "", f"hl.select(hl.min(k, y) < 5, {PRODUCT}, 0.0)", ("compute_operands",)),
    Taken(7, "images read at clamped indices",
          "f32(i[hl.clamp(x + t, 0, i.width() - 1), y]) * f32(k[t])", ("compute_operands",)),
    Taken(7, "mirrored ones", "f32(i[hl.i32(hl.abs(x + t - 8)), y]) * f32(k[t])",
          ("compute_operands",)),
    Taken(8, "masks as factors", "f32(a[k, y]) * f32(k <= x) * f32(b[x, k])",
          ("compute_operands",)),
    Taken(9, "masks on whole terms", f"hl.select(t < y, {FILTER}, 0.0)",
          (("select-product", "compute_operands"),)),
    Taken(9, "", f"hl.select(k < x, {PRODUCT}, 0.0)",
          (("select-product", "compute_operands"),)),
    Taken(10, "signs per sum", "(f32(a[k, y + 1]) - f32(a[k, y])) * f32(b[x, k])", ("expand",)),
    Taken(11, "signs and factors in fewer bits", "f32(-a[k, y]) * f32(b[x, k])",
          ("compute_operands",)),
    Taken(11, "", "f32(a[k, y] * half) * f32(b[x, k])", ("compute_operands",)),
    Taken(11, "", "i32(-i16(a[k, y])) * i32(b[x, k])",
          ("expand", "split_sums", "compute_operands"), BYTES),
    Taken(12, "zero points", "(i32(a[k, y]) - 7) * i32(b[x, k])",
          ("expand", "split_sums", "compute_operands"), BYTES),
    Taken(13, "quotients by a parameter", "f32(a[k, y]) / s * f32(b[x, k])", ("expand",)),
    Taken(14, "Halide's own widening", "i32(hl.widening_mul(a[k, y], b[x, k]))",
          (("widen-product", "compute_operands"),), SIGNED),
    Taken(15, "`~` of a condition", f"hl.select(~(k < x), {PRODUCT}, 0.0)",
          (("select-product", "compute_operands"),)),
    Taken(16, "choices of other counts", "f32(i[x + t, y]) * f32(k[hl.select(t < 8, t, 15 - t)])",
          ("compute_operands",)),
    Taken(17, "turned conditions", f"hl.select(k < x, 0.0, {PRODUCT})",
          (("select-product", "compute_operands"),)),
    Taken(17, "", f"hl.select(~((k < x) | (k < y)), {PRODUCT}, 0.0)",
          (("select-product", "compute_operands"), ("split-and", "compute_operands"), "expand")),
    Taken(19, "indices in fewer bits", "f32(i[x + i32(i16(t)), y]) * f32(k[t])",
          ("prepare (casts)",)),
    Taken(20, "remainders of multiples", "f32(i[x + t, y]) * f32(k[(t * 2) % 16])", ()),
)  # fmt: skip

_NONE: dict[str, Callable[..., Any]] = {
    "compute_operands": lambda *_: None,
    "expand": lambda *_: None,
    "split_sums": lambda *_: None,
}


def _without_loads(value: Expr, *_: object) -> bool:
    return not holds(value, Load)


_IN_PREPARE: dict[str, tuple[str, Callable[..., bool]]] = {
    "prepare (lets)": ("_inlined", _without_loads),
    "prepare (casts)": ("_has_all", lambda *_: False),
}


@contextmanager
def without(by: str | tuple[str, ...]) -> Generator[frozenset[str]]:
    """Passes that find nothing; the names of rules."""
    rules = set[str]()
    with ExitStack() as stack:
        for name in (by,) if isinstance(by, str) else by:
            if name in _NONE:
                stack.enter_context(mock.patch(f"{select.__module__}.{name}", _NONE[name]))
            elif name in _IN_PREPARE:
                function, instead = _IN_PREPARE[name]
                stack.enter_context(mock.patch(f"{prepare.__module__}.{function}", instead))
            else:
                rules.add(name)
        yield frozenset(rules)


def selected(taken: Taken, rules: frozenset[str]) -> Selection:
    """``SelectionError`` where it is refused; ``rules`` are left out."""
    target = find_target(TARGET)
    facts = instruction_facts(legal_instructions(target, ("wmma",)))
    engine = Engine(facts, rules) if rules else None
    return select(hb.lower(taken.scheduled(), target=TARGET), target, engine=engine)


def rows_and_columns(taken: Taken) -> tuple[list[tuple[int, ...]], tuple[int, int]]:
    """Shapes of the arguments, and of a result that no tile divides."""
    if taken.filters:
        return [(3, 700), (2 * TAPS,)], (3, 371)
    return [(22, DEPTH), (DEPTH, 19)], (21, 19)


def table() -> str:
    lines = ["| # | what | terms | refused without |", "|---:|---|---|---|"]
    return "\n".join((*lines, *(t.row() for t in TAKEN))) + "\n"


def written() -> str:
    text = PAGE.read_text(encoding="utf-8")
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)]


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text.replace(BEGIN + written() + END, BEGIN + table() + END), encoding="utf-8")


if __name__ == "__main__":
    main()
