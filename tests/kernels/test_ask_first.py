"""The copy engine brings the first stages of a pipeline while threads copy what lies beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import halide_bridge as hb
from casestudies.common.registry import find_case
from casestudies.plain.attention import Problem
from selector.gpu.codegen.program import emit_kernels
from selector.gpu.ir.expressions import address
from selector.gpu.ir.memory import CopyAsync, EngineCopy
from selector.gpu.ir.nodes import Body, Kernel, Let, Local, Memory, Node, Sync, walk
from selector.gpu.passes import Trace
from selector.gpu.passes.ask_first import ask_first
from selector.gpu.passes.rebuilt import rebuilt_bodies
from selector.targets import find_target

TARGET = "sm_90a"


def decode() -> Any:
    """One query for each of some heads that share their keys, in parts of the keys."""
    problem = Problem(heads=32, length=1, depth=128, sharing=4, keys=8192, types="f16-f16")
    plain = find_case("plain.attention").plain
    assert plain is not None
    out = plain(problem)
    sizes = {x.name: x.shape for x in (*problem.inputs, problem.output)}
    hb.autoschedule(out, target=TARGET, sizes=sizes)
    return hb.compile(out, target=TARGET, name="decode")


@pytest.fixture(scope="module", name="kernel")
def make_kernel() -> Any:
    return decode()


def before(kernel: Any) -> Kernel:
    """Its first kernel as the pass is given it."""
    trace = Trace()
    emit_kernels(kernel.module, find_target(TARGET), None, trace.add)
    stages = dict(trace.kernels)
    return stages["fetch_early"][0]


def places(body: Body, kinds: type) -> list[int]:
    return [n for n, node in enumerate(walk(body)) if isinstance(node, kinds)]


def test_stages_are_asked_for_before_threads_copy(kernel: Any) -> None:
    written = before(kernel)
    assert places(written.body, CopyAsync)[0] < places(written.body, EngineCopy)[0]
    found = ask_first(written)
    assert places(found.body, EngineCopy)[0] < places(found.body, CopyAsync)[0]
    assert places(found.body, CopyAsync)[0] < places(found.body, Sync)[0]
    same = [type(x) for x in walk(found.body) if not isinstance(x, Local)]
    assert sorted(map(str, same)) == sorted(
        str(type(x)) for x in walk(written.body) if not isinstance(x, Local)
    )


def test_once_is_enough(kernel: Any) -> None:
    once = ask_first(before(kernel))
    assert ask_first(once) is once


@pytest.mark.parametrize("waits", [False, True])
def test_what_is_read_in_between_stays(kernel: Any, *, waits: bool) -> None:
    """A node between the copy and the pipeline that mentions what is copied keeps it there, and one
    that waits.
    """
    written = before(kernel)
    (memory, *_) = (x.name for x in walk(written.body) if isinstance(x, Memory))

    def reading(body: Body) -> Body:
        at = next((n for n, x in enumerate(body) if _copies(x)), None)
        read = Sync("block") if waits else Let("u32", ("seen",), (address(memory),))
        return body if at is None else (*body[: at + 1], read, *body[at + 1 :])

    changed = replace(written, body=rebuilt_bodies(written.body, reading))
    assert changed.body != written.body
    assert ask_first(changed) is changed


def _copies(node: Node) -> bool:
    made = {type(x) for x in walk((node,))}
    return isinstance(node, Local) and CopyAsync in made and EngineCopy not in made
