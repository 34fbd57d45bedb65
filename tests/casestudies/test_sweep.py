"""The public sweep: its rows, which problems they are, the folder that is built, the half that
measures without Halide, and the page.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import pytest

from casestudies.cli import main
from casestudies.common.registry import find_case
from casestudies.gemm.problem import Problem as Gemm
from casestudies.measuring.measure import QUICK, USUAL
from casestudies.results import sweep as page
from casestudies.sweep import folder as folders
from casestudies.sweep.build import _entries, build, instance, on_cores
from casestudies.sweep.folder import Entry, Sweep
from casestudies.sweep.merge import merged
from casestudies.sweep.problems import libraries_of, problem_of
from casestudies.sweep.rows import Row, choose, drawn, listed
from casestudies.sweep.run import task_of
from selector import load
from selector.diagnostics import ArtifactError, UserError
from selector.sized import SizedKernel

pytestmark = pytest.mark.verified

FAKE = Path(__file__).parent / "fake_gpu"
RESNET = {  # taps, stride, channels, filters, extent of the output; torchvision's resnet50
    (7, 2, 3, 64, 112),
    (1, 1, 64, 64, 56), (3, 1, 64, 64, 56), (1, 1, 64, 256, 56), (1, 1, 256, 64, 56),
    (1, 1, 256, 128, 56), (3, 2, 128, 128, 28), (1, 1, 128, 512, 28), (1, 2, 256, 512, 28),
    (1, 1, 512, 128, 28), (3, 1, 128, 128, 28),
    (1, 1, 512, 256, 28), (3, 2, 256, 256, 14), (1, 1, 256, 1024, 14), (1, 2, 512, 1024, 14),
    (1, 1, 1024, 256, 14), (3, 1, 256, 256, 14),
    (1, 1, 1024, 512, 14), (3, 2, 512, 512, 7), (1, 1, 512, 2048, 7), (1, 2, 1024, 2048, 7),
    (1, 1, 2048, 512, 7), (3, 1, 512, 512, 7),
}  # fmt: skip


def fields_of(problem: Any) -> dict[str, Any]:
    return dataclasses.asdict(problem)


def of_group(family: str, group: str) -> list[dict[str, Any]]:
    return [dict(r.fields) for r in listed() if (r.family, r.group) == (family, group)]


def values(rows: list[dict[str, Any]], *names: str) -> set[Any]:
    found = {tuple(row[name] for name in names) for row in rows}
    return {value[0] for value in found} if len(names) == 1 else found


def test_every_row_has_a_name_of_its_own() -> None:
    assert max(Counter(row.name for row in listed()).values()) == 1


def test_the_list_has_all_that_it_was_asked_for() -> None:
    """Said anew, as a user would say it: sizes of layers of known networks, and so on."""
    weights = of_group("gemm", "weights")
    llama = {(4096, 4096), (6144, 4096), (28672, 8192), (2560, 10240), (1000, 2048)}
    assert values(weights, "n", "k") == llama
    assert values(weights, "m") == {1, 2, 8, 24, 32, 96, 192, 512, 2000}
    assert len(weights) == 45
    squares = of_group("gemm", "squares")
    assert values(squares, "m") == {
        256, 384, 640, 768, 896, 1280, 1792, 2304, 3072, 5000, 7168, 12288,
    }  # fmt: skip
    assert all(row["m"] == row["n"] == row["k"] for row in squares)
    pairs = {(t, x) for t in ("f16-f16", "f16-f32", "bf16-bf16", "bf16-f32") for x in TURNED}
    assert values(squares, "types", "layout") == pairs
    for batch in (1, 8, 32):
        layers = [row for row in of_group("conv", "resnet50") if row["batch"] == batch]
        assert values(layers, "taps", "stride", "channels", "filters", "height") == RESNET
        assert len(layers) == 2 * len(RESNET)
    bytes_ = of_group("gemm", "bytes") + of_group("gemm", "requantised")
    assert len(bytes_) == 2 * 2 * 2 * 4
    counts = Counter(row.family for row in listed())
    assert counts["attention"] == 2 * (10 + 2 + 2 + 2 + 1 + 1 + 2 + 1)
    assert counts["depthwise"] == 8 * 6
    others = {"filter", "sampling", "resample", "scan", "dct", "rows", "banks"}
    assert set(counts) == {"gemm", "attention", "conv", "depthwise"} | others


TURNED = ("nn", "tn", "tt")


def test_rows_are_chosen_by_family_and_name() -> None:
    found = choose(listed(), ["gemm"], "-nt-4096x4096-(1|2)$")
    assert [row.fields["m"] for row in found] == [1, 2]
    with pytest.raises(UserError, match="no family 'gem'"):
        choose(listed(), ["gem"])
    with pytest.raises(UserError, match="no regular expression"):
        choose(listed(), [], "(")


def test_rows_are_drawn_within_the_ranges() -> None:
    rows = drawn(7, 40)
    assert rows == drawn(7, 40)
    assert not {row.name for row in rows} & {row.name for row in drawn(8, 40)}
    counts = Counter(row.family for row in rows)
    assert set(counts) == {"gemm", "attention", "conv", "depthwise"}
    assert set(counts.values()) == {40}
    sizes = [row.fields["m"] for row in rows if row.family == "gemm"]
    assert all(1 <= m <= 8192 for m in sizes)  # type: ignore[operator]
    assert sum(m < 91 for m in sizes) > 10  # type: ignore[operator]
    assert sum(m > 91 for m in sizes) > 10  # type: ignore[operator]
    depths = {row.fields["depth"] for row in rows if row.family == "attention"}
    assert all(depth % 16 == 0 for depth in depths)  # type: ignore[operator]


def test_a_row_is_a_problem() -> None:
    """It has libraries of its case's, and survives the way through JSON."""
    for row in (*listed(), *drawn(3, 10)):
        case, problem = problem_of(row)
        names = {peer.name for peer in find_case(case).peers}
        assert set(libraries_of(case, problem)) <= names
        fields = json.loads(json.dumps(fields_of(problem)))
        entry = Entry(row.family, row.group, row.name, case, problem.name, fields)
        assert instance(entry) == problem


def test_a_pixel_of_one_tap_is_a_row_of_a_product() -> None:
    (row,) = choose(listed(), ["conv"], "^conv-resnet50-f16-f16-8-NHWC-1x1x512x2048x7x7$")
    assert problem_of(row) == ("gemm", Gemm(8 * 7 * 7, 2048, 512, "f16-f16", "nt", "bias-relu"))


def test_layers_have_one_entry() -> None:
    """Of channels last that of the case study, which has the compiler's schedule as well."""
    names = "^conv-(residual-.*-1-|bytes-.*-1-NHWC-3x1x64x|transposed-.*-1-NHWC)"
    entries = [entry for row in choose(listed(), [], names) for entry in _entries(row)]
    assert {(e.group, e.case, e.schedule) for e in entries} == {
        ("residual NHWC", "conv_layer", "auto"), ("residual NCHW", "plain.layer", "auto"),
        ("bytes NHWC", "plain.layer", "auto"), ("transposed NHWC", "plain.layer", "auto"),
    }  # fmt: skip
    assert len(entries) == 4


def test_attention_has_an_entry_for_each_schedule() -> None:
    """Of the same inputs and result, but for heads that are rows of one in the case study; rows
    that the case study does not take have one.
    """
    for row in choose(listed(), ["attention"], "f16-f16"):
        entries = _entries(row)
        if "longest" in row.fields or "kept" in row.fields or row.fields["length"] == 1:
            assert [e.schedule for e in entries] == ["auto"]
            continue
        own, auto = entries
        assert (own.case, own.schedule) == ("attention", "")
        assert (auto.case, auto.schedule) == ("plain.attention", "auto")
        assert auto.name == f"{own.name}-auto"
        assert own.problem != auto.problem
        problems = [instance(e) for e in entries]
        assert len({p.multiply_adds for p in problems}) == 1
        names = [[(s.name, s.element, prod(s.shape)) for s in p.inputs] for p in problems]
        assert names[0] == names[1]
        assert libraries_of("attention", problems[0]) == libraries_of(auto.case, problems[1])


@pytest.mark.parametrize(
    "name",
    [
        "gemm-squares-f16-f32-nn-640x640x640",
        "gemm-requantised-s8-s8-scale-nt-512x512x512",
        "attention-scores-f16-f16-soft_cap-16x4096x64",
        "conv-residual-f16-f16-8-NHWC-residual-3x1x64x64x56x56",
    ],
)
def test_only_libraries_of_the_same_types_take_part(name: str) -> None:
    (row,) = choose(listed(), [], f"^{name}$")
    case, problem = problem_of(row)
    entry = Entry(
        row.family, row.group, row.name, case, problem.name, fields_of(problem), "a.kernel"
    )
    task = task_of(entry)
    assert {peer.name for peer in task.libraries} == set(libraries_of(case, problem))
    assert task.quick
    assert QUICK.budget < USUAL.budget


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Sweep]:
    pytest.importorskip("halide")
    folder = tmp_path_factory.mktemp("sweep")
    names = "gemm-ragged-.*33x65x129|gemm-bytes-s8-s32-nt-512|attention-block-mask-f16|banks-fir"
    refused = Row("attention", "plain", "refused", {"heads": 0, "length": 8, "depth": 64})
    return folder, build(folder, (*choose(listed(), [], names), refused), "sm_90a", 1)


def test_a_folder_has_a_kernel_or_a_reason_for_each_row(built: tuple[Path, Sweep]) -> None:
    pytest.importorskip("cuda.bindings")
    from selector import load

    folder, sweep = built
    assert folders.read(folder) == sweep
    found = {entry.name: entry for entry in sweep.entries}
    assert len(found) == 5
    for name in ("gemm-ragged-f16-f16-nn-33x65x129", "gemm-bytes-s8-s32-nt-512x512x512"):
        assert load(folder / found[name].file, trust=True).target.name == "sm_90a"
    assert "0 heads" in found["refused"].reason
    assert found["attention-block-mask-f16-f16-16x4096x64x0.5"].schedule == "auto"
    fir = found["banks-fir-f16-f32-64x128x1048576"]
    assert fir.schedule == "auto"
    assert not fir.cores
    assert load(folder / fir.file, trust=True).target.name == "sm_90a"


def test_a_plain_program_is_compiled_for_each_of_its_sizes(tmp_path: Path) -> None:
    found = choose(listed(), ["filter"], "repeat-one-(1280x720|5472x3648)-5-square")
    sweep = build(tmp_path, found, "sm_90a", 1)
    (file,) = {entry.file for entry in sweep.entries}
    kernel = load(tmp_path / file)
    assert isinstance(kernel, SizedKernel)
    assert len(kernel.size_classes) == len(found) == 2


def test_the_reasons_of_a_report_are_said_once() -> None:
    report = "a: somewhere\n  not on a tensor unit: odd\nb: x\n  not on a tensor unit: odd\n"
    assert on_cores(report + "  not on a tensor unit: even\n") == "odd; even"
    assert not on_cores("a: windows on tensor units by mma\n")


def test_what_the_compiler_refuses_is_the_reason(tmp_path: Path) -> None:
    """A depth that no shared memory holds; without its schedule there are several kernels."""
    pytest.importorskip("halide")
    fields = {"heads": 1, "length": 64, "depth": 2048, "types": "f16-f16"}
    entry, auto = build(tmp_path, [Row("attention", "deep", "deep", fields)], "sm_90a", 1).entries
    assert entry.reason
    assert "Error" not in entry.reason.split(":")[0]
    assert not auto.reason
    assert [p.name for p in tmp_path.glob("*.kernel")] == [auto.file]


def test_a_folder_without_a_sweep_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"sweep\.json"):
        folders.read(tmp_path)


BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("halide", "halide_bridge", "egglog", "matplotlib", "scipy"):
            raise ImportError(f"{name} is not on the machine that measures")

sys.meta_path.insert(0, Blocked())
from casestudies.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def measurable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of three rows, with kernels for the CPU."""
    pytest.importorskip("halide")
    import halide_bridge as hb

    folder = tmp_path_factory.mktemp("measurable")
    problems = (Gemm(9, 7, 33), Gemm(40, 24, 16))
    kernel = hb.compile(find_case("gemm").build(problems[0], "plain"), target="amx")
    kernel.save(folder / "plain.kernel")
    (folder / "bad.kernel").write_bytes(b"no kernel")
    files = ("plain.kernel", "bad.kernel")
    entries = [
        Entry("gemm", "tests", f"row{i}", "gemm", p.name, dataclasses.asdict(p), file)
        for i, (p, file) in enumerate(zip(problems, files, strict=True))
    ]
    entries.append(Entry("conv", "tests", "row2", reason="nobody takes it"))
    folders.write(folder, Sweep("amx", tuple(entries)))
    return folder


def measured(folder: Path, results: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The command, in a process without Halide and the rule engine."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", BLOCKED, "sweep", "run", str(folder)]
    return subprocess.run(
        [*command, "--results", str(results), "--seed", "1", *options],
        capture_output=True, text=True, check=False, cwd=root,
        env={"PYTHONPATH": f"{FAKE}:{root}", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip


def test_rows_are_measured_without_halide(measurable: Path, tmp_path: Path) -> None:
    """A failing kernel is a row, not the end; the same command again has nothing left to do."""
    results = tmp_path / "results.json"
    first = measured(measurable, results, "--rows", "row0")
    assert first.returncode == 0, first.stderr
    assert "1 rows measured, 1 not, 0 wrong" in first.stdout
    second = measured(measurable, results)
    assert second.returncode == 1
    assert "1 problems to measure, 1 known" in second.stderr
    assert "ArtifactError" in second.stdout
    third = measured(measurable, results)
    assert "0 problems to measure, 2 known" in third.stderr
    data = json.loads(results.read_text(encoding="utf-8"))
    own = [row for row in data["rows"] if row["ours"]]
    assert [row["passed"] for row in own] == [True, False]
    assert data["device"] == "NVIDIA H200 (fake)"
    folders.write(measurable, dataclasses.replace(folders.read(measurable), target="other"))
    assert "another sweep" in measured(measurable, results).stderr


def test_no_row_begins_when_the_time_is_over(measurable: Path, tmp_path: Path) -> None:
    done = measured(measurable, tmp_path / "results.json", "--seconds", "0")
    assert "0 rows measured, 2 not, 0 wrong" in done.stdout


def recorded() -> dict[str, Any]:
    """Results of three rows as a run leaves them: right, wrong, and not reached; and one without a
    kernel.
    """
    problems = [Gemm(16 << i, 64, 64, "f16-f16") for i in range(3)]
    entries = [
        Entry("gemm", "tests", f"gemm-{p.m}", "gemm", p.name, dataclasses.asdict(p), "a.kernel")
        for p in problems
    ]
    entries.append(Entry("scan", "orders", "scan-1", reason="nobody | takes it"))

    def row(problem: Gemm, contender: str, median: float, **fields: Any) -> dict[str, Any]:
        timing = {"median": median, "low": 1, "high": 9, "calls": 1, "repeats": 1, "method": ""}
        usual = {"ours": contender == "tensor", "passed": True, "failure": "", "error": 1e-4}
        usual |= {"case": "gemm", "problem": problem.name, "limit": 2.0, "bound": "memory"}
        counts = {"bytes": 1, "multiply_adds": problem.multiply_adds, "note": "", "ratio": None}
        return usual | counts | {"contender": contender, "timing": timing} | fields

    ratio = {"median": 1.5, "low": 1.4, "high": 1.6}
    return {
        "date": "2026-01-02", "device": "NVIDIA H200", "driver": "1", "torch": "2",
        "sweep": Sweep("sm_90a", tuple(entries)).as_dict(),
        "rows": [
            row(problems[0], "tensor", 4.0),
            row(problems[0], "cuBLAS", 6.4, ratio=ratio),
            row(problems[0], "slow", 9.0, ratio=ratio | {"median": 2.2}),
            row(problems[0], "copy", 3.0, ratio=ratio | {"median": 0.7}),
            row(problems[1], "tensor", 4.0, passed=False, error=0.3),
        ],
    }  # fmt: skip


def test_the_page_says_what_was_measured() -> None:
    text = page.render(recorded())
    assert "Measured 2026-01-02 on one NVIDIA H200 (driver 1, torch 2)." in text
    assert "| 16 | 2.00 | memory | **4.00** | 50 % | cuBLAS | 6.40 | 1.50x | 3.00 | 1.0e" in text
    assert "| gemm, tests | 3 | 3 | its own | 1 | 50 % | 1.50x | 1 of 1 |" in text
    assert "- gemm-f16-f16-32x64x64: relative error 3.0e-01" in text
    assert "Not reached in this run: 1 rows." in text
    assert "| scan, orders | 1 | nobody / takes it |" in text


def test_a_later_run_of_some_rows_is_put_into_the_first() -> None:
    """What it did not measure stays; the page says which groups are of which day."""
    old = recorded()
    first, second = (entry["problem"] for entry in old["sweep"]["entries"][:2])
    new = json.loads(json.dumps(old | {"date": "2026-03-04", "torch": "3"}))
    new["rows"] = [r | {"passed": True} for r in new["rows"] if r["problem"] == second]
    new["sweep"]["entries"][0]["file"] = "later.kernel"
    new["sweep"]["entries"].append(new["sweep"]["entries"][0] | {"name": "another"})
    found = merged(old, new)
    names = [entry["name"] for entry in old["sweep"]["entries"]]
    assert [entry["name"] for entry in found["sweep"]["entries"]] == [*names, "another"]
    assert [entry["file"] for entry in found["sweep"]["entries"][:2]] == [
        entry["file"] for entry in old["sweep"]["entries"][:2]
    ]
    assert [run["problems"] for run in found["later"]] == [[second]]
    text = page.render(found)
    assert "Of 2026-03-04 on one NVIDIA H200 (driver 1, torch 3): rows of gemm, tests." in text
    assert "All that ran is right." in text
    again = merged(found, new | {"date": "2026-03-05"})
    assert [run["date"] for run in again["later"]] == ["2026-03-05"]
    assert {row["problem"] for row in again["rows"]} == {first, second}


def test_the_plots_are_the_same_for_the_same_rows(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first, second = (page.write_page(recorded(), tmp_path / name) for name in "ab")
    assert [path.name for path in first] == ["sweep.md", "sweep-gemm.svg"]
    assert first[1].read_text(encoding="utf-8").startswith("<?xml")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]


def test_the_command_builds_rows_that_are_drawn(tmp_path: Path, capsys: Any) -> None:
    options = ["--extra", "5", "--count", "2", "--family", "depthwise", "--workers", "1"]
    assert main(["sweep", "build", str(tmp_path), *options]) == 0
    assert "2 of 2 rows have a kernel" in capsys.readouterr().out
    assert {entry.group for entry in folders.read(tmp_path).entries} == {"drawn5"}
