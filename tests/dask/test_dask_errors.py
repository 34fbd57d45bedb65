"""Every mistake in a call of ``apply`` is one error that says what to do."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import halide as hl
import numpy as np
import pytest
from dask_pipelines import image, kernel, on_gpu

import halide_bridge as hb
from selector.diagnostics import ArgumentError, TargetError

da = pytest.importorskip("dask.array")
from selector.dask import apply  # noqa: E402


def picture(dtype: str = "float32", shape: tuple[int, ...] = (20, 30)) -> Any:
    return da.zeros(shape, dtype=dtype, chunks=10)


def refused(what: str, *args: Any, name: str = "blur", **named: Any) -> ArgumentError:
    with pytest.raises(ArgumentError) as caught:
        apply(kernel(name), *args, interpret=True, **named)
    assert what in caught.value.what
    assert caught.value.hint or caught.value.why
    return caught.value


def test_the_wrong_dtype() -> None:
    error = refused("I: expected float32, got float64", picture("float64"))
    assert error.hint == "convert it: I.astype('float32')"


def test_a_byte_swapped_dtype() -> None:
    refused("I: expected float32, got byte-swapped float32", picture(">f4"))


def test_the_wrong_number_of_axes() -> None:
    refused("I: expected 2 axes, got 3", picture(shape=(3, 20, 30)))


def test_chunks_of_unknown_size() -> None:
    mask = da.ones((20,), dtype=bool, chunks=10)
    error = refused("the sizes of its chunks are not known", picture()[mask])
    assert error.hint == "have them counted: I.compute_chunk_sizes()"


def test_an_image_that_is_too_small() -> None:
    refused("I: axis 0 needs 6 elements, has 4", picture(shape=(4, 30)))


def test_an_empty_image() -> None:
    refused("I: axis 1 needs 3 elements, has 0", picture(shape=(20, 0)))


def test_an_empty_output() -> None:
    refused("output of shape (0, 5) has no elements", picture(), sizes=(0, 5))


def test_a_size_that_the_image_is_too_small_for() -> None:
    refused("I: axis 1 needs 33 elements, has 30", picture(), sizes=(5, 31))


def test_a_size_that_does_not_follow() -> None:
    refused("its axis 1 does not follow from the inputs", picture(), name="repeat edge")


def test_no_dask_array() -> None:
    error = refused("no argument of output is a Dask array", np.zeros((20, 30), np.float32))
    assert "dask.array.from_array" in error.hint


def test_a_missing_input() -> None:
    refused("missing: K", picture("float16"), name="tensor")


def test_an_unknown_input() -> None:
    refused("output has no parameter 'taps'", picture(), taps=1)


def test_a_whole_input_of_the_wrong_dtype() -> None:
    refused("K: expected float16, got float64", picture("float16"), np.zeros(16), name="tensor")


def test_a_whole_input_of_torch() -> None:
    torch = pytest.importorskip("torch")
    taps = torch.zeros(16, dtype=torch.float16)
    refused("K: a torch tensor does not go with Dask", picture("float16"), taps, name="tensor")


def test_a_whole_input_that_is_cut() -> None:
    taps = da.zeros((16,), dtype="float16", chunks=4)
    error = refused(
        "K: axis 0 has 4 chunks, and every block", picture("float16"), taps, name="tensor"
    )
    assert error.hint == "make it one: K.rechunk({0: -1})"


def test_a_whole_input_in_one_chunk_is_given_to_every_block() -> None:
    taps = da.ones((16,), dtype="float16", chunks=16)
    made = apply(
        kernel("tensor"), da.ones((5, 40), dtype="float16", chunks=9), taps, interpret=True
    )
    np.testing.assert_array_equal(made.compute(scheduler="sync"), np.full((5, 25), 16, np.float32))


@pytest.mark.parametrize("chunks", [(7,), "three", ((5, 5), (28,)), -3.5])
def test_chunks_that_do_not_fit(chunks: Any) -> None:
    refused("does not fit an output of shape (15, 28)", picture(), chunks=chunks)


def test_a_block_too_large_for_an_index() -> None:
    large = da.zeros((60_000, 60_000), dtype="float32", chunks=60_000)
    assert "chunks=" in refused("elements of I", large).hint


def test_something_that_is_no_kernel() -> None:
    with pytest.raises(ArgumentError, match="expected a kernel, got str"):
        apply("blur", picture())  # pyright: ignore


def test_several_outputs() -> None:
    i = image()
    both = on_gpu(lambda x, y: (i[x, y], 2.0 * i[x, y]))
    several = hb.compile(both, target="sm_80", name="both")
    with pytest.raises(ArgumentError, match="both has 2 outputs"):
        apply(several, picture(), interpret=True)


def test_an_extent_that_is_fixed_is_not_cut() -> None:
    def fixed() -> hl.Func:
        i = image()
        output = on_gpu(lambda x, y: i[x, y] * 2.0)
        output.output_buffer().dim(0).set_bounds(0, 16)
        return output

    made = hb.compile(fixed(), target="sm_80", name="fixed")
    with pytest.raises(ArgumentError) as caught:
        apply(made, picture(shape=(20, 16)), interpret=True)
    assert "fixed in the compiled kernel" in caught.value.why


def test_a_scalar_of_the_wrong_kind() -> None:
    i, factor = image(), hl.Param(hl.Float(32), "factor", 0.0)
    scaled = hb.compile(on_gpu(lambda x, y: i[x, y] * factor), target="sm_80", name="scaled")
    with pytest.raises(ArgumentError, match="factor: expected a number, got str"):
        apply(scaled, picture(), factor="two", interpret=True)
    made = apply(scaled, picture() + 1, factor=2.5, interpret=True)
    assert float(made.sum().compute(scheduler="sync")) == 2.5 * 600


def test_no_gpu_and_no_interpret() -> None:
    try:
        kernel("blur")(np.zeros((20, 30), np.float32))
    except TargetError:
        with pytest.raises(TargetError):
            apply(kernel("blur"), picture()).compute(scheduler="sync")
    else:
        pytest.skip("there is a GPU")


def test_without_dask() -> None:
    code = (
        "import sys; sys.modules['dask'] = None\n"
        "try:\n    import selector.dask\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("UserError there is no Dask here")
    assert "pip install tensor-selector[dask]" in done.stdout
