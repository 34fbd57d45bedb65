"""Small vectorized programs as text, and one helper that asserts selection AND numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from selector.eqsat import Selection, select
from selector.intrinsics import find
from selector.ir.interpreter import interpret
from selector.ir.module import Module
from selector.ir.nodes import Call, Role
from selector.ir.parser import parse_module
from selector.ir.traverse import walk_all_exprs
from selector.targets import find_target

SM80 = find_target("sm_80")

DTYPES = {
    "float16": np.float16, "float32": np.float32, "int8": np.int8, "uint8": np.uint8,
    "int32": np.int32, "bfloat16": np.uint16, "int16": np.int16,
}  # fmt: skip


@dataclass(frozen=True)
class Spec:
    """Operand and accumulator types of a program, and how the text spells them."""

    operand: str = "float16"
    accumulator: str = "float32"

    @property
    def zero(self) -> str:
        return (
            "0"
            if self.accumulator == "int32"
            else "0.0f"
            if self.accumulator == "float32"
            else "0.0h"
        )

    def cast(self, value: str, lanes: int) -> str:
        if self.operand == self.accumulator:
            return value
        return f"{self.accumulator}x{lanes}({value})"


def ramp(base: str, stride: str, count: int, lanes: int = 1) -> str:
    """A level of an index over ``lanes`` inner lanes, degenerate ones dropped."""
    if count == 1:
        return base
    if stride == "0":
        return f"x{count}({base})"
    step = stride if lanes == 1 else f"x{lanes}({stride})"
    return f"ramp({base}, {step}, {count})"


def nest(base: str, levels: list[tuple[str, int]]) -> str:
    """Ramps and broadcasts, innermost level first; stride "0" is a broadcast."""
    lanes = 1
    for stride, count in levels:
        base = ramp(base, stride, count, lanes)
        lanes *= count
    return base


def scope(body: str, lanes: int, spec: Spec, memory: str = "WMMAAccumulator") -> str:
    return f"allocate acc[{spec.accumulator} * {lanes}] in {memory}\n{body}"


def program(
    buffers: Mapping[str, tuple[str, tuple[int, ...]]],
    update: str,
    lanes: int,
    spec: Spec,
    readout: str | None = None,
    init: str | None = None,
    output: tuple[int, ...] | None = None,
) -> Module:
    """A module: init, ``update``, read-out. ``buffers`` are the inputs: type and extents, innermost
    first."""
    head = ["module test"]
    for name, (element, extents) in buffers.items():
        head.append(f"input {name}: {element} [{_dims(name, extents)}]")
    head.append(f"output out: {spec.accumulator} [{_dims('out', output or (lanes,))}]")
    init = init or f"acc[ramp(0, 1, {lanes})] = x{lanes}({spec.zero})"
    readout = readout or f"out[ramp(0, 1, {lanes})] = acc[ramp(0, 1, {lanes})]"
    body = scope("\n".join((init, update, readout)), lanes, spec)
    return parse_module("\n".join((*head, "body {", body, "}")))


def _dims(name: str, extents: tuple[int, ...]) -> str:
    strides = ("1", *(f"{name}.stride.{i}" for i in range(1, len(extents))))
    return ", ".join(f"(0, {e}, {s})" for e, s in zip(extents, strides, strict=True))


def matmul(
    m: int, n: int, k: int, spec: Spec = Spec(), a_layout: str = "row", b_layout: str = "row",
    style: str = "nested", swapped: bool = False, acc_left: bool = False,
) -> Module:  # fmt: skip
    """acc[m, n] += sum_k A[m, k] * B[k, n]; ``row`` is k fastest for A and n fastest for B."""
    am, ak = ("A.stride.1", "1") if a_layout == "row" else ("1", "A.stride.1")
    bk, bn = ("B.stride.1", "1") if b_layout == "row" else ("1", "B.stride.1")
    lanes, total = m * n, m * n * k
    if style == "nested":
        a = f"A[{nest('0', [(ak, k), ('0', n), (am, m)])}]"
        b = f"B[{nest('0', [(bk, k), (bn, n), ('0', m)])}]"
        a, b = spec.cast(a, total), spec.cast(b, total)
    else:
        row = nest("0", [("0", k * n), (am, m)])
        a = f"A[({row} + x{lanes}({nest('3', [(ak, k)])})) - x{total}(3)]"
        b = f"B[{nest('0', [(bk, k), (bn, n)])}]"
        a, b = spec.cast(a, total), f"x{m}({spec.cast(b, n * k)})"
    left, right = (b, a) if swapped else (a, b)
    reduce = f"({spec.accumulator}x{lanes})vector_reduce_add({left}*{right})"
    acc = f"acc[ramp(0, 1, {lanes})]"
    update = f"{acc} = {acc} + {reduce}" if acc_left else f"{acc} = {reduce} + {acc}"
    a_size, b_size = (
        ((k, m) if a_layout == "row" else (m, k)),
        ((n, k) if b_layout == "row" else (k, n)),
    )
    inputs = {"A": (spec.operand, a_size), "B": (spec.operand, b_size)}
    return program(inputs, update, lanes, spec)


def convolution(
    lanes: int, taps: int, stride: int = 1, dilation: int = 1, spec: Spec = Spec(),
    reverse: str = "", base: str = "0",
) -> Module:  # fmt: skip
    """acc[x] += sum_r I[stride*x + dilation*r] * K[r]; ``reverse`` "I" or "K" walks that operand
    backwards."""
    span = dilation * (taps - 1)
    image = nest(
        str(span) if reverse == "I" else base,
        [(str(-dilation if reverse == "I" else dilation), taps), (str(stride), lanes)],
    )
    kernel = nest(
        str(taps - 1) if reverse == "K" else "0", [("-1" if reverse == "K" else "1", taps)]
    )
    total = lanes * taps
    a = spec.cast(f"I[{image}]", total)
    b = f"x{lanes}({spec.cast(f'K[{kernel}]', taps)})"
    reduce = f"({spec.accumulator}x{lanes})vector_reduce_add({a}*{b})"
    update = f"acc[ramp(0, 1, {lanes})] = {reduce} + acc[ramp(0, 1, {lanes})]"
    inputs = {"I": (spec.operand, (stride * (lanes - 1) + span + 1,)), "K": (spec.operand, (taps,))}
    return program(inputs, update, lanes, spec)


def random_inputs(module: Module, seed: int = 0) -> dict[str, np.ndarray]:
    """Small integers in every type, so that sums are exact."""
    generator = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray] = {}
    for b in module.buffers:
        if b.role is not Role.INPUT:
            continue
        shape = tuple(d.extent.value for d in reversed(b.dims))  # type: ignore[union-attr]
        low = 0 if b.type.kind.value == "uint" else -3
        values = generator.integers(low, 4, shape)
        if str(b.type) == "bfloat16":
            arrays[b.name] = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        else:
            arrays[b.name] = values.astype(DTYPES[str(b.type)])
    return arrays


def instructions(module: Module) -> tuple[Call, ...]:
    """The tensor instructions of a selected module, in program order."""
    return tuple(
        e for e in walk_all_exprs(module.body) if isinstance(e, Call) and find(e.name) is not None
    )


def check_selected(module: Module, only: tuple[str, ...] | None = None, seed: int = 0) -> Selection:
    """Select, require at least one instruction, and require the same numbers as before."""
    selection = select(module, SM80, instructions=only)
    assert instructions(selection.module), str(selection.module)
    check_same(module, selection.module, seed)
    return selection


def check_same(before: Module, after: Module, seed: int = 0) -> None:
    """Both modules compute the same outputs, bit for bit, on random integers."""
    arrays = random_inputs(before, seed)
    expected, got = interpret(before, arrays), interpret(after, arrays)
    assert expected.keys() == got.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(got[name], value, err_msg=name)
