"""What went to which instruction, by which rules, and what did not: as text and as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from selector import notebook, performance
from selector.dataclass import dataclass
from selector.diagnostics import Where
from selector.intrinsics.records import find
from selector.runtime.plan import CopyCost
from selector.targets import COMPILE_ONLY, find_target


@dataclass(frozen=True, slots=True)
class Block:
    """The instruction of an update: its name and ``shape`` (m, n, k), the extents ``m`` x ``n`` x
    ``k`` of the block, how often it is issued, and multiply-adds."""

    instruction: str
    shape: tuple[int, int, int]
    m: int
    n: int
    k: int
    count: int
    useful_macs: int
    issued_macs: int

    @property
    def useful_share(self) -> float:
        """Multiply-adds that the algorithm asks for, per multiply-add that the instructions
        perform."""
        return self.useful_macs / self.issued_macs


@dataclass(frozen=True, slots=True)
class StatementReport:
    """One statement on a tensor unit, or a miss.

    ``stage`` is "init", "update", "rescale", "apply", "read" or "plain"; ``block`` is None where
    there is no product; ``copies`` is how many equal statements (up to bases) share this entry;
    ``matched`` are the named rules that matched in its scope, ``rules`` those that led to the
    result; ``precision`` says how far the products of halves of floats are from those of floats.
    """

    where: Where
    stage: str
    block: Block | None
    matched: tuple[str, ...] = ()
    temporaries: tuple[str, ...] = ()
    miss: str = ""
    hint: str = ""
    capped: tuple[str, ...] = ()
    copies: int = 1
    precision: str = ""
    explain: Callable[[], tuple[str, ...]] = field(default=tuple, compare=False, repr=False)

    @property
    def func(self) -> str:
        return self.where.func

    @property
    def rules(self) -> tuple[str, ...]:
        """The chain of rules that led to the result, in the order in which they apply: they are
        enough, and without any of them the statement is not selected so."""
        return self.explain()

    def explained(self) -> StatementReport:
        """The entry with its chain found."""
        rules = self.rules
        return replace(self, explain=lambda: rules)

    @property
    def laws(self) -> dict[str, str]:
        """The law of each rule of the chain, in words."""
        from rules import laws

        return {rule: laws().get(rule, "") for rule in self.rules}

    def as_dict(self, laws: bool = False) -> dict[str, object]:
        """The entry as data, for JSON; ``laws``: with the law of each rule."""
        block = self.block
        more: dict[str, object] = {"laws": self.laws} if laws else {}
        return more | {
            "func": self.where.func,
            "stage": self.stage,
            "where_stage": self.where.stage,
            "location": self.where.location,
            "statement": self.where.statement,
            "instruction": None if block is None else block.instruction,
            "shape": None if block is None else list(block.shape),
            "block": None if block is None else [block.m, block.n, block.k],
            "count": 0 if block is None else block.count,
            "useful_macs": 0 if block is None else block.useful_macs,
            "issued_macs": 0 if block is None else block.issued_macs,
            "useful_share": None if block is None else block.useful_share,
            "rules": list(self.rules),
            "matched": list(self.matched),
            "temporaries": list(self.temporaries),
            "miss": self.miss,
            "hint": self.hint,
            "capped": list(self.capped),
            "copies": self.copies,
            "precision": self.precision,
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> StatementReport:
        """What ``as_dict`` gave; KeyError, TypeError or ValueError for anything else."""
        rules = tuple(data["rules"])
        return StatementReport(
            Where(data["func"], data["where_stage"], data["location"], data["statement"]),
            data["stage"],
            _block(data),
            tuple(data["matched"]),
            tuple(data["temporaries"]),
            data["miss"],
            data["hint"],
            tuple(data["capped"]),
            data["copies"],
            data.get("precision", ""),
            lambda: rules,
        )

    def text(self, laws: bool = False) -> str:
        """The entry in words; ``laws``: with the law of each rule."""
        return "\n".join(_lines(self, laws))

    def __str__(self) -> str:
        return self.text()


def _block(data: Mapping[str, Any]) -> Block | None:
    if data["instruction"] is None:
        return None
    (m, n, k), (block_m, block_n, block_k) = data["shape"], data["block"]
    macs = data["useful_macs"], data["issued_macs"]
    return Block(data["instruction"], (m, n, k), block_m, block_n, block_k, data["count"], *macs)


def _cells(s: StatementReport) -> tuple[str, ...]:
    """The row of an entry in a notebook: Func, stage, what it became, how often, the useful share,
    rules."""
    head = notebook.paragraphs(s.where.func), notebook.paragraphs(s.stage)
    if s.miss:
        became = notebook.paragraphs(f"not selected: {s.miss}", s.hint and f"hint: {s.hint}")
        return (*head, became, str(s.copies), "", "")
    b, rules = s.block, " ".join(s.rules)
    became = _WITHOUT_PRODUCT.get(s.stage, "") if b is None else b.instruction
    return (
        *head,
        notebook.paragraphs(became, s.precision, *s.temporaries),
        str(s.copies if b is None else s.copies * b.count),
        "" if b is None else f"{100 * b.useful_share:.1f} %",
        notebook.folded(f"{len(s.rules)} rules", notebook.paragraphs(rules)) if rules else "",
    )


_WITHOUT_PRODUCT = {
    "init": "accumulator initialisation",
    "rescale": "rows of the tile times numbers",
    "apply": "each element of the tile, where it lies",
    "read": "epilogue",
}


def _lines(s: StatementReport, laws: bool) -> list[str]:
    copies = f" x{s.copies}" if s.copies > 1 else ""
    place = f"  {s.where.location}" if s.where.location else ""
    head = f"{s.where.func} ({s.stage}){copies}{place}"
    if s.miss:
        return [head, f"  not selected: {s.miss}", *([f"  hint: {s.hint}"] if s.hint else [])]
    lines = [head]
    if s.block is not None:
        b = s.block
        lines.append(
            f"  {b.count} x {b.instruction}  block {b.m} x {b.n} x {b.k}"
            f"  useful {100 * b.useful_share:.1f}%"
        )
    elif s.stage in _WITHOUT_PRODUCT:
        lines.append(f"  {_WITHOUT_PRODUCT[s.stage]}")
    record = None if s.block is None else find(s.block.instruction)
    lines += [f"  {record.loses}"] if record is not None and record.loses else []
    lines += [f"  {s.precision}"] if s.precision else []
    lines += [f"  temporary {t}" for t in s.temporaries]
    lines += _rules(s, laws)
    lines += [f"  the phase {phase!r} stopped at its cap" for phase in s.capped]
    return lines


def _rules(s: StatementReport, laws: bool) -> list[str]:
    rules = s.rules
    if not rules:
        return [f"  matched {' '.join(s.matched)}"] if s.matched else []
    if not laws:
        return [f"  rules {' '.join(rules)}"]
    width = max(map(len, rules))
    return ["  rules", *(f"    {rule:<{width}}  {law}" for rule, law in s.laws.items())]


@dataclass(frozen=True, slots=True)
class Search:
    """The e-graph of a scope, as it was when its rules had been run: rows of all tables, and rounds
    and seconds by ruleset; those of the time when it was solved, if it was remembered."""

    rows: int
    rounds: Mapping[str, int]
    seconds: Mapping[str, float]

    def __str__(self) -> str:
        spent = (f"{name} {1000 * t:.1f} ms" for name, t in self.seconds.items())
        return f"{self.rows} rows: {', '.join(spent)}"


@dataclass(frozen=True, slots=True)
class Opportunity:
    """A sum that computes in ordinary memory and that a tensor unit has instructions for: its Func,
    what it is, and the directive that asks for it, beside vectors of a tile."""

    func: str
    what: str
    directive: str

    def __str__(self) -> str:
        return f"{self.func} is {self.what}: {self.directive}"


@dataclass(frozen=True, slots=True)
class Report:
    """All statements of a module that touch tensor memory, in program order.

    ``seconds`` is the time that each stage of the compilation took, where that is known; ``copies``
    are those into shared memory: the threads that take part, bytes of an access, and the share of
    the kernel's predicted time. ``target``: the name of the one it was compiled for, if known.
    ``searches``: one for each scope that was searched in this process, unrolled copies left out;
    ``look``: how opportunities are found, which takes longer than most reports are looked at.
    """

    statements: tuple[StatementReport, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    copies: tuple[CopyCost, ...] = ()
    target: str = ""
    searches: tuple[Search, ...] = field(default=(), compare=False)
    look: Callable[[], tuple[Opportunity, ...]] = field(default=tuple, compare=False, repr=False)

    @property
    def opportunities(self) -> tuple[Opportunity, ...]:
        """Sums of a pipeline that its user scheduled for CUDA cores and that could go to a tensor
        unit; nothing goes there unasked. Of kernels that were loaded there are none."""
        return self.look()

    @property
    def misses(self) -> tuple[StatementReport, ...]:
        """The statements that were asked onto a tensor unit and did not go there."""
        return tuple(s for s in self.statements if s.miss)

    @property
    def updates(self) -> tuple[StatementReport, ...]:
        """The statements that became multiply-adds."""
        return tuple(s for s in self.statements if s.block is not None)

    def as_dict(self, laws: bool = False) -> dict[str, object]:
        """The report as data, for JSON; ``laws``: with the law of each rule."""
        return {
            "statements": [s.as_dict(laws) for s in self.statements],
            "seconds": dict(self.seconds),
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Report:
        """What ``as_dict`` gave; KeyError, TypeError or ValueError for anything else."""
        statements = tuple(StatementReport.from_dict(s) for s in data["statements"])
        return Report(statements, {str(k): float(v) for k, v in data["seconds"].items()})

    def text(self, laws: bool = False) -> str:
        """The report in words; ``laws``: with the law of each rule."""
        lines = [s.text(laws) for s in self.statements]
        lines = lines or ["no statement is placed on a tensor unit"]
        lines += performance.lines(self.copies)
        if self.target and find_target(self.target).compile_only:
            lines.append(f"{self.target}: {COMPILE_ONLY}")
        return "\n".join([*lines, *self._times()])

    def _times(self) -> list[str]:
        times = (f"{name} {1000 * t:.1f} ms" for name, t in self.seconds.items())
        return [f"compiled in: {', '.join(times)}"] if self.seconds else []

    def html(self) -> str:
        """The report as HTML, which notebooks show: a row for each statement."""
        head = ("Func", "stage", "became", "times", "useful", "by")
        rows = [_cells(s) for s in self.statements]
        nothing = "" if rows else "no statement is placed on a tensor unit"
        notes = notebook.paragraphs(nothing, *performance.lines(self.copies), *self._times())
        return (notebook.table(head, rows) if rows else "") + notes

    def _repr_html_(self) -> str:
        return self.html()

    def __str__(self) -> str:
        return self.text()
