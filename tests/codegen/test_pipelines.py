"""Pipelines are written by ``codegen.pipelines`` alone: its verbs as nodes; who makes barriers."""

from __future__ import annotations

import ast
from pathlib import Path

from selector.gpu.codegen.arrangement import Arrangement
from selector.gpu.codegen.context import HostValues, Indices, KernelContext
from selector.gpu.codegen.pipelines.pipeline import Pipeline
from selector.gpu.codegen.scalars.names import Names
from selector.gpu.codegen.shared_memory import Layouts, SharedMemory
from selector.gpu.cuda.printer import print_body
from selector.gpu.ir.expressions import THREAD, equal, minus, number
from selector.targets import find_target

CODEGEN = Path(__file__).resolve().parents[2] / "selector" / "gpu" / "codegen"
BARRIERS = {
    "pipelines/pipeline.py",
    "warpgroups/persistent.py",
}  # teams take turns at barriers, without stages


def context() -> KernelContext:
    target, layouts = find_target("sm_90a"), Layouts()
    memory = SharedMemory("f", target, layouts)
    return KernelContext("f", target, Names(), Arrangement(), Indices(), HostValues(), memory)


def lines(pipeline: Pipeline) -> list[str]:
    return [x.strip() for x in print_body(pipeline.context.writer.body()).splitlines()]


def test_who_fills_and_who_reads() -> None:
    p = Pipeline(context(), stages=4)
    p.make(equal(THREAD, 0), number(2), number(8), then=p.announce)
    p.begin()
    p.acquire("next", minus("round", 1))
    p.expect(4096, "next")
    p.wait()
    p.release()
    p.advance()
    assert lines(p) == [
        "const u32 full = shared_address(smem + 0);",
        "const u32 free_ = full + 32;",
        "if (threadIdx.x == 0) {",
        "for (int i = 0; i < 4; ++i) {",
        "barrier_init(full + 8 * i, 2);",
        "barrier_init(free_ + 8 * i, 8);",
        "}",
        "barriers_made();",
        "}",
        "int slot = 0, round = 0;",
        "barrier_await(free_ + 8 * next, (round - 1) & 1);",
        "barrier_expect(full + 8 * next, 4096);",
        "barrier_await(full + 8 * slot, round & 1);",
        "barrier_arrive(free_ + 8 * slot);",
        "if (++slot == 4) { slot = 0; ++round; }",
    ]
    assert p.context.shared.bytes == 64


def test_one_stage_has_no_number() -> None:
    p = Pipeline(context(), 1, full="tile_full", free="tile_free", slot="", phase="tiles")
    p.make(equal(THREAD, 0), number(1), number(2), "barriers of tiles")
    p.wait()
    p.commit_stores()
    assert lines(p)[2:] == [
        "if (threadIdx.x == 0) {",
        "barrier_init(tile_full, 1);",
        "barrier_init(tile_free, 2);",
        "}",
        "barrier_await(tile_full, tiles & 1);",
        "copy_commit();",
        "copy_wait<0>();",
        "async_fence();",
        "barrier_arrive(tile_full);",
    ]


def test_parts_and_stages_that_nobody_frees() -> None:
    parts = Pipeline(context(), 2, parts=3)
    parts.retire(equal(THREAD, 0))
    assert "for (int i = 0; i < 12; ++i) barrier_end(full + 8 * i);" in lines(parts)
    alone = Pipeline(context(), 3, free="")
    alone.make(equal(THREAD, 0), number(1), number(1))
    assert not any("free" in line for line in lines(alone))
    assert alone.context.shared.bytes == 48  # the place of others that have both


def test_nobody_else_makes_barriers() -> None:
    found = set[str]()
    for path in CODEGEN.rglob("*.py"):
        called = {n.func for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)}
        names = {f.id for f in called if isinstance(f, ast.Name)}
        names |= {f.attr for f in called if isinstance(f, ast.Attribute)}
        if names & {"Init", "Retire"}:
            found.add(path.relative_to(CODEGEN).as_posix())
    assert found == BARRIERS
