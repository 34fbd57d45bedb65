"""What a user meets who calls ``autoschedule``: parts that are scheduled, second calls, targets,
names, and what the report says.
"""

from __future__ import annotations

import halide as hl
import numpy as np
import pytest

import halide_bridge as hb
from halide_bridge.schedules.places import Scheduling
from selector.diagnostics import InternalError, ScheduleError, UserError

x, y = hl.Var("x"), hl.Var("y")


def blurred(name: str = "out") -> tuple[hl.Func, hl.Func]:
    image = hl.ImageParam(hl.Float(32), 2, "image")
    rows, out = hl.Func("rows"), hl.Func(name)
    rows[x, y] = image[x, y] + image[x + 1, y]
    out[x, y] = rows[x, y] + rows[x, y + 1]
    return rows, out


def interpreted(out: hl.Func, target: str = "sm_80") -> bool:
    image = np.random.default_rng(0).random((42, 60), dtype=np.float32)
    result = hb.compile(out, target=target).interpret(image=image, sizes=(41, 59))
    wide = image[:, :-1] + image[:, 1:]
    return bool(np.allclose(result, wide[:-1] + wide[1:]))


def test_twice_is_an_error_that_says_where_the_first_was() -> None:
    _, out = blurred()
    hb.autoschedule(out, target="sm_80")
    with pytest.raises(ScheduleError, match=r"`out` has been scheduled already") as caught:
        hb.autoschedule(out, target="sm_80")
    assert "test_autoschedule.py:" in str(caught.value)
    assert interpreted(out)


def test_what_a_user_scheduled_stays() -> None:
    rows, out = blurred()
    xi, yi = hl.Var("a"), hl.Var("b")
    rows.compute_root().gpu_tile(x, y, xi, yi, 16, 16)
    schedule = hb.autoschedule(out, target="sm_80")
    assert "rows: as scheduled by you" in schedule.report
    assert "rows" not in schedule.source
    assert hb.compile(out, target="sm_80").source.count("__global__") == 2
    assert interpreted(out)


def test_a_func_at_whose_loops_another_is_computed_stays_as_it_is() -> None:
    rows, out = blurred()
    rows.compute_at(out, x)
    schedule = hb.autoschedule(out, target="sm_80")
    assert "out: as scheduled by you" in schedule.report
    with pytest.raises(ScheduleError, match=r"no GPU loops|on the host"):
        hb.compile(out, target="sm_80")


def test_new_variables_have_names_that_the_pipeline_does_not_use() -> None:
    xo, yi = hl.Var("xo"), hl.Var("yi")
    image, out = hl.ImageParam(hl.Float(32), 2, "image"), hl.Func("out")
    out[xo, yi] = image[xo, yi] * 2
    schedule = hb.autoschedule(out, target="sm_80")
    assert 'hl.Var("xo_")' in schedule.source
    data = np.random.default_rng(0).random((13, 70), dtype=np.float32)
    result = hb.compile(out, target="sm_80").interpret(image=data, sizes=data.shape)
    assert np.array_equal(result, data * 2)


def test_funcs_of_one_name_are_told_apart() -> None:
    image = hl.ImageParam(hl.Float(32), 2, "image")
    total = hl.f32(0)
    for k in (2, 5):
        r = hl.RDom([(0, k)])
        total = total + hl.sum(image[x + r, y])
    out = hl.Func("out")
    out[x, y] = total
    assert {"sum", "sum$1"} <= set(hb.funcs(out))
    schedule = hb.autoschedule(out, target="sm_80")
    data = np.random.default_rng(0).random((9, 40), dtype=np.float32)
    result = hb.compile(out, target="sm_80").interpret(image=data, sizes=(9, 36))
    sums = [sum(data[:, i : i + 36] for i in range(k)) for k in (2, 5)]
    assert np.allclose(result, sums[0] + sums[1]), schedule.source


def test_what_is_no_output_is_refused() -> None:
    with pytest.raises(ScheduleError, match="is an ImageParam"):
        hb.autoschedule(hl.ImageParam(hl.Float(32), 2, "image"))
    with pytest.raises(ScheduleError, match="has no definition"):
        hb.autoschedule(hl.Func("empty"))


def test_handles_by_name_reach_every_func() -> None:
    rows, out = blurred()
    found = hb.funcs(out)
    assert list(found)[-2:] == ["rows", "out"]
    found["rows"].compute_root()
    assert "rows: as scheduled by you" in hb.autoschedule(out, target="sm_80").report
    del rows


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 257, 1025])
def test_sizes_around_a_block(size: int) -> None:
    a, out = hl.ImageParam(hl.Float(32), 1, "a"), hl.Func("out")
    total, r = hl.Func("total"), hl.RDom(a)
    total[()] = hl.f32(0)
    total[()] += a[r]
    out[x] = a[x] - total[()]
    hb.autoschedule(out, target="sm_80")
    data = np.random.default_rng(0).random(size, dtype=np.float32)
    result = hb.compile(out, target="sm_80").interpret(a=data, sizes=(size,))
    assert np.allclose(result, data - data.sum(), rtol=1e-4)


def test_compile_schedules_a_copy() -> None:
    _, out = blurred()
    image = np.random.default_rng(0).random((42, 60), dtype=np.float32)
    for target in ("sm_80", "sm_90a"):
        kernel = hb.compile(out, target=target, schedule="auto")
        result = kernel.interpret(image=image, sizes=(41, 59))
        wide = image[:, :-1] + image[:, 1:]
        assert np.allclose(result, wide[:-1] + wide[1:])
    with pytest.raises(ScheduleError, match=r"no GPU loops|on the host"):
        hb.compile(out, target="sm_80")
    hb.autoschedule(out, target="sm_80")
    with pytest.raises(ScheduleError, match="has been scheduled already"):
        hb.compile(out, target="sm_80", schedule="auto")
    with pytest.raises(ScheduleError, match="schedule is 'auto' or nothing"):
        hb.compile(out, target="sm_80", schedule="fast")


def test_compile_schedules_for_sizes() -> None:
    a, out = hl.ImageParam(hl.Float(32), 2, "a"), hl.Func("out")
    out[y] = hl.sum(a[hl.RDom([(0, a.width())]), y])
    sources = {
        hb.compile(out, target="sm_90a", schedule="auto", sizes={"a": (500, n)}).source
        for n in (100, 20_000)
    }
    assert len(sources) == 2
    with pytest.raises(ScheduleError, match="sizes choose a schedule"):
        hb.compile(out, target="sm_90a", sizes={"a": (500, 100)})
    with pytest.raises(ScheduleError, match="`b`"):
        hb.compile(out, target="sm_90a", schedule="auto", sizes={"b": (500, 100)})


def test_requirements_of_a_pipeline_hold_for_its_copy() -> None:
    image, out = hl.ImageParam(hl.Float(32), 2, "image"), hl.Func("out")
    out[x, y] = image[x, y] * 2
    pipeline = hl.Pipeline([out])
    pipeline.add_requirement(image.width() > 3)
    kernel = hb.compile(pipeline, target="sm_80", schedule="auto")
    with pytest.raises(UserError):
        kernel.interpret(image=np.zeros((4, 2), np.float32), sizes=(4, 2))


def test_what_halide_refuses_of_a_chosen_schedule_is_a_defect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(scheduling: Scheduling) -> None:
        out = scheduling.program.members[scheduling.program.outputs[0]].handle
        out.split(hl.Var("none"), hl.Var("o"), hl.Var("i"), 8)

    monkeypatch.setattr(Scheduling, "run", refused)
    with pytest.raises(InternalError, match="Halide refuses the schedule that was chosen"):
        hb.autoschedule(blurred()[1], target="sm_90a")
    with pytest.raises(InternalError, match="a schedule of yours"):
        hb.compile(blurred()[1], target="sm_90a", schedule="auto", sizes=(8, 8))
