"""One kernel for all sizes: a program for each size class, made when a call first needs it."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
import selector
from selector.api import load_bytes
from selector.diagnostics import ArgumentError, ArtifactError, ScheduleError
from selector.runtime.classes import SizeClass, rounded, typical

x, y = hl.Var("x"), hl.Var("y")


def row_sums() -> hl.Func:
    a, out = hl.ImageParam(hl.Float(32), 2, "a"), hl.Func("out")
    out[y] = hl.sum(a[hl.RDom([(0, a.width())]), y])
    return out


def rows(height: int, width: int) -> Any:
    return np.random.default_rng(1).random((height, width), dtype=np.float32)


def compiled(**options: Any) -> Any:
    return hb.compile(row_sums(), target="sm_90a", schedule="auto", **options)


def interpreted(kernel: Any, height: int, width: int) -> bool:
    data = rows(height, width)
    result = kernel.interpret(a=data, sizes=(height,))
    return bool(np.allclose(result, data.sum(1), rtol=1e-5))


def test_powers_of_two_are_near_by_ratio() -> None:
    assert [rounded(n) for n in (0, 1, 2, 3, 5, 6, 181, 182, 1000, 4096)] == [
        1, 1, 2, 4, 4, 8, 128, 256, 1024, 4096,
    ]  # fmt: skip


def test_each_class_has_a_program_and_calls_share_it() -> None:
    kernel = compiled()
    assert isinstance(kernel, selector.SizedKernel)
    assert kernel.size_classes == ()
    programs = {}
    for height, width in [(5, 60), (900, 50), (3, 20), (2, 3000), (1, 4096)]:
        assert interpreted(kernel, height, width)
        programs[width] = kernel.program(a=rows(height, width), sizes=(height,))
    assert [str(c) for c in kernel.size_classes] == ["a: any x 64", "a: any x 16", "a: any x 4096"]
    assert programs[60] is programs[50]
    assert programs[3000] is programs[4096]
    assert programs[60] is programs[20]  # another class, and the same loops
    assert programs[60].source != programs[4096].source
    assert programs[60] is not kernel


@pytest.mark.parametrize(
    ("extent", "made_for"),
    [(0, 1), (1, 1), (3, 3), (7, 7), (9, 9), (14, 14), (49, 49), (56, 56), (196, 196), (200, 192),
     (225, 225), (384, 384), (1000, 1024), (1001, 1025), (1080, 1024), (3840, 4096),
     (63_000, 65_536)],
)  # fmt: skip
def test_schedules_are_made_for_few_sizes(extent: int, made_for: int) -> None:
    """To three significant bits, and as far from where a vector begins."""
    assert typical(extent) == made_for


def test_a_class_is_scheduled_for_the_sizes_that_it_had_first() -> None:
    kernel = compiled(sizes=[{"a": (1, 190)}])
    sources = [
        kernel.program(a=rows(7, 201), sizes=(7,)).source,
        kernel.program(a=rows(7, 300), sizes=(7,)).source,
        compiled().program(a=rows(7, 206), sizes=(7,)).source,
        compiled(sizes={"a": (500, 198)}).source,
    ]
    assert len(set(sources)) == 1
    assert compiled(sizes=[{"a": (1, 300)}]).source == compiled(sizes={"a": (1, 324)}).source


def test_rows_that_begin_anywhere_are_known_to() -> None:
    """A product over rows of 196 elements copies them first, as one of exactly these sizes."""

    def product(sizes: Any) -> str:
        a, b = hl.ImageParam(hl.Float(16), 2, "a"), hl.ImageParam(hl.Float(16), 3, "b")
        c, k, n = hl.Func("c"), hl.RDom([(0, a.width())], "k"), hl.Var("n")
        c[x, y, n] += hl.f32(a[k, y]) * hl.f32(b[x, k, n])
        return hb.compile(c, target="sm_90a", schedule="auto", sizes=sizes).source

    sizes = {"a": (256, 1024), "b": (32, 1024, 196), "c": (32, 256, 196)}
    assert product([sizes]) == product(sizes)
    even = {"a": (256, 1024), "b": (32, 1024, 192), "c": (32, 256, 192)}
    assert product([sizes]) != product([even])


def test_classes_can_be_made_ahead_of_time() -> None:
    kernel = compiled(sizes=[{"a": (500, 100)}, {"a": (2, 30_000)}])
    assert [str(c) for c in kernel.size_classes] == ["a: any x 128", "a: any x 32768"]
    kernel.compile_for({"a": (9, 110)})
    assert len(kernel.size_classes) == 2
    with pytest.raises(ScheduleError, match="sizes lacks the shape of `a`"):
        kernel.compile_for((500,))
    for wrong in ({"b": (5,)}, {"a": (5,)}):
        with pytest.raises(ArgumentError, match="sizes has"):
            kernel.compile_for(wrong)


def test_the_first_sizes_that_are_given_are_those_of_the_kernel() -> None:
    """Nothing is compiled for sizes that nobody has."""
    kernel = compiled(sizes=[{"a": (500, 3000)}, {"a": (500, 100)}])
    assert kernel.source == kernel.program(a=rows(2, 4096), sizes=(2,)).source
    assert kernel.source != compiled().source
    assert interpreted(kernel, 6, 40)


def test_outputs_follow_from_inputs() -> None:
    a, b = hl.ImageParam(hl.Float(16), 2, "a"), hl.ImageParam(hl.Float(16), 2, "b")
    product, k = hl.Func("product"), hl.RDom([(0, a.width())])
    product[x, y] += hl.f32(a[k, y]) * hl.f32(b[x, k])
    sizes = [{"a": (64, 512), "b": (512, 256), "product": (64, 256)}]
    kernel = hb.compile(product, target="sm_90a", schedule="auto", sizes=sizes)
    assert [str(c) for c in kernel.size_classes] == ["a: any x 512, product: 64 x 256"]


def test_a_schedule_that_asks_for_no_size_is_one_program() -> None:
    signal, out = hl.ImageParam(hl.Float(32), 1, "signal"), hl.Func("out")
    out[x] = signal[x] * 2
    kernel = hb.compile(out, target="sm_90a", schedule="auto")
    assert type(kernel) is selector.Kernel


def test_the_pipeline_may_be_scheduled_afterwards() -> None:
    out = row_sums()
    kernel: Any = hb.compile(out, target="sm_90a", schedule="auto")
    hb.autoschedule(out, target="sm_90a")
    hb.store_in(out, hb.MemoryType.WMMAAccumulator)
    assert interpreted(kernel, 6, 40)
    assert len(kernel.size_classes) == 1


def test_calls_that_do_not_fit_make_no_program() -> None:
    kernel = compiled()
    with pytest.raises(ArgumentError, match="expected float32, got float64"):
        kernel.interpret(a=rows(5, 20).astype(np.float64), sizes=(5,))
    with pytest.raises(ArgumentError, match="a: expected an array, got NoneType"):
        kernel.interpret(a=None)
    with pytest.raises(ArgumentError, match="expected 2 axes, got 1"):
        kernel.interpret(a=rows(5, 20)[0], sizes=(5,))
    assert kernel.size_classes == ()


def test_threads_compile_a_class_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, found, made = compiled(), [], []
    compile_ = selector.compile

    def counted(*args: Any, **named: Any) -> Any:
        made.append(threading.get_ident())
        return compile_(*args, **named)

    monkeypatch.setattr(selector, "compile", counted)
    started = threading.Barrier(4)

    def call(width: int) -> None:
        started.wait()
        found.append(kernel.program(a=rows(5, width), sizes=(5,)))

    threads = [threading.Thread(target=call, args=(width,)) for width in (200, 210, 220, 30_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(map(id, found))) == len(made) == 2


@pytest.mark.nvrtc
def test_a_file_holds_all_programs_and_the_nearest_is_taken(tmp_path: Path) -> None:
    kernel = compiled(sizes=[{"a": (500, 100)}, {"a": (2, 4000)}])
    kernel.save(tmp_path / "sums.kernel")
    loaded: Any = selector.load(tmp_path / "sums.kernel")
    assert loaded.size_classes == kernel.size_classes
    assert loaded.to_bytes() == (tmp_path / "sums.kernel").read_bytes()
    assert str(loaded.report) == str(kernel.report)
    assert loaded.compile_for({"a": (500, 64)}) is None
    small, large = (kernel.program(a=rows(2, n), sizes=(2,)).source for n in (100, 4000))
    for width, source in [(3, small), (500, small), (900, large), (10_000, large)]:
        assert loaded.program(a=rows(2, width), sizes=(2,)).source == source
        assert interpreted(loaded, 2, width)


def test_a_pickled_kernel_keeps_its_programs() -> None:
    kernel = compiled(sizes=[{"a": (500, 100)}])
    found = pickle.loads(pickle.dumps(kernel))
    assert found.size_classes == kernel.size_classes
    assert interpreted(found, 4, 70)
    assert interpreted(load_bytes(kernel.to_bytes(machine_code=False)), 4, 70)


@pytest.mark.parametrize("change", [b"0/plan.json", b"1/plan.json"])
def test_a_damaged_file_is_refused(change: bytes) -> None:
    data = compiled(sizes=[{"a": (500, 100)}]).to_bytes(machine_code=False)
    for wrong in (change.replace(b"/", b"+"), b"9" + change[1:]):
        with pytest.raises(ArtifactError, match="is damaged"):
            load_bytes(data.replace(change, wrong))


def test_how_far_a_class_is() -> None:
    near = SizeClass((("a", (None, 256)), ("out", (16,))))
    assert near.holds({"a": (9, 300), "out": (15,)})
    assert not near.holds({"a": (9, 300), "out": (32,)})
    assert near.away({"a": (9, 512), "out": (8,)}) == 2
    assert str(near) == "a: any x 256, out: 16"
