"""What moves with the window, of programs in the text form, and why some cannot be cut."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("dask.array")

import dask.array as da

import selector
from selector.dask import apply
from selector.dask.layout import Layout
from selector.dask.motion import Motion, motion_along
from selector.dask.regions import Stuck
from selector.ir.module import Module
from selector.ir.parser import parse_module

HEAD = """module output
input I: float32 [(0, I.extent.0, 1)]
input K: float32 [(0, K.extent.0, 1)]
output output: float32 [(0, output.extent.0, 1)]
require I dim 0 from 0 to {need}
"""


def program(body: str, need: str = "output.extent.0 + 3") -> Module:
    return parse_module(HEAD.format(need=need) + "body {\n" + body + "\n}\n", "test")


def blocks(statement: str, extent: str = "(output.extent.0 + 7)/8") -> str:
    """Blocks of eight threads, one output each; ``$x`` is where it is."""
    x = "((x.o*8) + x.i)"
    return (
        f"gpu_block<CUDA> (x.o, 0, {extent}) {{\n gpu_thread<CUDA> (x.i, 0, 8) {{\n"
        + statement.replace("$x", x)
        + "\n }\n}"
    )


def found(body: str, need: str = "output.extent.0 + 3") -> Motion:
    return motion_along(program(body, need), 0, frozenset(("I",)))


def stuck(body: str, need: str = "output.extent.0 + 3") -> str:
    with pytest.raises(Stuck) as caught:
        found(body, need)
    return str(caught.value)


STORE = "output[$x] = {} if $x < output.extent.0"
LEFT = "the values depend on where in the whole image they are"
RIGHT = "the extent of `I` decides what is computed, and not only at the image's edges"


def test_a_window_moves_by_the_tile_of_the_schedule() -> None:
    motion = found(blocks(STORE.format("I[$x + 3]*K[2]")))
    assert motion == Motion(8, {("I", 0): 8})


def test_phases_make_the_tile_larger() -> None:
    motion = found(blocks(STORE.format("I[$x/3]*float32(K[$x % 5])")), "output.extent.0/3")
    assert motion == Motion(120, {("I", 0): 40})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("float32($x)", LEFT),
        ("I[min($x, 1000)]", LEFT),
        ("I[$x*2]", "`I` is used at places that do not move with the output"),
        ("I[$x]*K[$x]", "`K` is read at the place of the output, and is not cut with it"),
        ("I[K.extent.0 - $x]", "`I` is used at places that do not move with the output"),
        ("I[max(I.extent.0 - 1 - $x, 0)]", RIGHT),
        ("I[$x % I.extent.0]", RIGHT),
        ("I[$x]*float32(I.extent.0)", RIGHT),
        ("select($x == 5, 1.0f, I[$x])", LEFT),
        ("select($x*$x < 9, 1.0f, I[$x])", LEFT),
        ("I[$x/K.extent.0]", LEFT),
        ("I[int32(K[0]) + $x] + I[0]", "`I` is used at places that do not move with the output"),
    ],
)
def test_what_is_no_motion(value: str, why: str) -> None:
    assert stuck(blocks(STORE.format(value))) == why


def test_edges_of_the_image_are_idle_beyond_some_tiles() -> None:
    motion = found(blocks(STORE.format("I[max(min($x - 9, I.extent.0 - 1), 0)]")))
    assert motion == Motion(8, {("I", 0): 8}, margin=2, after={("I", 0): 0})


@pytest.mark.parametrize(
    ("condition", "margin"),
    [("$x >= 8", 1), ("$x > 8", 2), ("$x < 8", 1), ("$x <= 8", 2), ("8 <= $x", 1), ("8 < $x", 2)],
)
def test_a_beginning_and_its_tiles(condition: str, margin: int) -> None:
    motion = found(blocks(STORE.format(f"select({condition}, I[$x], 1.0f)")))
    assert motion.margin == margin


@pytest.mark.parametrize(
    ("condition", "after"),
    [("$x < {}", 8), ("$x <= {}", 7), ("$x >= {}", 8), ("$x > {}", 7), ("{} > $x", 8)],
)
def test_an_end_and_how_far_it_is(condition: str, after: int) -> None:
    text = condition.format("(I.extent.0 - 100)")
    motion = found(blocks(STORE.format(f"select({text}, I[$x], 1.0f)")))
    assert motion.after == {("I", 0): 100 + after}


def test_a_sum_over_the_image() -> None:
    body = blocks(
        "allocate sum[float32 * 1]\nsum[0] = 0.0f\nfor (r, 0, I.extent.0) {\n"
        "sum[0] = sum[0] + I[r]\n}\n" + STORE.format("sum[0]")
    )
    assert stuck(body) == RIGHT


def test_a_recursion_in_a_serial_loop() -> None:
    body = "for (x, 0, output.extent.0) {\noutput[x] = I[x] + output[max(x - 1, 0)]\n}"
    assert stuck(body) == "each value of `output` depends on those before it"


def test_a_sum_that_is_carried_along() -> None:
    body = (
        "allocate sum[float32 * 1]\nsum[0] = 0.0f\nfor (x, 0, output.extent.0) {\n"
        "sum[0] = sum[0] + I[x]\noutput[x] = sum[0]\n}"
    )
    assert stuck(body) == "each value of `sum` depends on those before it"


def test_a_first_value_that_is_written_apart() -> None:
    body = "output[0] = I[0]\nfor (x, 1, output.extent.0 - 1) {\noutput[x] = I[x]\n}"
    assert "do not move with the output" in stuck(body)


def test_edges_of_an_image_between_are_refused() -> None:
    """Tiles of the second kernel read what those before them have written, edges included."""
    body = (
        "allocate middle[float32 * (((output.extent.0 + 7)/8)*8 + 8)]\n"
        + blocks("middle[$x] = I[max($x - 2, 0)]", "(output.extent.0 + 15)/8")
        + "\n"
        + blocks(STORE.format("middle[$x + 1]")).replace("x.o", "z.o").replace("x.i", "z.i")
    )
    assert stuck(body) == "what the image's edges reach is computed for several tiles at once"


def test_an_image_between_moves_with_its_window() -> None:
    body = (
        "allocate middle[float32 * (((output.extent.0 + 7)/8)*8 + 8)]\n"
        + blocks("middle[$x] = I[$x + 2]", "(output.extent.0 + 15)/8")
        + "\n"
        + blocks(STORE.format("middle[$x + 1]")).replace("x.o", "z.o").replace("x.i", "z.i")
    )
    assert found(body).tile == 8


def test_a_last_tile_that_is_moved_back() -> None:
    """Such a window is no smaller than a tile and ends with one: the same places, the same bits."""
    body = (
        "gpu_block<CUDA> (x.o, 0, (output.extent.0 + 7)/8) {\n"
        " let base = min(x.o*8, output.extent.0 - 8)\n"
        " gpu_thread<CUDA> (x.i, 0, 8) {\n  output[base + x.i] = I[(base + x.i) + 3]*K[0]\n }\n}"
    )
    motion = found(body)
    assert motion.aligned
    layout = Layout(program(body), {0: motion}, {("I", 0): 43}, (40,), {})
    windows = ((8, 16), 8, 8), ((9, 15), 8, 8), ((0, 8), 0, 8), ((30, 34), 24, 16)
    for keep, begin, extent in windows:
        window = layout.window((keep,))
        assert (window.begin, window.extents) == ((begin,), (extent,)), keep
    ragged = Layout(program(body), {0: motion}, {("I", 0): 45}, (42,), {})
    assert ragged.window(((41, 42),)).begin == (32,)
    kernel = selector.compile(program(body), "sm_80", cache=False)
    image = np.random.default_rng(1).standard_normal(40).astype(np.float32)
    whole = kernel.interpret(image, np.ones(1, np.float32))
    for chunks in (1, 7, (3, 30, 7)):
        made = apply(
            kernel, da.from_array(image, (chunks,)), np.ones(1, np.float32), interpret=True
        )
        np.testing.assert_array_equal(made.compute(scheduler="sync"), whole)


def test_a_name_that_means_two_things() -> None:
    """A variable that moves inside a Let does not move behind it."""
    body = blocks("let a = 3\n" + STORE.format("(let a = $x in I[a]) + K[a]"))
    assert found(body).tile == 8
