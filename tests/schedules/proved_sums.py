"""By which rules sums in other words go to tensor units, and what proofs of these take as given:
the table in ``docs/results/sums.md``, which ``test_proved_sums.py`` compares.

    python tests/schedules/proved_sums.py      rewrites it
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "gpu"), str(ROOT / "tests" / "schedules")]

import halide as hl  # noqa: E402
from plain_pipelines import F32, U8  # noqa: E402
from plain_sums import SUMS, matrices, stored, summed, x, y  # noqa: E402
from sums import jobs, scheduled  # noqa: E402

import halide_bridge as hb  # noqa: E402

PAGE = ROOT / "docs" / "results" / "sums.md"
PROOFS = ROOT / "docs" / "reference" / "proofs.md"
BEGIN, END = "<!-- chains: begin -->\n", "<!-- chains: end -->\n"
TARGET, SIZES = "sm_90a", (4096, 4096)
JOBS = {job.pipeline: job for job in jobs()}


def single_floats() -> Any:
    a, b, k = matrices(F32, F32)
    total = summed(a[k, y] * b[k, x])
    return hb.compile(
        stored(total), target=TARGET, schedule="auto", sizes=SIZES, instructions=("tf32",),
        cache=False,
    )  # fmt: skip


def floats_of_eight_bits() -> Any:
    a, b, k = matrices(U8, U8)
    total = summed(hl.f32(hb.e4m3(a[k, y])) * hl.f32(hb.e5m2(b[k, x])))
    return hb.compile(
        stored(total), target=TARGET, schedule="auto", sizes=SIZES, instructions=("fp8",),
        cache=False,
    )  # fmt: skip


KERNELS: Mapping[str, Callable[[], Any]] = {
    **{
        name: lambda name=name: hb.compile(scheduled(JOBS[name]), target=TARGET, cache=False)
        for name in SUMS
    },
    "single_floats": single_floats,
    "floats_of_eight_bits": floats_of_eight_bits,
}


@cache
def proofs() -> dict[str, tuple[str, str]]:
    """Verdict and contracts of each rule."""
    rows = re.findall(r"^\| `(\S+)` \| (\w+) \| (.*?) ?\|$", PROOFS.read_text(), re.MULTILINE)
    return {name: (verdict, contracts) for name, verdict, contracts in rows}


def rules_of(kernel: Any) -> tuple[str, ...]:
    """The rules that led to a kernel's instructions, in the order of its report."""
    return tuple(dict.fromkeys(rule for u in kernel.report.updates for rule in u.rules))


def row(name: str, kernel: Any) -> str:
    """A line of the table."""
    rules = rules_of(kernel)
    units = dict.fromkeys(u.block.instruction.split(".")[0] for u in kernel.report.updates)
    given = dict.fromkeys(c for r in rules for c in proofs()[r][1].split("; ") if c)
    chain = " ".join(f"`{r}`" for r in rules)
    shown = name.replace("_", " ")
    return f"| {shown} | {', '.join(units)} | {chain} | {'; '.join(given)} |"


def written() -> dict[str, str]:
    """The lines of the page, by name."""
    text = PAGE.read_text(encoding="utf-8")
    lines = text[text.index(BEGIN) + len(BEGIN) : text.index(END)].splitlines()[2:]
    return {line.split(" | ")[0][2:].replace(" ", "_"): line for line in lines}


def main() -> None:
    lines = ["| sum | unit | rules | where |", "|---|---|---|---|"]
    lines += [row(name, make()) for name, make in KERNELS.items()]
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
