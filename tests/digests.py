"""What the emitted text of every program is, as digests: the net under changes of the emitters.

    python tests/digests.py --save before.json [--match REGEX] [--machine-code]
    python tests/digests.py --against before.json [--save now.json]
    python tests/digests.py --kernels FOLDER --label new [--changed before.json]

The programs are those of the case studies at the sizes of benchmarks and tests, and the corpus of
``tests/gpu``, each for the targets it is compiled for. ``--against`` lists the programs whose text
is another now (exit code 1). ``--machine-code`` adds a digest of the cubin's code, which other
names or comments leave as it is. ``--kernels`` saves the case studies' kernels as
``PROGRAM/LABEL.kernel`` with the file that ``tests/gpu/run_variants.py`` wants beside them: what
two checkouts save into one folder is timed there in turns. Run from the root of the checkout in
question.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path.cwd()
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "gpu")]

import halide_bridge as hb  # noqa: E402
import selector  # noqa: E402
from casestudies.common.registry import gpu_cases, gpu_schedules, is_stock  # noqa: E402
from selector.diagnostics import UserError  # noqa: E402
from selector.runtime.nvrtc import compile_to_cubin  # noqa: E402

TARGETS = ("sm_80", "sm_90a")


@dataclass(frozen=True, slots=True)
class Program:
    """One to compile: ``lower`` gives its module; ``about`` is what a timed run has to know."""

    name: str
    target: str
    lower: Callable[[], Any]
    only: tuple[str, ...] | None = None
    about: dict[str, Any] | None = None

    def compile(self) -> Any:
        return selector.compile(
            self.lower(), target=self.target, cache=False, instructions=self.only
        )


def case_programs() -> Iterator[Program]:
    """Each program of the case studies; the benchmark's problem where it has several."""
    for case in gpu_cases():
        problems = {p.program: p for p in (*case.small, *case.benchmark)}
        for (name, problem), schedule in (
            (item, s) for item in problems.items() for s in gpu_schedules(case) if not is_stock(s)
        ):
            for target in TARGETS:
                yield Program(
                    f"{name}-{schedule}-{target}".replace("-tensor", ""),
                    target,
                    lambda c=case, p=problem, s=schedule, t=target: hb.lower(
                        c.scheduled(p, s, t), target=t
                    ),
                    about={"case": case.name, "problem": dataclasses.asdict(problem)}
                    if problem in case.benchmark
                    else None,
                )


def corpus_programs() -> Iterator[Program]:
    from corpus import CORPUS

    for name, case in CORPUS.items():
        for target in TARGETS if case.target is None else (case.target,):
            yield Program(
                f"corpus/{name}-{target}",
                target,
                lambda c=case, n=name, t=target: hb.lower(c.build(), target=t, name=n),
                case.only,
            )


def programs(match: str) -> Iterator[Program]:
    for program in (*case_programs(), *corpus_programs()):
        if re.search(match, program.name):
            yield program


def code_digest(cubin: bytes) -> str:
    """A digest of the cubin's sections ``.text.*``, by name."""
    table = int.from_bytes(cubin[40:48], "little")
    size, count, names = (int.from_bytes(cubin[i : i + 2], "little") for i in (58, 60, 62))

    def section(i: int) -> tuple[int, int, int]:
        head = cubin[table + i * size :]
        word = [int.from_bytes(head[a:b], "little") for a, b in ((0, 4), (24, 32), (32, 40))]
        return word[0], word[1], word[2]

    strings = section(names)[1]
    parts: list[tuple[bytes, bytes]] = []
    for i in range(count):
        name, start, length = section(i)
        text = cubin[strings + name : cubin.index(b"\0", strings + name)]
        if text.startswith(b".text."):
            parts.append((text, cubin[start : start + length]))
    return hashlib.sha256(b"".join(a + b for a, b in sorted(parts))).hexdigest()[:16]


def digest(program: Program, machine_code: bool) -> dict[str, str]:
    try:
        source = program.compile().source
    except UserError as error:
        return {"refused": error.what}
    found = {"source": hashlib.sha256(source.encode()).hexdigest()[:16]}
    if machine_code:
        found["code"] = code_digest(compile_to_cubin(source, program.target))
    return found


def save_kernels(folder: Path, label: str, match: str, chosen: set[str] | None) -> None:
    for program in programs(match):
        if program.about is None or program.target != "sm_90a":
            continue
        if chosen is not None and program.name not in chosen:
            continue
        try:
            kernel = program.compile()
        except UserError as error:
            print(f"{program.name}: {error.what}")
            continue
        place = folder / program.name
        place.mkdir(parents=True, exist_ok=True)
        kernel.save(place / f"{label}.kernel", overwrite=True)
        (place / f"{label}.json").write_text(json.dumps(program.about))


def differences(before: dict[str, dict[str, str]], now: dict[str, dict[str, str]]) -> list[str]:
    """A line for each program that is not as it was."""
    lines: list[str] = []
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if old is None or new is None:
            lines.append(f"{name}: {'is new' if old is None else 'is gone'}")
            continue
        kinds = [k for k in (*old, *new) if k in old.keys() | new.keys()]
        changed = [k for k in dict.fromkeys(kinds) if old.get(k) != new.get(k)]
        if changed and not ("code" not in changed and "code" in old and "code" in new):
            lines.append(f"{name}: {', '.join(changed)}")
        elif changed:
            lines.append(f"{name}: {', '.join(changed)}; the machine code is the same")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--match", default="", help="only programs whose name holds this (regex)")
    parser.add_argument("--machine-code", action="store_true", help="compile by NVRTC, too")
    parser.add_argument("--kernels", type=Path, help="folder for saved kernels")
    parser.add_argument("--label", default="new", help="name of the saved kernels")
    parser.add_argument("--changed", type=Path, help="save only what differs from these digests")
    options = parser.parse_args()
    known = options.against or options.changed
    before = json.loads(known.read_text()) if known else {}
    if options.kernels and not options.changed:
        save_kernels(options.kernels, options.label, options.match, None)
        return 0
    now = {p.name: digest(p, options.machine_code) for p in programs(options.match)}
    if options.save:
        options.save.write_text(json.dumps(now, indent=1) + "\n")
    before = {name: d for name, d in before.items() if re.search(options.match, name)}
    lines = differences(before, now) if known else []
    if options.kernels:
        names = {line.partition(":")[0] for line in lines}
        save_kernels(options.kernels, options.label, options.match, names)
    print("\n".join(lines))
    print(f"{len(now)} programs, {len(lines)} not as before" if known else f"{len(now)} programs")
    return 1 if lines and options.against else 0


if __name__ == "__main__":
    sys.exit(main())
