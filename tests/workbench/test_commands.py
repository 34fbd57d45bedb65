"""``rules list``, ``coverage``, ``trace``, ``graph``; and all of it with egglog and NumPy alone."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from workbench_command import Rules

from rules import program_files
from selector.ir.parser import parse_module
from selector.workbench.bench import Bench
from selector.workbench.picture import Options, Picture, draw, read_term
from selector.workbench.programs import default_target
from selector.workbench.rendering import layout
from selector.workbench.ruleset import read_rules, standard_files
from selector.workbench.terms import show_term

pytestmark = pytest.mark.verified

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAMS = ROOT / "rules" / "tests" / "programs"
CONV1D = PROGRAMS / "conv1d.vir"
# A maximum is no multiply-add.
UNMAPPED = """module odd
input A: float16 [(0, 256, 1)]
output C: float32 [(0, 256, 1)]
body {
 allocate mm[float32 * 256] in WMMAAccumulator
 mm[ramp(0, 1, 256)] = x256(0.000000f)
 mm[ramp(0, 1, 256)] = max(mm[ramp(0, 1, 256)], float32x256(A[ramp(0, 1, 256)]))
 C[ramp(0, 1, 256)] = mm[ramp(0, 1, 256)]
}
"""
NEVER = """; max(x, max(x, x)) -> x
(rewrite (Bop "max" x (Bop "max" x x)) x :ruleset axioms :name "max-of-three")
"""
DIAGONAL = """; the twin of broadcast-cast
(rewrite (Broadcast (Cast t v) n) (Cast t (Broadcast v n)) :ruleset axioms :name "my-cast")
"""


def test_list_names_every_rule(rules: Rules, tmp_path: Path) -> None:
    data = json.loads(rules("list", "--json").out)
    assert [r["name"] for r in data] == [r.name for r in read_rules(standard_files())]
    assert all(r["law"] and r["ruleset"] for r in data)
    extra = tmp_path / "extra.egg"
    extra.write_text(NEVER)
    shown = rules("list", "--rules", extra, "-k", "max-of-three").out
    assert shown.splitlines()[0] == str(extra)
    (line,) = shown.splitlines()[1:]
    assert line.split(maxsplit=3) == ["2", "max-of-three", "axioms", "max(x, max(x, x)) -> x"]


@pytest.mark.slow
def test_coverage(rules: Rules, tmp_path: Path) -> None:
    extra = tmp_path / "extra.egg"
    extra.write_text(NEVER)
    done = rules("coverage", "--require-all", "--json", "--rules", extra)
    data = json.loads(done.out)
    assert data["never"] == ["max-of-three"]
    assert done.code == 1
    counts = {r["name"]: r for r in data["rules"]}
    assert counts["toeplitz"]["own_tests"] > 0
    assert counts["toeplitz"]["programs"] > 0
    assert counts["tile-fill"]["tests"] >= counts["tile-fill"]["own_tests"]
    assert data["programs"] == len(program_files())


def test_coverage_of_one_program(rules: Rules) -> None:
    done = rules("coverage", PROGRAMS / "matmul.vir", "--no-tests", "--require-all")
    assert done.code == 1
    assert "never fired: toeplitz (rules/71_toeplitz.egg:" in done.out
    rows = {line.split()[0]: line.split()[1:] for line in done.out.splitlines()}
    assert int(rows["matmul"][2]) > 0
    assert rows["toeplitz"][2] == "0"
    assert "1 programs" in done.out


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, _ in program_files()])
def test_every_program_is_selected(rules: Rules, name: str) -> None:
    """The chain of each is in the order of its rules' first match, and its laws are those of the
    rule files."""
    done = rules("trace", PROGRAMS / name, "--json")
    assert done.code == 0, done.out
    laws = {r.name: r.law for r in read_rules(standard_files())}
    found = json.loads(done.out)
    assert {t["statement"]["stage"] for t in found} == {"init", "update", "read"}
    for trace in found:
        fired = {f["rule"]: f for f in trace["fired"]}
        assert all(f["matches"] > 0 for f in fired.values())
        names = [c["rule"] for c in trace["chain"]]
        assert names
        assert set(names) <= set(fired)
        assert all(c["law"] == laws[c["rule"]] for c in trace["chain"])
        lowered = [n for n in names if fired[n]["phase"] == "lowering"]
        assert names[-len(lowered) :] == lowered
        assert len(lowered) == 1


def test_trace_of_a_convolution(rules: Rules) -> None:
    out = rules("trace", CONV1D, "--target", "sm_80").out
    assert "conv (update)" in out
    assert "toeplitz" in out
    assert "a convolution -> a product with the banded matrix of the taps" in out
    assert "    lowering 1: multiply-add" in out
    assert rules("trace", CONV1D, "--target", "sm_80").out == out


def test_trace_says_why_not(rules: Rules, tmp_path: Path) -> None:
    path = tmp_path / "odd.vir"
    path.write_text(UNMAPPED)
    done = rules("trace", path)
    assert done.code == 1
    assert done.out.count("not selected: ") == 3
    assert "hint: " in done.out
    none = rules("trace", CONV1D, "--target", "amx")
    assert none.code == 1
    assert "target amx has no wmma or mma instructions" in none.out
    assert rules("trace", CONV1D, "--instructions", "mma").code == 0


def test_trace_with_other_rules(rules: Rules, tmp_path: Path) -> None:
    extra = tmp_path / "extra.egg"
    extra.write_text(DIAGONAL)
    data = json.loads(rules("trace", CONV1D, "--rules", extra, "--json").out)
    update = next(t for t in data if t["statement"]["stage"] == "update")
    assert "my-cast" in {f["rule"] for f in update["fired"]}
    chain = {c["rule"] for c in update["chain"]}
    assert len(chain & {"broadcast-cast", "my-cast"}) == 1


def picture(name: str, options: Options) -> Picture:
    module = parse_module((PROGRAMS / name).read_text(), name)
    return draw(Bench(), module, default_target(module), options)


def test_the_selected_term_is_marked() -> None:
    shown = picture("conv1d.vir", Options())
    texts = [line.text for box in shown.boxes for line in box.lines if line.selected]
    assert [t.split()[0] for t in texts].count("MultiplyAdd") == 1
    assert any(t.startswith('Toeplitz "float16" 71 8 1 1') for t in texts)
    written = [line.text for box in shown.boxes for line in box.lines if line.written]
    assert any(t.startswith("Reduce") for t in written)
    numbers = {box.number for box in shown.boxes}
    assert all(set(n.refers) <= numbers for box in shown.boxes for n in box.lines)
    reached = {0}.union(*(n.refers for box in shown.boxes for n in box.lines))
    assert reached == numbers
    assert len(shown.boxes) < 30


def test_more_can_be_drawn() -> None:
    small, large = picture("conv1d.vir", Options()), picture("conv1d.vir", Options(None, 50, True))
    assert len(large.boxes) > len(small.boxes)
    assert sum(len(b.lines) for b in large.boxes) > sum(len(b.lines) for b in small.boxes)
    first = picture("conv1d.vir", Options(1))
    assert {line.text.split()[0] for b in first.boxes for line in b.lines} >= {"Store", "TileFill"}


def test_boxes_do_not_overlap() -> None:
    places = list(layout(picture("conv1d.vir", Options(None, 50, True))).values())
    for i, a in enumerate(places):
        for b in places[:i]:
            apart = (
                a.x + a.width <= b.x or b.x + b.width <= a.x
                or a.y + a.height <= b.y or b.y + b.height <= a.y
            )  # fmt: skip
            assert apart


def test_graph_as_svg(rules: Rules, tmp_path: Path) -> None:
    path = tmp_path / "conv.svg"
    done = rules("graph", CONV1D, "-o", path)
    assert done.code == 0
    root = ElementTree.parse(path).getroot()
    namespace = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{namespace}svg"
    width, height = float(root.get("width", "0")), float(root.get("height", "0"))
    texts = list(root.iter(f"{namespace}text"))
    assert any("MultiplyAdd" in (t.text or "") for t in texts)
    assert all(0 < float(t.get("x", "0")) < width for t in texts)
    assert all(0 < float(t.get("y", "0")) < height for t in texts)
    assert list(root.iter(f"{namespace}path"))
    before = path.read_bytes()
    refused = rules("graph", CONV1D, "-o", path)
    assert (refused.code, path.read_bytes()) == (2, before)
    assert "--force overwrites it" in refused.err
    assert rules("graph", CONV1D, "-o", path, "--force").code == 0
    assert path.read_bytes() == before


def test_graph_as_dot(rules: Rules, tmp_path: Path) -> None:
    path = tmp_path / "conv.dot"
    done = rules("graph", CONV1D, "-o", path, "--json")
    data = json.loads(done.out)
    text = path.read_text()
    assert text.startswith("digraph egraph {")
    assert text.count("[label=") == len(data["boxes"])
    assert text.count("{") == text.count("}") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere.vir", "-o", "a.svg"), "cannot read nowhere.vir"),
        ((CONV1D, "-o", "a.png"), "a picture is an .svg or a .dot file"),
        ((CONV1D, "-o", "/nowhere/a.svg"), "cannot write /nowhere/a.svg"),
        ((CONV1D, "-o", "/nowhere/a.svg", "--statement", "0"), "there is no statement 0"),
        ((CONV1D, "-o", "/nowhere/a.svg", "--target", "sm_1"), "unknown target 'sm_1'"),
        ((ROOT / "Makefile", "-o", "/nowhere/a.svg"), "where: "),
    ],
)
def test_mistakes_are_one_message(
    rules: Rules, arguments: tuple[object, ...], message: str
) -> None:
    done = rules("graph", *arguments)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert message in done.err


def test_a_broken_rule_file_is_one_message(rules: Rules, tmp_path: Path) -> None:
    extra = tmp_path / "extra.egg"
    extra.write_text('; a\n(rewrite (Ramp x 3) x :ruleset axioms :name "r")\n')
    for command in (("trace", CONV1D), ("graph", CONV1D, "-o", tmp_path / "a.svg"), ("coverage",)):
        done = rules(*command, "--rules", extra)
        assert done.code == 2
        assert "extra.egg" in done.err
        assert "Arity mismatch" in done.err


def test_terms_are_read_as_they_are_written() -> None:
    shown = '(Apply "float32" 8 "f" (vec-of (Int -3) (FLit "float16" 0.5)))'
    term = read_term(shown)
    assert term == ("Apply", "float32", 8, "f", (("Int", -3), ("FLit", "float16", 0.5)))
    assert show_term(term) == shown
    assert read_term('(Sym "a \\"b\\"")') == ("Sym", 'a "b"')


BLOCKED = """
import sys

class Blocker:
    names = ("halide", "halide_bridge", "cupy", "torch", "PIL", "matplotlib", "scipy", "hypothesis")

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocker())
from selector.__main__ import main
codes = [main(["rules", *command.split()]) for command in sys.argv[1:]]
assert not any(codes), codes
"""


def test_egglog_and_numpy_are_enough(tmp_path: Path) -> None:
    commands = (
        f"check {ROOT / 'rules/tests/71_toeplitz.egg'}", "test -k toeplitz", "list",
        f"coverage --no-tests {CONV1D}", f"trace {CONV1D}",
        f"graph {CONV1D} -o {tmp_path / 'a.svg'}",
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, *commands],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '; a\n(rewrite (Broadcast (Ramp b s n) m) (Ramp b s n) :ruleset axioms :name "r")\n',
            "Illegal merge",
        ),
        (
            "; a\n(rule ((= e (Broadcast x m)) (> m 1)) ((Broadcast x (+ m 1))) "
            ':ruleset supporting :name "r")\n',
            "saturation does not end",
        ),
        (
            '; a\n(rewrite (Bop "+" x x) x :ruleset axioms :name "ramp-one")\n',
            "two rules are called 'ramp-one'",
        ),
    ],
)  # fmt: skip
def test_a_wrong_rule_stops_every_command(
    rules: Rules, tmp_path: Path, text: str, message: str
) -> None:
    extra = tmp_path / "extra.egg"
    extra.write_text(text)
    channels = PROGRAMS / "conv1d.vir"
    commands = (
        ("trace", channels), ("graph", channels, "-o", tmp_path / "a.svg"),
        ("coverage", "--no-tests", channels),
    )  # fmt: skip
    for command in commands:
        done = rules(*command, "--rules", extra)
        assert done.code == 2
        assert message in done.err
        assert not (tmp_path / "a.svg").exists()
