"""What epilogues read of inputs is asked for before the products, as far as registers last; rings
of one turn have their loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import halide as hl
import numpy as np
import pytest
from emulation import check
from verified import EMULATED

import halide_bridge as hb
from selector.gpu.codegen.program import emit_kernels
from selector.gpu.ir.memory import Array, EngineStore
from selector.gpu.ir.nodes import Body, For, If, Kernel, Leave, Node, walk
from selector.gpu.ir.products import Mma
from selector.gpu.passes import Trace
from selector.gpu.passes.fetch_early import fetch_early
from selector.gpu.passes.rebuilt import rebuilt
from selector.runtime import nvrtc
from selector.simulate import simulate
from selector.targets import find_target

TARGET = "sm_90a"
F16 = hl.Float(16)
SHARED = 232_448  # bytes of an H100's multiprocessor
n, m = hl.Var("n"), hl.Var("m")
Size = tuple[int, int, int]  # rows, columns, depth
SMALL: Size = (1024, 512, 128)
MANY: Size = (25088, 256, 64)  # tiles, of blocks that stay
ONE_TURN: Size = (3136, 256, 64)  # of blocks that do not
WIDE: Size = (1576, 768, 768)  # blocks of 160 columns, five strips


def added(size: Size, about: Size) -> Any:
    """A product and a matrix beside it, of declared sizes, scheduled as for others."""
    rows, columns, depth = size
    a, b, rest = (hl.ImageParam(F16, 2, name) for name in ("a", "b", "rest"))
    for image, extents in ((a, (depth, rows)), (b, (depth, columns)), (rest, (columns, rows))):
        for d, extent in enumerate(extents):
            image.dim(d).set_bounds(0, extent)
    k = hl.RDom([(0, depth)], "k")
    product, out = hl.Func("product"), hl.Func("out")
    product[n, m] += hl.f32(a[k, m]) * hl.f32(b[k, n])
    out[n, m] = hl.cast(F16, product[n, m] + hl.f32(rest[n, m]))
    rows, columns, depth = about
    sizes = {"out": (rows, columns), "a": (rows, depth), "b": (columns, depth)}
    hb.autoschedule(out, target=TARGET, sizes=sizes)
    return hb.compile(out, target=TARGET, name="added")


def kernels_of(kernel: Any) -> tuple[Kernel, Kernel]:
    """As it is written, and with its fetches."""
    trace = Trace()
    emit_kernels(kernel.module, find_target(TARGET), None, trace.add)
    return trace.kernels["written"][0], trace.kernels["fetch_early"][0]


def order(kernel: Kernel) -> Iterator[str]:
    """What is fetched and the products, as they stand."""
    for node in walk(kernel.body):
        match node:
            case Array(name) if name.startswith("rest"):
                yield "fetch"
            case Mma():
                yield "product"
            case _:
                pass


@pytest.mark.parametrize("about", [SMALL, MANY, ONE_TURN, (1568, 1024, 256)])
def test_fetches_come_before_products(about: Size) -> None:
    written, early = kernels_of(added(about, about))
    assert list(order(written))[-1] == "fetch"
    assert next(order(early)) == "fetch"
    assert sorted(order(written)) == sorted(order(early))


def test_strips_leave_by_boxes_of_one_size() -> None:
    """Of 64 x 160 all five strips of 32 columns do; what they read comes before the products."""
    _, early = kernels_of(added(WIDE, WIDE))
    assert [*order(early)].count("fetch") == 5
    assert next(order(early)) == "fetch"
    assert [*order(early)][-1] == "product"
    assert sum(isinstance(x, EngineStore) for x in walk(early.body)) == 5


def test_without_registers_all_stays() -> None:
    written, _ = kernels_of(added(SMALL, SMALL))
    # A block of so many warps leaves a thread 40 registers.
    found = fetch_early(replace(written, threads=1536), resident=1, shared_memory=SHARED)
    assert found.body == written.body


def test_what_the_kernel_writes_is_not_read_before() -> None:
    """Nothing of an array that launches pass to each other goes anywhere."""
    written, early = kernels_of(added(SMALL, SMALL))
    passed = tuple(replace(p, way="pass") if p.name == "rest" else p for p in written.parameters)
    found = fetch_early(replace(written, parameters=passed), resident=1, shared_memory=SHARED)
    assert early.body != written.body
    assert found.body == written.body


def test_threads_that_do_not_multiply_do_not_store_what_nobody_fetched() -> None:
    """Nothing is fetched on one way only, where the other comes to the stores as well."""
    written, early = kernels_of(added((1568, 1024, 256), (1568, 1024, 256)))

    def going_on(node: Node) -> Body:
        match node:
            case If(_, (*then, Leave("kernel")), otherwise) if otherwise:
                return (replace(node, then=tuple(then)),)
            case _:
                return (node,)

    open_ = replace(written, body=rebuilt(written.body, going_on))
    assert early.body != written.body
    assert open_.body != written.body
    assert fetch_early(open_, resident=1, shared_memory=SHARED).body == open_.body


@EMULATED
@pytest.mark.parametrize(
    ("size", "about"),
    [
        ((150, 256, 64), MANY), ((70, 75, 64), MANY), ((150, 264, 200), SMALL),
        ((150, 256, 64), ONE_TURN), ((70, 75, 64), ONE_TURN), ((150, 264, 200), WIDE),
    ],
)  # fmt: skip
def test_right_with_one_turn_and_several(size: Size, about: Size) -> None:
    """There is a ring though 64 are one turn."""
    rows, columns, depth = size
    random = np.random.default_rng(7)
    shapes = {"a": (rows, depth), "b": (columns, depth), "rest": (rows, columns)}
    arrays = {x: random.standard_normal(s).astype(np.float16) for x, s in shapes.items()}
    kernel = added(size, about)
    wanted = arrays["a"].astype(float) @ arrays["b"].astype(float).T + arrays["rest"]
    kernels, plan = emit_kernels(kernel.module, find_target(TARGET))
    found = [kernel.interpret(**arrays, sizes=(rows, columns))]
    for flags in (True, False):
        run = simulate(kernels, plan, arrays, (rows, columns), flags=flags)
        assert run.faults == ()
        found.append(next(iter(run.outputs.values())))
    found.append(check(kernel, **arrays, sizes=(rows, columns)))
    for result in found:
        error = np.linalg.norm(np.asarray(result, float) - wanted)
        assert error <= 1e-3 * np.linalg.norm(wanted)


@pytest.mark.parametrize("about", [MANY, ONE_TURN])
def test_groups_with_one_turn_have_a_ring(about: Size) -> None:
    written, _ = kernels_of(added(about, about))
    assert any(isinstance(x, For) and x.var.endswith("_turn") for x in walk(written.body))


@pytest.mark.nvrtc
@pytest.mark.parametrize(("about", "most"), [(MANY, 0), (SMALL, 0), ((1568, 1024, 256), 2)])
def test_hardly_anything_spills(about: Size, most: int) -> None:
    """Of tiles of 64 x 128 two blocks have 128 registers a thread, half of them sums: one number
    goes to memory and back.
    """
    source = added(about, about).source
    (usage,) = nvrtc.resource_usage(nvrtc.compile_to_cubin(source, TARGET)).values()
    assert usage.local_accesses <= most
