"""Selection stays small: rows of the e-graph and CPU time for every program of the case studies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from clock import NVRTC, PYTHON, UNCACHED, Part, assert_quick, assert_within
from known_code import assert_known
from verified import MACHINE_CODE, Verified

pytest.importorskip("halide")

import halide_bridge as hb
import selector
from casestudies.amx_matmul.algorithm import multiply
from casestudies.amx_matmul.problem import LAYOUTS, SCHEDULES
from casestudies.amx_matmul.schedule import schedule
from casestudies.common.registry import gpu_cases
from selector import pipeline
from selector.eqsat.facts import instruction_facts, legal_instructions
from selector.eqsat.saturate import engine_for
from selector.eqsat.scopes import open_scope
from selector.eqsat.solve import choose, forget, saturated
from selector.ir.module import Module
from selector.ir.nodes import Allocate, Stmt
from selector.ir.parser import parse_module
from selector.ir.traverse import stmt_children
from selector.operands.accumulators import is_tensor
from selector.operands.movement import annotate_movement
from selector.runtime.nvrtc import compile_to_cubin, version
from selector.targets import find_target

pytestmark = pytest.mark.chains  # they are part of a compilation

MOST_ROWS = 30_000
MOST_SECONDS = 0.060
MOST_SECONDS_OF_ALL = 1.5  # from the scheduled pipeline to machine code, NVRTC included
# Of iterations that begin with the next scores and end with the last values: twice the text.
LONGER = {"attention attention-d128": 1.8}
MOST_SECONDS_OF_PYTHON = 0.6  # of these
MOST_SCOPES = 2  # of a program that is measured as a whole
MOST_SECONDS_OF_A_REPORT = 0.050  # printed after a compilation
MOST_SECONDS_FROM_THE_CACHE = 0.005
ATTEMPTS = 3
MOST_SECONDS_WARM = 0.040
WARM_ATTEMPTS = 24


def programs() -> Iterator[tuple[str, str]]:
    for case in gpu_cases():
        for program in dict.fromkeys(p.program for p in case.benchmark):
            yield f"{case.name} {program}", "sm_90a"
    for layout in LAYOUTS:
        for name in SCHEDULES:
            yield f"amx_matmul {layout} {name}", "amx"


def lowered(program: str, target: str) -> Module:
    """The pipeline scheduled and lowered, from the start each time."""
    name, *rest = program.split()
    if name == "amx_matmul":
        layout, order = rest
        return hb.lower(schedule(multiply(layout=layout), order), target=target)
    case = next(c for c in gpu_cases() if c.name == name)
    problem = next(
        p for p in case.benchmark if rest[0] in (p.program, getattr(p, "variant", p.program))
    )
    return hb.lower(case.scheduled(problem, "tensor", target), target=target)


def outermost(s: Stmt) -> Iterator[Allocate]:
    """The tensor allocations that open a scope; those inside belong to it."""
    if isinstance(s, Allocate) and is_tensor(s):
        yield s
        return
    for child in stmt_children(s):
        yield from outermost(child)


@pytest.mark.parametrize(("program", "target"), list(programs()))
def test_saturation_and_extraction(program: str, target: str) -> None:
    engine = engine_for(instruction_facts(legal_instructions(find_target(target))))
    body = annotate_movement(lowered(program, target).body)
    # Copies of a scope, as unrolling makes them, are solved once (selector.eqsat.solve).
    scopes = dict.fromkeys(open_scope(s).distinct for s in outermost(body))

    def select(some: Iterable[tuple[str, ...]]) -> None:
        for statements in some:
            graph, saturation = saturated(statements, engine)
            terms, _ = choose(graph)
            assert all(terms)
            assert saturation.rows < MOST_ROWS
            assert not saturation.capped

    # A program of several products in a row (dct_denoise: four) is held to the limit product by
    # product, all others as a whole.
    groups = [tuple(scopes)] if len(scopes) <= MOST_SCOPES else [(s,) for s in scopes]
    for group in groups:
        assert_quick(partial(select, group), MOST_SECONDS)


SCHEDULED = ("dct_denoise", "recursive_filter")  # by ``hb.autoschedule``
GPU_PROGRAMS = [program for program, target in programs() if target == "sm_90a"]


@pytest.mark.slow
@pytest.mark.nvrtc
@MACHINE_CODE
@pytest.mark.parametrize("program", GPU_PROGRAMS)
def test_a_whole_compilation(
    program: str, monkeypatch: pytest.MonkeyPatch, verified: Verified
) -> None:
    """As users compile, without checks between the stages; nothing is remembered but the rules and
    what modules keep for themselves. NVRTC takes for a text what it took before. A schedule that
    the compiler makes is there: for that it has compiled more than one.
    """
    monkeypatch.delenv("SELECTOR_CHECK", raising=False)
    source, text = "", str(lowered(program, "sm_90a")) if program.split()[0] in SCHEDULED else ""

    def emitted() -> None:
        nonlocal source
        forget()
        module = parse_module(text) if text else lowered(program, "sm_90a")
        source = selector.compile(module, "sm_90a", cache=False).source

    def compiled() -> None:
        compile_to_cubin(source, "sm_90a", UNCACHED)

    assert_quick(emitted, MOST_SECONDS_OF_PYTHON)
    assert_known(program.split()[1], "sm_90a", source)
    if not verified(source, version()):
        limit = LONGER.get(program, MOST_SECONDS_OF_ALL)
        assert_within(limit, Part(PYTHON, emitted), Part(NVRTC, compiled))


def test_a_warm_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a program whose statements are known, from Halide's loops to CUDA: nothing is searched."""
    monkeypatch.delenv("SELECTOR_CHECK", raising=False)
    text, target = str(lowered("conv1d conv1d-k256", "sm_90a")), find_target("sm_90a")
    modules = iter([parse_module(text) for _ in range(WARM_ATTEMPTS + 1)])

    def compiled() -> None:
        pipeline.run(pipeline.Work(next(modules), target, strict=True), pipeline.Clock())

    compiled()
    assert_quick(compiled, MOST_SECONDS_WARM, WARM_ATTEMPTS)


def largest_of_bytes() -> str:
    """Of the products of bytes, whose schedules are chosen by size."""
    problems = next(c for c in gpu_cases() if c.name == "gemm").benchmark
    bytes_ = [p for p in problems if getattr(p, "variant", "") == "s8-s32"]
    return f"gemm {max(bytes_, key=lambda p: p.m * p.n * p.k).program}"


LARGEST = (
    largest_of_bytes(),
    "attention attention-d128",
    "resample resample-176x192",
    "conv_layer conv_layer-c64-64-32x56x56",
)
"""The largest programs of four case studies, by the length of what is lowered."""


@pytest.mark.slow
@pytest.mark.parametrize("program", LARGEST)
def test_reports_are_printed_without_a_search(
    program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The compilation finds the chains of rules, and leaves them in the cache."""
    monkeypatch.delenv("SELECTOR_CHECK", raising=False)
    monkeypatch.setenv("SELECTOR_CACHE_DIR", str(tmp_path))
    module = lowered(program, "sm_90a")

    def kernels(cache: bool) -> Iterator[selector.Kernel]:
        for _ in range(ATTEMPTS):
            forget()
            yield selector.compile(module, "sm_90a", cache=cache)

    def printed(kernel: selector.Kernel) -> str:
        return str(replace(kernel.report, seconds={}))

    selector.compile(module, "sm_90a")
    compiled, cached = list(kernels(cache=False)), list(kernels(cache=True))
    assert all("cached" in kernel.stages for kernel in cached)
    for made, most in ((compiled, MOST_SECONDS_OF_A_REPORT), (cached, MOST_SECONDS_FROM_THE_CACHE)):
        turns = iter(made)
        assert_quick(lambda turns=turns: printed(next(turns)), most, ATTEMPTS)
    (text,) = {printed(kernel) for kernel in (*compiled, *cached)}
    assert "  rules " in text


@pytest.mark.nvrtc
def test_stages_show_where_the_time_goes() -> None:
    case = next(c for c in gpu_cases() if c.name == "conv1d")
    kernel = hb.compile(case.scheduled(case.small[0], "tensor", "sm_90a"), target="sm_90a")
    assert list(kernel.stages) == ["lower", "verify", "select", "explain", "emit"]
    kernel.cubin()
    assert list(kernel.stages) == ["lower", "verify", "select", "explain", "emit", "cubin"]
    assert all(seconds > 0 for seconds in kernel.stages.values())
    last = str(kernel.report).splitlines()[-1]
    assert re.fullmatch(r"compiled in: lower .* ms, .*emit .* ms, cubin [\d.]+ ms", last)
