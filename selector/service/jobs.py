"""What a worker does with a request: plain functions from data to an answer."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from selector import pipeline
from selector.diagnostics import LimitError, ParseError, TargetError, UserError
from selector.intrinsics.records import check_names
from selector.ir.module import Module
from selector.ir.parser import parse_module
from selector.ir.serialize import from_json, loads
from selector.ir.verify import verify_given
from selector.report import Report
from selector.runtime.artifact import Artifact, to_bytes
from selector.runtime.plan import Plan
from selector.runtime.versions import versions
from selector.service.answers import Answer, compiled, defect, encoded, mistake
from selector.service.shelf import FULL, unusable
from selector.targets import Target, find_target

Watch = Callable[[str], None]
Made = tuple[Answer, bytes]
PROGRAM, RULES = "program", "rules"
"""What places in errors call the two texts of a request."""


def perform(kind: str, request: Mapping[str, Any], watch: Watch) -> Made:
    """The answer, and the saved kernel that it speaks of (empty if there is none)."""
    try:
        return _JOBS[kind](request, watch)
    except UserError as error:
        return mistake(error), b""
    except (MemoryError, RecursionError) as error:
        what = "memory" if isinstance(error, MemoryError) else "nesting"
        return mistake(LimitError(f"the program takes more {what} than it is given")), b""
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL:
            return mistake(unusable(error), 507, retry_after=10), b""
        if request["rules"]:
            return mistake(_of_rules(error)), b""
        traceback.print_exc(file=sys.stderr)
        return defect("the program cannot be compiled", f"{type(error).__name__}: {error}"), b""


def compile_program(request: Mapping[str, Any], watch: Watch) -> Made:
    clock = pipeline.Clock()
    work = _work(request, watch, bool(request["strict"]))
    if any(request[x] for x in ("cubin", "sass", "kernels")) and work.target.family != "cuda":
        raise TargetError(
            f"there are no kernels and no cubin for {work.target.name}",
            "a cubin is machine code for an NVIDIA GPU",
            "leave out `cubin`, `sass` and `kernels`: the C source is compiled where it runs",
        )
    work = pipeline.run(work, clock, watch)
    assert work.plan is not None, "the last stage leaves a plan"
    report = Report(work.statements, target=work.target.name)
    text, data = str(report), report.as_dict()
    more: dict[str, object] = {}
    cubins: dict[str, bytes] = {}
    if request["cubin"] or request["sass"]:
        cubins[work.target.name] = _cubin(work.plan.source, work.target, clock, watch)
    if request["sass"]:
        more |= _machine_code(work.plan, cubins[work.target.name], work.target, watch)
    if request["kernels"]:
        more["kernels"] = pipeline.kernels_text(work)
    artifact = to_bytes(Artifact(work.plan, str(work.module), text, data, cubins, versions()))
    stages = {name: round(seconds, 6) for name, seconds in clock.seconds.items()}
    made = {"source": work.plan.source, "report": data, "stages": stages, **more, **_ir(request)}
    return compiled(made, artifact), artifact


def explain_program(request: Mapping[str, Any], watch: Watch) -> Made:
    """The report with its chains, whatever was missed, and the selected program."""
    from selector.workbench.extended import extended_bench

    work = _work(request, watch, False)
    stages = [s for s in pipeline.STAGES if s.name in ("verify", "select", "explain")]
    for stage in stages:
        watch(stage.name)
        work = stage.run(work)
    report = Report(work.statements, target=work.target.name)
    data = report.as_dict(laws=True)
    if work.rules:
        own = extended_bench(work.rules, work.instructions).rules
        for entry in data["statements"]:  # type: ignore[attr-defined]
            entry["laws"] = {r: own[r].law if r in own else law for r, law in entry["laws"].items()}
    made = {
        "report": data,
        "text": report.text(laws=True),
        "selected": str(work.module),
        "misses": len(report.misses),
        **_ir(request),
    }
    return Answer(200, encoded(made), keep=True), b""


def draw_graph(request: Mapping[str, Any], watch: Watch) -> Made:
    from selector.workbench.bench import Bench
    from selector.workbench.extended import extended_bench
    from selector.workbench.picture import Options, draw
    from selector.workbench.rendering import svg

    work = pipeline.STAGES[0].run(_work(request, watch, False))
    watch("saturate")
    only = work.instructions
    bench = extended_bench(work.rules, only) if work.rules else Bench(only=only)
    options = Options(request["statement"], request["nodes"], request["everything"])
    picture = draw(bench, work.module, work.target.name, options)
    watch("draw")
    if request["format"] == "json":
        return Answer(200, encoded(picture.as_dict()), keep=True), b""
    return Answer(200, svg(picture).encode(), "image/svg+xml", keep=True), b""


_JOBS: dict[str, Callable[[Mapping[str, Any], Watch], Made]] = {
    "compile": compile_program,
    "explain": explain_program,
    "graph": draw_graph,
}


def _work(request: Mapping[str, Any], watch: Watch, strict: bool) -> pipeline.Work:
    """What the request asks for; the program is read, and not verified yet."""
    target = find_target(request["target"])
    only = _instructions(request["instructions"])
    rules = ((RULES, str(request["rules"])),) if request["rules"] else ()
    watch("read")
    module = _program(request["ir"])
    verify_given(module)
    return pipeline.Work(module, target, strict, only, rules=rules)


def _ir(request: Mapping[str, Any]) -> dict[str, object]:
    """The program that was compiled, for who sent another one."""
    return {} if request["kind"] == "ir" else {"ir": request["ir"]}


def _program(ir: object) -> Module:
    """A program in the text form, or the JSON form as a text or as data."""
    if not isinstance(ir, str):
        return from_json(ir)
    return loads(ir) if ir.lstrip()[:1] == "{" else parse_module(ir, PROGRAM)


def _instructions(names: list[str] | None) -> tuple[str, ...] | None:
    """The restriction, in one order; ``UserError`` for a name that no instruction has."""
    if names is None:
        return None
    check_names(names, ParseError)
    return tuple(sorted(set(names)))


def _cubin(source: str, target: Target, clock: pipeline.Clock, watch: Watch) -> bytes:
    import time

    from selector.runtime import nvrtc

    watch("cubin")
    start = time.perf_counter()
    code = nvrtc.compile_to_cubin(source, target.name)
    clock.time("cubin", start)
    return code


def _machine_code(plan: Plan, cubin: bytes, target: Target, watch: Watch) -> dict[str, object]:
    """The disassembly, and what the kernels take of a multiprocessor."""
    from selector.runtime import nvrtc
    from selector.runtime.occupancy import kernel_resources

    watch("sass")
    taken = [kernel.as_dict() for kernel in kernel_resources(plan, cubin, target)]
    return {"sass": nvrtc.sass(cubin), "resources": taken}


def _of_rules(error: Exception) -> UserError:
    """With rules from elsewhere, what stops the compiler is laid to them."""
    return ParseError(
        "these rules lead to what cannot be compiled",
        f"{type(error).__name__}: {error}"[:2000],
        "`python -m selector rules check` and `rules soundness` find the rule at fault",
        RULES,
    )


def preload() -> None:
    """Load the rules, and what requests will import: by compiling programs for each family."""
    from rules import program_files

    programs = dict(program_files())
    for name, target in (
        ("conv1d.vir", "sm_80"),
        ("matmul.vir", "sm_90a"),
        ("amx_matmul.vir", "amx"),
    ):
        perform("compile", {**DEFAULTS, "ir": programs[name], "target": target}, lambda stage: None)


DEFAULTS: dict[str, Any] = {
    "kind": "ir",
    "strict": True,
    "rules": "",
    "instructions": None,
    "cubin": False,
    "sass": False,
    "kernels": False,
}
