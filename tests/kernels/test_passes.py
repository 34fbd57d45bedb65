"""Passes over the kernel IR: what each makes of a kernel, and how they run one after the other."""

from __future__ import annotations

import pytest

from selector.diagnostics import InternalError, ScheduleError
from selector.gpu import passes
from selector.gpu.ir.builder import Builder
from selector.gpu.ir.expressions import (
    FIRST_OF_GROUP,
    THREAD,
    barrier,
    equal,
    flag,
    number,
    pointer,
)
from selector.gpu.ir.layouts import in_bytes
from selector.gpu.ir.memory import Evaluate, Point, Prefetch, StoreRows
from selector.gpu.ir.mentioned import mentioned
from selector.gpu.ir.nodes import (
    Arrive,
    Await,
    Body,
    Fused,
    If,
    Kernel,
    Let,
    Memory,
    Number,
    Raw,
    ResetArrivals,
    Sync,
    Under,
)
from selector.gpu.ir.parameters import Parameter
from selector.gpu.ir.products import LoadFragment
from selector.gpu.ir.views import View
from selector.gpu.passes.bound_waits import ARRIVALS_BYTES, bound_waits
from selector.gpu.passes.keep_used import keep_used
from selector.ir.nodes import Call
from selector.ir.types import INT32

ROOM = 1 << 16


def kernel(*body: object, declarations: Body = (), parameters: tuple[str, ...] = ()) -> Kernel:
    w = Builder()
    for node in body:
        w.add(node)  # type: ignore[arg-type]
    given = tuple(Parameter("value", INT32, name) for name in parameters)
    return Kernel("k", 256, 1, given, declarations, w.body(), shared=1024, alignment=128)


# ------------------------------------------------------------------ names


def test_names_are_found_wherever_a_node_has_them() -> None:
    called = Call(INT32, "f", (number("argument"),))
    loop = Builder()
    with loop.loop("i", number("start"), number("stop"), step=number("step"), also=flag("also")):
        loop.add(Point("p", "float", View("array", number("first"), index=number("further"))))
    assert mentioned((Evaluate(called), *loop.body())) == {
        "argument", "start", "stop", "step", "also", "array", "first", "further",
    }  # fmt: skip
    rows = StoreRows(View("to"), View("box"), 128, number(1), number("rows"), number(3))
    assert mentioned((rows, Prefetch("map"))) == {"lane", "to", "box", "rows", "map"}
    assert {"base", "x"} <= mentioned((LoadFragment(("r",), "elements", "base", 0, ("x[0]",)),))


def test_text_mentions_its_words_and_numbers_what_they_are_made_of() -> None:
    numbers = (Number("known.0", number("a"), "(b + 1)"), Number("known.1", number("c"), "d"))
    assert mentioned((Raw(("x = y;",)), Under("if (z)", ()))) == {"x", "y", "if", "z"}
    assert mentioned((*numbers, Arrive(number("known.0")))) == {"known.0", "b", "1"}


# ------------------------------------------------------------------ keep_used


def test_what_nobody_mentions_goes() -> None:
    declarations = (
        Let("int", ("lane", "q"), (THREAD, number("lane"))),
        Let("int", ("warp",), (THREAD,)),
        Let("int", ("quotient",), (number("size"),)),
        Let("bool", ("aligned",), (equal("stride", 0),)),
        If(flag("ready"), (Prefetch("map"),)),
    )
    before = kernel(
        If(flag("aligned"), (Arrive(number("q")),)),
        declarations=declarations,
        parameters=("size", "stride", "other", "ready", "map"),
    )
    after = keep_used(before)
    assert after.declarations == (declarations[0], *declarations[3:])
    assert [p.name for p in after.parameters] == ["stride", "ready", "map"]
    assert after.body == before.body
    assert keep_used(after) == after


def test_a_number_keeps_what_its_text_mentions() -> None:
    known = Number("known.0", number("size"), "quotient")
    declared = (known, Let("int", ("quotient",), (number("size"),)))
    used, unused = (
        keep_used(kernel(Arrive(number(name)), declarations=declared, parameters=("size",)))
        for name in ("known.0", "other")
    )
    assert used.declarations == declared
    assert [p.name for p in used.parameters] == ["size"]
    assert unused.declarations == (known,)
    assert unused.parameters == ()


# ------------------------------------------------------------------ bound_waits


def bounded(before: Kernel, patience: float | None = 0.5, room: int = ROOM) -> Kernel:
    return bound_waits(before, name="conv", shared_memory=room, patience=patience)


def test_without_patience_a_kernel_stays() -> None:
    before = kernel(Sync("block"), Await("asleep", number("full"), number("round")))
    assert bounded(before, None) is before


def test_each_wait_for_threads_has_a_bound() -> None:
    wait = Await("asleep", number("full"), number("round"))
    inner = Sync("named", number(1), 128, "those")
    after = bounded(kernel(Sync("block", note="all"), If(flag("a"), (wait,), (inner,))))
    limit = 500_000_000
    assert after.body == (
        Sync("named", number(0), 256, "all", limit),
        If(
            flag("a"),
            (Await("asleep", number("full"), number("round"), limit),),
            (Sync("named", number(1), 128, "those", limit),),
        ),
    )
    assert after.declarations == (ResetArrivals(),)
    assert after.shared == 1024 + ARRIVALS_BYTES


def test_other_waits_are_not_counted() -> None:
    before = kernel(Sync("warp"), Sync("cluster"), Await("asleep", number("full"), number(0)))
    after = bounded(before)
    assert after.body[:2] == before.body[:2]
    assert after.declarations == ()
    assert after.shared == before.shared


def test_what_a_statement_waits_for_is_awaited_before_it() -> None:
    waits = tuple(Await("asleep", barrier("ready", n), number("round")) for n in range(2))
    told = If(FIRST_OF_GROUP, (Arrive(number("passed")),))
    fused = Fused((waits[0], told, waits[1]))
    after = bounded(kernel(fused))
    before = tuple(Await("asleep", x.barrier, x.phase, 500_000_000) for x in waits)
    assert after.body == (*before, fused)


def test_no_room_for_counts_is_refused() -> None:
    assert bounded(kernel(Sync("block")), room=1024 + ARRIVALS_BYTES).shared == 1152
    with pytest.raises(ScheduleError, match="the kernel of `conv` has no room to count"):
        bounded(kernel(Sync("block")), room=1024 + ARRIVALS_BYTES - 1)


# ------------------------------------------------------------------ the list


def test_passes_run_in_order_each_over_all_kernels() -> None:
    told: list[tuple[str, int, set[str]]] = []

    def watch(name: str, kernels: tuple[Kernel, ...]) -> None:
        told.append((name, len(kernels), {p.name for k in kernels for p in k.parameters}))

    written = [kernel(Arrive(pointer("a")), parameters=(n, "b")) for n in ("a", "c")]
    options = passes.Options("f", ROOM)
    after = passes.run_passes([(k, options) for k in written], watch)
    assert [name for name, _, _ in told] == ["written", *(p.name for p in passes.PASSES)]
    assert told[0][1:] == (2, {"a", "b", "c"})
    assert told[-1][1:] == (2, {"a"})
    assert [len(k.parameters) for k in after] == [1, 0]


def test_a_pass_that_breaks_a_kernel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(before: Kernel) -> Kernel:
        memory = Memory("m", "float", 0, 1, 16, (8,), in_bytes((4,)))
        return Kernel(before.name, 32, 1, (), (), (memory,))

    monkeypatch.setenv("SELECTOR_CHECK", "1")
    monkeypatch.setattr(passes, "PASSES", (passes.Pass("broken", broken),))
    with pytest.raises(InternalError, match="after broken, k: `m`: an element lies at byte"):
        passes.run_passes([(kernel(), passes.Options("f", ROOM))])
