"""Registers of kernels that tests write down."""

from __future__ import annotations

from selector.gpu.ir.products import Register, parse_register


def registers(*texts: str) -> tuple[Register, ...]:
    return tuple(map(parse_register, texts))
