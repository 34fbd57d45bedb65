"""Convolutions on warpgroups: the text of a kernel's wgmma is executed here, on bytes.

Descriptors without a swizzle name core matrices of 8 rows x 16 bytes (PTX ISA, "Asynchronous
Warpgroup Level Matrix Shared Memory Layout"); bands are filled as the kernel fills them, from the
padded taps that it describes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import halide as hl
import numpy as np
import pytest
from corpus_group_windows import Windows, windowed
from numpy.typing import NDArray

import halide_bridge as hb
from selector.diagnostics import ScheduleError
from selector.gpu.ir.layouts import Dealt
from selector.runtime.nvrtc import available, compile_to_cubin, resource_usage, sass

pytestmark = pytest.mark.verified

Array = NDArray[np.generic]
A_AT, B_AT = 1 << 14, 1 << 20  # where the emulated memory has the rows and the bands


@dataclass(frozen=True)
class Issue:
    """One wgmma: its columns, first accumulator register, and the operands' addresses."""

    columns: int
    first: int
    a: int
    b: int
    names: tuple[int, int]  # of their descriptors


def issues(text: str) -> list[Issue]:
    pattern = (
        r'add\.s64 a, %(\d+), (\d+); add\.s64 b, %(\d+), (\d+);\\n"\s*'
        r'"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.\S+ \{%(\d+),'
    )
    return [
        Issue(int(n), int(first), 16 * int(a), 16 * int(b), (int(x), int(y)))
        for x, a, y, b, n, first in re.findall(pattern, text)
    ]


def descriptors(text: str) -> dict[int, tuple[int, int]]:
    """(bytes along the depth, along the rows) that each operand of the statement names."""
    (written,) = re.findall(r'^ *: ("\+f".*)', text, re.MULTILINE)
    before, given = re.findall(r'  : ((?:"r"\([^"]*\), )*)"l"\((.*)\) : "memory"', text)[0]
    first = written.count('"+f"') + before.count('"r"')
    parts = [re.search(r", (\d+), (\d+)\)$", p) for p in given.split('), "l"(')]
    return {first + i: (int(m.group(1)), int(m.group(2))) for i, m in enumerate(parts) if m}


def matrix(memory: Array, start: int, rows: int, strides: tuple[int, int]) -> Array:
    """A rows x 16 operand that a descriptor names."""
    along, across = strides
    r, k = np.arange(rows)[:, None], np.arange(16)[None, :]
    place = start + r // 8 * across + r % 8 * 16 + k // 8 * along + k % 8 * 2
    return memory[place // 2]


def filled_bands(text: str, taps: Array, phases: int = 1) -> Array:
    """The band entries, by the kernel's own loops over the padded taps: those of a row, the phase
    fastest.
    """
    name = re.search(r"// (band_\w+): ", text).group(1)  # type: ignore[union-attr]
    head = re.search(r"(\d+) taps.*?item < (\d+);.*?item % (\d+);", text, re.DOTALL)
    assert head is not None
    length = int(head.group(3))
    front = int(re.search(r"const int at = \(word - (\d+)\) \* 2", text).group(1))  # type: ignore[union-attr]
    place = re.search(rf"{name}\[(.*?)\] = pack16", text).group(1)  # type: ignore[union-attr]
    tables = {
        t: int(o) // 4 for t, o in re.findall(r"(band_\w+) = \(u32\*\)\(smem \+ (\d+)\)", text)
    }
    padded = np.zeros((1 << 14, 2), np.float16)
    count = taps.shape[1] // phases
    copies = 2 if "2 - copy;" in text else 1
    for row, phase, copy, word in np.ndindex(len(taps), phases, copies, length):
        at = (word - front) * 2 - copy
        line = taps[row, phase::phases]
        values = [line[t] if 0 <= t < count else 0 for t in (at, at + 1)]
        scope = {"copy": copy, "word": word, "loop0": row, "phase": phase}
        padded[tables[name] + eval(f"({place})", scope)] = values
    memory = np.full(1 << 14, np.nan, np.float16)
    loops = re.findall(
        r"item < (\d+); item \+= \d+\) \{\s*const int entry = item / (\d+), part = item % \d+;\s*"
        r"const u32\* const from = (\w+ \+ .*?);\s*\*\(uint4\*\)\(bands \+ ([^;]*?)\)"
        r" = (?:part < (\d+))?",
        text,
        re.DOTALL,
    )
    assert loops or "const int block = " in text
    for total, parts, start, place, known in loops:
        for item in range(int(total)):
            scope = {"item": item, "entry": item // int(parts), "part": item % int(parts)}
            scope |= tables
            at = eval("(" + start.replace("/", "//").replace("\n", " ") + ")", scope)
            words = padded[at : at + 4].reshape(-1)
            if known and scope["part"] >= int(known):
                words = np.zeros(8, np.float16)
            to = eval(place, dict(scope)) // 2
            assert np.isnan(memory[to : to + 8]).all()
            memory[to : to + 8] = words
    fill_pairs(text, padded, tables, memory)
    fill_parts(text, padded, tables, memory)
    return memory


def fill_pairs(text: str, padded: Array, tables: dict[str, int], memory: Array) -> None:
    """The same for the last blocks of two rows of taps, and zeros beside one."""
    loops = re.findall(
        r"item < (\d+); item \+= \d+\) \{\s*const int pair = item / 8, part = item % 8;\s*"
        r"(?:const u32\* const from = (.*?);\s*)?\*\(uint4\*\)\(bands \+ (.*?)\) = (.*?);",
        text,
    )
    assert len(loops) == text.count("const int pair = ")
    for total, start, place, value in loops:
        words = "from[0], from[1], from[2], from[3]" if start else "0, 0, 0, 0"
        assert value == f"make_uint4({words})"
        for item in range(int(total)):
            scope = {"pair": item // 8, "part": item % 8} | tables
            to = eval(place, scope) // 2
            assert np.isnan(memory[to : to + 8]).all()
            at = eval(start.replace("/", "//"), scope) if start else 0
            memory[to : to + 8] = padded[at : at + 4].reshape(-1) if start else 0


def fill_parts(text: str, padded: Array, tables: dict[str, int], memory: Array) -> None:
    """The same for bands of fewer than 8 columns, and the zeros around them."""
    loops = re.findall(
        r"item < (\d+); item \+= \d+\) \{\s*((?:const int .*;\s*)+)"
        r"(?:const u32\* const from = (\w+ \+ [^;]*?);\s*)?"
        r"\*\(uint4\*\)\(bands \+ (.*?)\) = (.*?);",
        text,
    )
    loops = [x for x in loops if "const int block = " in x[1]]
    assert len(loops) == text.count("const int block = ")
    for total, digits, start, place, value in loops:
        taken, zero = "make_uint4(from[0], from[1], from[2], from[3])", "make_uint4(0, 0, 0, 0)"
        some = re.fullmatch(rf"block < (\d+) \? {re.escape(taken)} : {re.escape(zero)}", value)
        assert some or value == (taken if start else zero)
        for item in range(int(total)):
            scope = {"item": item} | tables
            for name, number in re.findall(r"(\w+) = ([^,;]+)", digits):
                scope[name] = eval(number.replace("/", "//"), dict(scope))
            to = eval(place.replace("/", "//"), dict(scope)) // 2
            assert np.isnan(memory[to : to + 8]).all()
            at = eval("(" + start.replace("/", "//") + ")", dict(scope)) if start else 0
            known = start and (some is None or scope["block"] < int(some.group(1)))
            memory[to : to + 8] = padded[at : at + 4].reshape(-1) if known else 0


@pytest.mark.parametrize(
    "p",
    [
        Windows(),
        Windows(taps=7, rows=3),
        Windows(taps=32, tap_rows=5, rows=4),
        Windows(taps=16, tap_rows=3, rows=8, unrolled=True),
        Windows(taps=9, tap_rows=6, rows=4, step=2),
        Windows(taps=16, tap_rows=4, rows=4, step=2, stride=2),
        Windows(taps=20, tap_rows=2, rows=4, stride=4),
        Windows(taps=16, tap_rows=4, rows=4, reverse=True),
        Windows(taps=16, tap_rows=16, rows=16),
        Windows(taps=32, tap_rows=6, rows=3, reverse=True),
        Windows(taps=16, tap_rows=5, rows=4, unrolled=True),
        Windows(taps=16, tap_rows=7, rows=3, step=2),
        Windows(taps=16, tap_rows=1, rows=4, step=2),
        Windows(taps=9, tap_rows=6, rows=5, stride=2),
        Windows(taps=16, tap_rows=16, rows=8, step=2, stride=2, part=True),
        Windows(taps=12, tap_rows=7, rows=5, step=2, stride=2, part=True),
        Windows(taps=10, tap_rows=8, rows=3, step=2, stride=2, part=True),
        Windows(taps=16, tap_rows=6, rows=4, stride=2, part=True),
        Windows(taps=16, tap_rows=6, rows=4, step=2, stride=2, part=True, reverse=True),
        Windows(taps=16, tap_rows=5, rows=4, step=2, stride=2, part=True, unrolled=True),
        Windows(taps=16, tap_rows=1, rows=4, step=2, stride=2, part=True),
        Windows(taps=6, tap_rows=9, rows=7, step=4, stride=4, part=True),
        Windows(taps=8, tap_rows=4, rows=4, phases=2),
        Windows(taps=16, tap_rows=5, rows=4, phases=2),
        Windows(taps=5, tap_rows=3, rows=3, phases=4),
    ],
    ids=str,
)
def test_instructions_add_up_to_the_convolution(p: Windows) -> None:
    text = hb.compile(windowed(p), target="sm_90a").source
    rng = np.random.default_rng(7)
    height = p.step * (p.rows - 1) + p.tap_rows
    image = rng.standard_normal((height, p.pitch)).astype(np.float16)
    layout = re.search(r"strip_column<(\d+), (\d+), (\d+)>", text)
    strips = None if layout is None else Dealt(*(int(n) for n in layout.groups()))
    assert (strips is None) == (p.stride == 1 or p.part)
    pitch = int(re.search(r"row0 \* (\d+)", text).group(1))  # type: ignore[union-attr]
    taps = rng.standard_normal((p.tap_rows, p.taps * p.phases)).astype(np.float16)
    bands = filled_bands(text, taps, p.phases)
    share = 8 // p.window
    across = p.window * p.phases
    found = np.zeros((64, 8 * p.phases * -(-p.rows // share)))
    named = descriptors(text)
    rows = np.full(pitch * height, np.nan, np.float16)
    for y, line in enumerate(image):
        at = y * pitch + np.arange(len(line))
        rows[at if strips is None else [strips.place(int(i)) for i in at]] = line
    for issue in issues(text):
        a = matrix(rows, issue.a, 64, named[issue.names[0]]).astype(np.float64)
        b = matrix(bands, issue.b, issue.columns, named[issue.names[1]]).astype(np.float64)
        column = issue.first // 4 * 8
        found[:, column : column + issue.columns] += a @ b.T
    wanted = np.zeros((p.rows, p.outputs))
    for s in range(p.tap_rows):
        for t in range(p.taps):
            row = taps[p.tap_rows - 1 - s if p.reverse else s].astype(np.float64)
            last = t + (p.outputs // p.phases - 1) * p.stride + 1
            lines = image[s : s + p.step * p.rows : p.step, t : last : p.stride]
            for phase in range(p.phases):
                wanted[:, phase :: p.phases] += row[t * p.phases + phase] * lines
    result = found.reshape(64, -1, across).swapaxes(0, 1).reshape(-1, p.outputs)[: p.rows]
    assert np.linalg.norm(result - wanted) < 1e-6 * np.linalg.norm(wanted)


def test_a_row_serves_all_outputs_that_it_reaches() -> None:
    """3 rows of taps, 8 rows of outputs: 10 image rows, each met by up to 3 bands at once."""
    found = issues(hb.compile(windowed(Windows(tap_rows=3, rows=8)), target="sm_90a").source)
    columns = [i.columns for i in found]
    assert columns == [8, 16, 16, *[24, 24, 32] * 3, 16, 8, 16]


def rows_of(text: str, p: Windows) -> list[tuple[int, int, int]]:
    """(Row, first 16 bytes, bytes to the other 16) of the windows that instructions read."""
    named = descriptors(text)
    pitch = 2 * p.pitch
    return [(i.a // pitch, i.a % pitch, named[i.names[0]][0]) for i in issues(text)]


def test_neighbouring_rows_share_their_last_half_step() -> None:
    p = Windows(tap_rows=4, rows=5)
    pitch = 2 * p.pitch
    shared = [(0, 0, 16), (1, 0, 16), (0, 32, pitch)]
    wanted = [(row + i, at, along) for row in range(0, 8, 2) for i, at, along in shared]
    assert rows_of(hb.compile(windowed(p), target="sm_90a").source, p) == wanted


def test_a_row_without_a_neighbour_reads_its_own_next_bytes() -> None:
    """Nobody fills the row below the last one, and zeros do not make numbers of what lies there."""
    p = Windows(tap_rows=3, rows=5)
    found = rows_of(hb.compile(windowed(p), target="sm_90a").source, p)
    assert found[-2:] == [(6, 0, 16), (6, 32, 16)]
    assert (6, 32, 2 * p.pitch) not in found


@pytest.mark.parametrize(
    "p",
    [
        Windows(taps=9, tap_rows=4, rows=4),  # two whole steps
        Windows(tap_rows=1, step=2),  # no neighbours
        Windows(tap_rows=4, rows=3, groups=2, segments=2, stages=2),  # groups begin at odd rows
    ],
    ids=str,
)
def test_rows_that_share_nothing(p: Windows) -> None:
    text = hb.compile(windowed(p), target="sm_90a").source
    assert {along for _, _, along in rows_of(text, p)} == {16}
    assert "const int pair = " not in text


def test_two_rows_of_outputs_share_columns() -> None:
    """5 rows of 4 columns are 3 tiles: a row of the image meets 2 or 3 of them, side by side."""
    p = Windows(tap_rows=8, rows=5, step=2, stride=2, part=True)
    text = hb.compile(windowed(p), target="sm_90a").source
    named = descriptors(text)
    whole = [(i.columns, i.first) for i in issues(text) if named[i.names[0]][0] == 16]
    assert whole == [(8, 0)] * 4 + [(16, 0)] * 4 + [(24, 0)] * 2 + [(16, 4)] * 4 + [(8, 8)] * 2
    assert {across for _, across in named.values()} == {128}


def test_a_part_is_read_out_by_the_lanes_that_have_it() -> None:
    p = Windows(tap_rows=8, rows=5, step=2, stride=2, part=True)
    text = hb.compile(windowed(p), target="sm_90a").source
    stored = re.findall(r"if \(q / 2 == (\d)\) \{\s*const int q = lane % 2;\s*if[^{]*\{\s*\{", text)
    assert stored == ["0", "1", "0", "1", "0"]


@pytest.mark.slow
@pytest.mark.skipif(not available(), reason="NVRTC is not installed")
def test_machine_code_of_parts() -> None:
    p = Windows(tap_rows=16, rows=8, step=2, stride=2, part=True, groups=2, segments=2, stages=2)
    cubin = compile_to_cubin(hb.compile(windowed(p), target="sm_90a").source, "sm_90a")
    (usage,) = resource_usage(cubin).values()
    assert usage.local_accesses == 0
    (code,) = sass(cubin).values()
    assert len(re.findall(r"\bHGMMA\.64x\d+x16\.F32", code)) == 30 + 15  # a row, two rows


@pytest.mark.slow
@pytest.mark.skipif(not available(), reason="NVRTC is not installed")
def test_machine_code() -> None:
    p = Windows(taps=16, tap_rows=16, rows=16, groups=2, segments=2, stages=2)
    text = hb.compile(windowed(p), target="sm_90a").source
    cubin = compile_to_cubin(text, "sm_90a")
    (usage,) = resource_usage(cubin).values()
    assert usage.local_accesses == 0
    (code,) = sass(cubin).values()
    assert len(re.findall(r"\bHGMMA\.64x\d+x16\.F32", code)) == 31 + 16  # a row, two rows
    assert "UBLKCP" in code


def test_rows_are_awaited_before_they_are_read_and_passed_on_after() -> None:
    """Pieces of 4 rows: 8 groups' rows of 3 taps are 10, so 3 pieces a group, of 5 in a slot."""
    p = Windows(tap_rows=3, rows=8, groups=2, segments=2, stages=2)
    text = hb.compile(windowed(p), target="sm_90a").source
    assert "piece < 2 ? 1 : piece < 3 ? 2 : 1" in text
    events = re.findall(
        r"try_wait\S+ done, \[%\d+ \+ (\d+)\]|add\.s64 a, %\d+, (\d+);|(commit)_group\.sync"
        r"|wait_group\.sync\.aligned (\d)|arrive\S+ _, \[%\d+ \+ (\d+)\]",
        text[text.index("const u32 ready") :],
    )
    there, open_, waited, passed = set[int](), list[set[int]](), list[set[int]](), set[int]()
    reading = set[int]()
    for ready, window, commit, pending, free in events:
        if ready:
            there.add(int(ready) // 8)
        elif window:
            row = 16 * int(window) // (2 * p.pitch)
            assert row // 4 in there
            assert row // 4 not in passed
            reading.add(row // 4)
        elif commit:
            open_.append(reading)
            reading = set()
        elif pending:
            while len(open_) > int(pending):
                waited.append(open_.pop(0))
        elif free:
            assert int(free) // 8 in set().union(*waited)
            passed.add(int(free) // 8)
    assert there == passed == {0, 1, 2}


def test_a_group_passes_its_rows_on_before_it_stores() -> None:
    for p in (Windows(segments=2, stages=2), Windows(segments=2, stages=2, rows=3, groups=2)):
        text = hb.compile(windowed(p), target="sm_90a").source
        assert text.rindex("mbarrier.arrive") < text.index("store2(p0")


def windows_of(outputs: int, width: int, stride: int = 1) -> hl.Func:
    """A convolution of 16 taps whose vectors hold so many outputs, of rows so wide."""
    x, y, xo, xi = (hl.Var(n) for n in ("x", "y", "xo", "xi"))
    image, weights = hl.ImageParam(hl.Float(16), 2, "I"), hl.ImageParam(hl.Float(16), 1, "K")
    t = hl.RDom([(0, 16)], "t")
    conv, out = hl.Func("conv"), hl.Func("out")
    conv[x, y] = hl.f32(0.0)
    conv[x, y] += hl.f32(image[stride * x + t.x, y]) * hl.f32(weights[t.x])
    out[x, y] = conv[x, y]
    out.split(x, xo, xi, outputs).vectorize(xi).gpu_blocks(xo, y)
    conv.compute_at(out, xo).vectorize(x)
    conv.update().atomic().vectorize(x).vectorize(t.x)
    hb.store_in(conv, hb.MemoryType.WGMMAAccumulator)
    if width:
        staged = image.in_(conv)
        staged.compute_at(out, xo).store_in(hl.MemoryType.GPUShared)
        staged.bound_extent(staged.args()[0], width).vectorize(staged.args()[0])
    return out


@pytest.mark.parametrize(
    ("stride", "width", "message"),
    [
        (1, 0, "does not lie in shared memory"),
        (3, 1576, "cannot be read by wgmma"),
    ],
)
def test_refusals(stride: int, width: int, message: str) -> None:
    with pytest.raises(ScheduleError, match=message) as caught:
        hb.compile(windows_of(512, width, stride), target="sm_90a")
    assert caught.value.hint


def test_windows_of_one_row() -> None:
    text = hb.compile(windows_of(512, 536), target="sm_90a").source
    assert [i.columns for i in issues(text)] == [8, 8]


def test_more_windows_are_more_rows() -> None:
    """1024 outputs are two instructions of 64 windows of 8, not one of windows of 16."""
    text = hb.compile(windows_of(1024, 1048), target="sm_90a").source
    assert [(i.columns, i.first) for i in issues(text)] == [(8, 0), (8, 0), (8, 4), (8, 4)]


def test_waits_for_rows_are_bounded_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SELECTOR_PATIENCE", "2")
    text = hb.compile(windowed(Windows(segments=2, stages=2)), target="sm_90a").source
    for piece in range(2):
        bounded = f"barrier_await_within(ready + 8 * {piece}, round & 1, 2000000000ull);"
        assert text.index(bounded) < text.index(f"ready{piece}: mbarrier")
