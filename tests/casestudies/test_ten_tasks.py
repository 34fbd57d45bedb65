"""The ten tasks compile without a schedule, for sizes that are said and for any, and are right at
ragged ones; products go to tensor units. Their code is counted as radon counts it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import halide_bridge as hb
from casestudies.ten_tasks import algorithm, metrics, page
from casestudies.ten_tasks.results import kept
from casestudies.ten_tasks.tasks import TASKS, Task

Array = np.ndarray[Any, Any]


def layer(image: Array, w: Array) -> Array:
    high, wide = image.shape[1] - 2, image.shape[2] - 2
    windows = (
        np.einsum("nhwc,kc->nhwk", image[:, r : r + high, s : s + wide], w[:, r, s])
        for r in range(3)
        for s in range(3)
    )
    return np.sum(list(windows), axis=0)


def rope(a: Array, sin: Array, cos: Array) -> Array:
    re, im = np.split(a, 2, -1)
    s, c = sin[:, None], cos[:, None]
    return np.concatenate((re * c - im * s, re * s + im * c), -1)


def softmax(a: Array) -> Array:
    weight = np.exp(a - a.max(-1, keepdims=True))
    return weight / weight.sum(-1, keepdims=True)


def addmm(bias: Array, a: Array, b: Array, beta: float, alpha: float) -> Array:
    return beta * bias + alpha * (a @ b)


def rms_norm(a: Array) -> Array:
    return a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-6)


def sdpa(q: Array, k: Array, v: Array) -> Array:
    return softmax(q @ k.swapaxes(2, 3) / 8) @ v


def silu(a: Array) -> Array:
    return a / (1 + np.exp(-a))


EXACT: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "addmm": addmm,
    "bmm": np.matmul,
    "conv2d": layer,
    "mm": np.matmul,
    "rms_norm": rms_norm,
    "rope": rope,
    "sdpa": sdpa,
    "silu": silu,
    "softmax": softmax,
}
SMALL = {
    "add": (1001,),
    "addmm": (33, 40, 72),
    "bmm": (3, 17, 24, 40),
    "conv2d": (2, 5, 9, 16, 24),
    "mm": (33, 40, 72),
    "rms_norm": (5, 1001),
    "rope": (2, 7, 5, 64),
    "sdpa": (1, 2, 5, 33),
    "silu": (1001,),
    "softmax": (5, 1001),
}
PRODUCTS = ("addmm", "bmm", "conv2d", "mm", "sdpa")


@pytest.mark.verified
@pytest.mark.parametrize("open_", [False, True], ids=["for the paper's size", "for any size"])
@pytest.mark.parametrize("task", TASKS, ids=[t.name for t in TASKS])
def test_they_are_right_without_a_schedule(task: Task, open_: bool) -> None:
    output = getattr(algorithm, task.name)()
    sizes = None if open_ else task.sizes(task.paper)
    kernel = hb.compile(output, target="sm_90a", schedule="auto", sizes=sizes)
    if task.name in PRODUCTS:
        assert "wgmma" in kernel.source
    random = np.random.default_rng(0)
    inputs = {
        name: random.standard_normal(shape).astype(np.float16)
        for name, shape in task.inputs(SMALL[task.name]).items()
    }
    result = kernel.interpret(**inputs, **task.numbers, sizes=task.output(SMALL[task.name]))
    exact = EXACT[task.name](*(v.astype(float) for v in inputs.values()), *task.numbers.values())
    assert np.linalg.norm(result - exact) <= 1e-3 * np.linalg.norm(exact)


@pytest.mark.verified("casestudies/ten_tasks")
def test_their_code_is_counted_as_in_the_paper() -> None:
    add = metrics.triton("add")
    assert (add.vocabulary, add.length, round(add.volume, 2)) == (14, 21, 79.95)
    assert metrics.ours("add").volume == pytest.approx(4.75, abs=0.01)
    assert metrics.triton("sdpa").complexity == 2


@pytest.mark.verified("casestudies", "docs")
def test_the_page_is_made_from_the_data() -> None:
    assert page.main(["--check"]) == 0


def test_rows_of_other_tasks_of_the_day_are_kept(tmp_path: Path) -> None:
    about, file = {"date": "2026-11-26", "device": "a GPU"}, tmp_path / "rows.json"
    assert kept(None, about, "") == kept(file, about, "") == {}
    rows = [{"task": "add", "right": True}, {"task": "sdpa", "right": True}]
    file.write_text(json.dumps(about | {"rows": rows}))
    assert kept(file, about, "sdpa") == {"add": rows[0]}
    assert kept(file, about, "") == {}
    assert kept(file, about | {"date": "2026-11-27"}, "sdpa") == {}
