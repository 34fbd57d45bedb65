"""Saved kernels are measured task by task, and what goes wrong costs its own task alone.

CuPy is NumPy here (``fake_gpu``), and kernels are for the CPU.
"""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import halide_bridge as hb
from casestudies.cli import main
from casestudies.common import runner
from casestudies.common.registry import find_case
from casestudies.conv1d.problem import Problem as Conv1d
from casestudies.measuring import artifacts
from casestudies.measuring.live import bench
from casestudies.measuring.measure import Row
from casestudies.measuring.record import Record, ratios, speed_ups
from casestudies.measuring.tasks import Choice, Task, tasks_of, variants
from casestudies.measuring.worker import supervise
from selector.diagnostics import UserError
from selector.tuning.rounds import Ratio
from selector.tuning.timing import Timing

pytestmark = pytest.mark.verified

FAKE = Path(__file__).parent / "fake_gpu"
SMALL, TIMED = Conv1d(67, 3, 24), Conv1d(130, 20, 24)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel of conv1d for the CPU, as a GPU machine would find one."""
    folder = tmp_path_factory.mktemp("artifacts")
    kernel = hb.compile(find_case("conv1d").build(SMALL, "plain"), target="amx")
    kernel.save(folder / "good.kernel")
    for copy in ("broken", "other"):
        kernel.save(folder / f"{copy}.kernel")
    (folder / "bad.kernel").write_bytes(b"no kernel")
    return folder


@pytest.fixture(autouse=True)
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(FAKE))


def task(file: str, problem: Conv1d = TIMED, **fields: Any) -> Task:
    return Task("conv1d", dataclasses.asdict(problem), (("tensor", file),), **fields)


def measured(tasks: list[Task], folder: Path, **options: Any) -> Record:
    record = Record(folder / "results.json", 1)
    supervise(tasks, folder, 1, record, **options)
    return record


def test_tasks_are_checked_and_timed(folder: Path, capsys: Any) -> None:
    record = measured([task("good.kernel", SMALL, timed=False), task("good.kernel")], folder)
    checked, timed = record.rows
    assert (checked.problem, timed.problem) == (SMALL.name, TIMED.name)
    assert checked.timing is None
    assert checked.passed
    assert timed.passed
    assert timed.error is not None
    assert timed.error < 1e-6
    assert timed.timing is not None
    assert timed.timing.median > 0
    assert timed.limit is not None
    assert timed.bound == "memory"
    printed = capsys.readouterr().out
    assert printed.count(TIMED.name) == 1
    data = json.loads((folder / "results.json").read_text())
    assert data["device"] == "NVIDIA H200 (fake)"
    assert data["ceilings"]["terabytes_per_second"] == 4.23
    assert [row["problem"] for row in data["rows"]] == [SMALL.name, TIMED.name]
    assert TIMED.name in speed_ups(record.rows)


def test_a_kernel_that_cannot_be_read_is_a_row(folder: Path) -> None:
    record = measured([task("bad.kernel"), task("missing.kernel"), task("good.kernel")], folder)
    assert [row.passed for row in record.rows] == [False, False, True]
    assert "ArtifactError" in record.rows[0].failure


@pytest.mark.parametrize(
    ("case", "fields", "message"),
    [
        ("conv1d", {"size": 5}, "TypeError"),
        ("conv1d", {"width": 0, "height": 1, "taps": 3}, "leave an output of 0 x 1 pixels"),
        ("conv9d", {}, "no case study"),
    ],
)
def test_a_problem_that_cannot_be_made_is_a_row_not_the_end(
    case: str, fields: dict[str, Any], message: str, folder: Path
) -> None:
    none = Task(case, fields, (("mine", "good.kernel"),))
    bad, good = measured([none, task("good.kernel")], folder).rows
    assert (bad.case, bad.contender, bad.passed) == (case, "mine", False)
    assert message in bad.failure
    assert good.passed


def test_a_program_that_did_not_compile_is_a_row(folder: Path) -> None:
    missing = dataclasses.replace(task("x"), kernels=())
    (row,) = measured([missing], folder).rows
    assert "did not compile" in row.failure


def worker(folder: Path, body: str) -> tuple[str, ...]:
    """A worker in which something goes wrong with the kernel that is called broken."""
    path = folder / "worker.py"
    path.write_text(
        textwrap.dedent(
            """
            import inspect, os, sys, time
            import cupy
            from casestudies.measuring import tasks, worker
            original = tasks.kernel_contender
            def contender(kernel, name):
                found = original(kernel, name)
                if name != "broken":
                    return found
                def bind(inputs, output):
                    run = found.bind(inputs, output)
                    def call():
                        BODY
                    return call
                return type(found)(found.name, found.note, bind)
            tasks.kernel_contender = contender
            sys.exit(worker.main())
            """
        ).replace("BODY", body)
    )
    return (sys.executable, str(path))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("os._exit(7)", "code 7"),
        ("cupy.cuda.Device.lost = True", "cudaErrorIllegalAddress"),
        ("time.sleep(600)", "no answer"),
        ("raise ValueError('odd')", "ValueError: odd"),
        ("pass", ""),
    ],
)
def test_a_lost_task_is_a_row_not_the_end(body: str, message: str, folder: Path) -> None:
    broken = dataclasses.replace(task("good.kernel"), kernels=(("broken", "broken.kernel"),))
    patience = 15 if "sleep" in body else 120  # a worker on a busy machine takes seconds to start
    found = measured(
        [task("good.kernel", SMALL), broken, task("good.kernel")], folder,
        command=worker(folder, body), patience=patience,
    ).rows  # fmt: skip
    assert [row.contender for row in found if row.passed] == ["tensor", "tensor"]
    (bad,) = (row for row in found if not row.passed)
    assert bad.contender == "broken"
    assert message in bad.failure


def test_the_others_of_a_lost_task_are_measured_and_its_kernel_is_not_tried_again(
    folder: Path,
) -> None:
    both = (("broken", "broken.kernel"), ("tensor", "other.kernel"))
    tasks = [dataclasses.replace(task("x", p), kernels=both) for p in (SMALL, TIMED)]
    found = measured(tasks, folder, command=worker(folder, "os._exit(7)")).rows
    assert [(row.problem, row.contender) for row in found if row.passed] == [
        (SMALL.name, "tensor"), (TIMED.name, "tensor")
    ]  # fmt: skip
    lost = {row.problem: row.failure for row in found if not row.passed}
    assert "code 7" in lost[SMALL.name]
    assert "lost at another size" in lost[TIMED.name]
    assert len(found) == 4


def test_one_that_is_lost_in_its_turn_costs_the_others_nothing(folder: Path) -> None:
    """It was right and ready, and ends the process while all are timed: the others, whose times
    were not known yet, are measured anew.
    """
    names = (("tensor", "other"), ("broken", "broken"), ("last", "good"))
    three = tuple((name, f"{file}.kernel") for name, file in names)
    tasks = [dataclasses.replace(task("x"), kernels=three), task("good.kernel", SMALL)]
    body = "run(), 'time_in_turn' in (f.function for f in inspect.stack(0)) and os._exit(7)"
    found = measured(tasks, folder, command=worker(folder, body)).rows
    assert [(row.problem, row.contender) for row in found] == [
        (TIMED.name, "broken"), (TIMED.name, "tensor"), (TIMED.name, "last"), (SMALL.name, "tensor")
    ]  # fmt: skip
    broken, tensor, last, _ = found
    assert "code 7" in broken.failure
    assert tensor.timing is not None
    assert tensor.ratio is None
    assert last.ratio is not None
    assert last.ratio.low <= last.ratio.median <= last.ratio.high


def test_libraries_are_left_out_when_their_time_is_spent(folder: Path) -> None:
    tasks = [task("good.kernel", peers=True)]
    record = measured(tasks, folder, purse=0.0)
    names = [peer.name for peer in find_case("conv1d").peers]
    assert record.about["left_out"] == [f"{TIMED.name}: {name}" for name in names]
    assert [row.contender for row in record.rows] == ["tensor"]


def test_libraries_that_are_not_installed_are_no_rows(folder: Path) -> None:
    record = measured([task("good.kernel", peers=True)], folder)
    assert "left_out" not in record.about
    assert all(row.passed for row in record.rows)


def test_what_is_left_of_a_task() -> None:
    stock = (("cuda", "a.so", ("I",)), ("cuda-fast", "b.so", ("I",)))
    kernels = (("tensor", "a.kernel"), ("wgmma", "b.kernel"))
    whole = dataclasses.replace(task("x"), kernels=kernels, stock=stock, peers=True)
    assert whole.without({"tensor"}).kernels == kernels[1:]
    assert whole.without({"tensor"}).stock == stock
    left = whole.without({"wgmma", "stock Halide", "cupyx"})
    assert (left.kernels, left.stock) == (kernels[:1], stock[1:])
    names = [peer.name for peer in whole.libraries]
    assert [peer.name for peer in left.libraries] == [n for n in names if n != "cupyx"]
    assert left.without(names).libraries == ()
    assert not left.without(names).empty
    everything = {"tensor", "wgmma", "stock Halide", "stock Halide fast", *names}
    assert whole.without(everything).empty


def test_without_a_gpu_there_is_one_message(folder: Path, monkeypatch: Any) -> None:
    path = folder / "none.py"
    path.write_text("raise SystemExit('no CuPy here')")
    with pytest.raises(UserError) as refused:
        measured([task("good.kernel")] * 40, folder, command=(sys.executable, str(path)))
    assert "no CuPy here" in refused.value.why


def test_tasks_of_a_manifest() -> None:
    case = find_case("conv1d")
    compared = case.compared[0]
    other = next(p for p in case.benchmark if p not in case.compared)
    small = case.small[0]
    manifest = artifacts.Manifest(
        (
            artifacts.SavedKernel("conv1d", compared.program, "sm_90a", "a.kernel"),
            artifacts.SavedKernel("conv1d", other.program, "sm_90a", "b.kernel"),
        ),
        (artifacts.SavedStock("conv1d", compared.name, "s.so", ("I", "K")),),
        (
            artifacts.job("conv1d", "small", small),
            artifacts.job("conv1d", "benchmark", compared),
            artifacts.job("conv1d", "benchmark", other),
        ),
    )
    first, second, third = tasks_of(manifest, Choice())
    assert not first.timed
    assert second.kernels == (("tensor", "a.kernel"),)
    assert second.stock == (("cuda", "s.so", ("I", "K")),)
    assert second.peers
    assert not third.peers
    assert second.instance() == compared
    assert tasks_of(manifest, Choice(kinds=("small",))) == [first]
    assert tasks_of(manifest, Choice(match=f"^{other.name}$")) == [third]
    assert tasks_of(manifest, Choice(cases=("gemm",))) == []
    assert not tasks_of(manifest, Choice(peers=False))[1].peers


def test_variants_are_kernels_with_a_description(tmp_path: Path) -> None:
    (tmp_path / "me").mkdir()
    about = {"case": "conv1d", "problem": dataclasses.asdict(TIMED)}
    other = about | {"problem": dataclasses.asdict(SMALL)}
    for name, described in (("wide", about), ("tall", other), ("long", about)):
        (tmp_path / "me" / f"{name}.kernel").touch()
        (tmp_path / "me" / f"{name}.json").write_text(json.dumps(described))
    (tmp_path / "me" / "undescribed.kernel").touch()
    first, second = variants(tmp_path)
    assert first.kernels == (("me/long", "me/long.kernel"), ("me/wide", "me/wide.kernel"))
    assert first.instance() == TIMED
    assert second.kernels == (("me/tall", "me/tall.kernel"),)
    assert variants(tmp_path, "tall") == [second]


def saved(folder: Path, *problems: Conv1d) -> Path:
    kernel = artifacts.SavedKernel("conv1d", TIMED.program, "amx", "good.kernel")
    jobs = tuple(artifacts.job("conv1d", "benchmark", p) for p in problems)
    artifacts.write(folder, artifacts.Manifest((kernel,), (), jobs))
    return folder


def test_bench_of_saved_kernels_leaves_a_report(
    folder: Path, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(runner, "gpu_available", lambda: True)
    source = saved(folder, TIMED, Conv1d(60, 8, 24))
    command = ["bench", "--all", "--artifacts", str(source), "--out", str(tmp_path)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert printed.count(TIMED.name) == 2  # its row, and the summary
    data = json.loads((tmp_path / "bench.json").read_text())
    assert [row["problem"] for row in data["rows"]] == [TIMED.name, "conv1d-k24-60x8"]
    assert all(0 < row["share"] < 1 for row in data["rows"])
    assert f"| {TIMED.name} |" in (tmp_path / "bench.md").read_text()


def test_bench_as_json(folder: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(runner, "gpu_available", lambda: True)
    source = saved(folder, TIMED)
    assert main(["bench", "conv1d", "--artifacts", str(source), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["passed"] is True


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("bench", "bench needs the names of cases"),
        ("bench conv1d --artifacts nowhere", "no manifest.json in nowhere"),
        ("bench conv1d --taps 8 --artifacts x", "those of the benchmark problems"),
    ],
)
def test_what_bench_refuses(command: str, message: str, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(runner, "gpu_available", lambda: True)
    assert main(command.split()) == 2
    assert message in capsys.readouterr().err


def test_a_schedule_that_runs_on_no_gpu_is_refused() -> None:
    with pytest.raises(UserError, match="no schedule 'plain' for a GPU"):
        next(bench(find_case("conv1d"), TIMED, 1, "plain"))


@pytest.mark.parametrize("where", [(), ("--here",)])
def test_run_all_of_a_folder(where: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
    """As on a GPU machine: a process of its own, its exit code, its file."""
    root = Path(artifacts.__file__).parents[2]
    command = [sys.executable, str(root / "tests/gpu/run_all.py"), *where]
    command += ["--artifacts", str(saved(folder, TIMED)), "--results", str(tmp_path / "r.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "1 passed, 0 failed" in done.stdout
    (row,) = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert row["problem"] == TIMED.name


def test_run_variants_of_a_folder(folder: Path, tmp_path: Path) -> None:
    root = Path(artifacts.__file__).parents[2]
    about = {"case": "conv1d", "problem": dataclasses.asdict(TIMED)}
    for name in ("good", "bad"):
        (tmp_path / f"{name}.kernel").write_bytes((folder / f"{name}.kernel").read_bytes())
        (tmp_path / f"{name}.json").write_text(json.dumps(about))
    command = [sys.executable, str(root / "tests/gpu/run_variants.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "2 kernels, 1 wrong or failed" in done.stdout
    lines = {line.split()[1]: line for line in done.stdout.splitlines() if TIMED.name in line}
    assert "events" in lines["good"]
    assert "ArtifactError" in lines["bad"]


def test_two_revisions_take_turns(folder: Path, tmp_path: Path) -> None:
    root = Path(artifacts.__file__).parents[2]
    about = {"case": "conv1d", "problem": dataclasses.asdict(TIMED)}
    for name in ("old", "new"):
        (tmp_path / f"{name}.kernel").write_bytes((folder / "good.kernel").read_bytes())
        (tmp_path / f"{name}.json").write_text(json.dumps(about))
    command = [sys.executable, str(root / "tests/gpu/run_variants.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (ratio,) = (line for line in done.stdout.splitlines() if "..." in line and TIMED.name in line)
    assert re.search(r" old / new \d\.\d{4} \(\d\.\d{4} \.\.\. \d\.\d{4}\)  \w+", ratio)
    assert "old / new: geometric mean" in done.stdout


def row(problem: str, contender: str, ratio: Ratio | None) -> Row:
    timing = Timing(1.0, 1.0, 1.0, 1, 1, "graph")
    return Row("conv1d", problem, contender, "", 0.0, 1.0, timing, 1, 1, ratio=ratio)


@pytest.mark.parametrize(
    ("ratio", "word"),
    [
        (Ratio(1.02, 1.01, 1.03), "slower"),
        (Ratio(0.98, 0.97, 0.99), "faster"),
        (Ratio(1.02, 0.99, 1.05), "the same"),
        (Ratio(0.98, 0.95, 1.0), "the same"),
    ],
)
def test_no_difference_is_claimed_inside_the_spread(ratio: Ratio, word: str) -> None:
    text = ratios([row("p", "p/new", None), row("p", "p/old", ratio)])
    assert text.splitlines()[0].endswith(f")  {word}")


def test_the_geometric_mean_of_ratios() -> None:
    slow, fast = Ratio(2.0, 2.0, 2.0), Ratio(0.5, 0.5, 0.5)
    lost = dataclasses.replace(row("r", "r/old", None), timing=None, failure="lost")
    rows = [row("p", "p/new", None), row("p", "p/old", slow)]
    rows += [row("q", "q/new", None), row("q", "q/old", fast), row("r", "r/new", None), lost]
    expected = "old / new: geometric mean 1.0000 of 2, 0.5000 ... 2.0000"
    assert ratios(rows).splitlines()[-1] == expected
    assert ratios(rows[:1]) == ""


def test_a_gpu_machine_needs_neither_halide_nor_pillow() -> None:
    """Whatever measures saved kernels is imported without them."""
    script = """
    import importlib, sys
    class Missing:
        def find_spec(self, name, *_):
            if name.split(".")[0] in ("halide", "egglog", "PIL", "matplotlib", "scipy", "torch"):
                raise ModuleNotFoundError(name)
    sys.meta_path.insert(0, Missing())
    from casestudies.measuring import benching, worker
    from casestudies import cli
    from casestudies.common.registry import all_cases
    from casestudies.measuring.artifacts import job, problem_of
    from selector import load
    for case in all_cases():
        for problem in (*case.small, *case.benchmark):
            assert problem_of(job(case.name, "small", problem)) == problem
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
